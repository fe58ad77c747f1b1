#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "array/attrs.h"
#include "array/layout.h"
#include "array/storage.h"
#include "weft/dtype.h"

namespace weft {

struct MemoryUse {
  uint64_t active = 0;  ///< bytes in Storage that somebody holds
  uint64_t peak = 0;    ///< the most that ever was active
  uint64_t cached = 0;  ///< bytes kept for reuse
};

/// An operand of a step: a strided view of storage.
struct Operand {
  StoragePtr storage;
  DType dtype = DType::f32;
  Layout layout;
  int tile = -1;  ///< the value of the kernel's own (Step::tiles) that it is; then there may be no storage
};

/// A value, (rows, columns) without gaps, of which each workgroup of a kernel has `width` columns at hand.
struct Tiled {
  int64_t columns = 1, width = 1;
  int64_t first = 0, count = 0;  ///< the kernel's tiles that have columns of it

  bool operator==(const Tiled&) const = default;
};

/// What kernels took, by a name that says what they did to what.
struct KernelTime {
  uint64_t calls = 0;
  double seconds = 0;
};
using KernelTimes = std::map<std::string, KernelTime>;

struct ElementwiseProgram;  // backend/elementwise.h

/// One kernel to run. Outputs are contiguous, unless a program stores one value per row.
///   elementwise, rows: `program` is what it does
///   a primitive by name; with a program, that is its epilogue: register 0 is the primitive's result, the
///   other loads are the inputs after its own
///   a product with `tiles`: its result is tile 0; sums of rows and codes of its input come before it, and
///   other steps after it, each on what a workgroup has at hand
struct Step {
  std::string_view kernel;
  std::vector<Operand> inputs = {}, outputs = {};
  const Attrs* attrs = nullptr;
  const ElementwiseProgram* program = nullptr;
  std::vector<Tiled> tiles = {};
  std::vector<Step> before = {}, after = {};
};

/// Steps made ready to run again and again, with other storage in the same places. Refers to the attributes
/// and programs of the steps.
class Prepared {
 public:
  virtual ~Prepared() = default;

  std::vector<uint64_t> scratch;  ///< bytes of each storage that the steps need besides theirs
};

/// Bytes on their way to the host.
class PendingRead {
 public:
  virtual ~PendingRead() = default;
  /// Until they are here; they stay valid as long as this object.
  virtual std::span<const std::byte> wait() = 0;
};

/// A device as the layers above see it: memory, and bytes in and out of it. Calls are made by one thread at a
/// time, and take effect in the order they are made; storage of another backend is an error.
///
/// GPUs write and copy whole words: offsets and sizes of write() and copy() are multiples of 4 (a write may
/// have any size when it ends with the storage), and copy() has two different storages. read() takes any
/// offset and size.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;

  /// Contents are undefined. Throws ErrorKind::memory.
  virtual StoragePtr alloc(uint64_t bytes, std::string_view label) = 0;
  virtual void write(const StoragePtr& to, uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void read(const StoragePtr& from, uint64_t offset, std::span<std::byte> bytes) = 0;
  virtual void copy(const StoragePtr& from, uint64_t from_offset, const StoragePtr& to, uint64_t to_offset,
                    uint64_t bytes) = 0;
  /// The bytes as they are at this point of the work, to be waited for when they are needed.
  virtual std::unique_ptr<PendingRead> read_later(const StoragePtr& from, uint64_t offset, uint64_t bytes);
  virtual void synchronize() = 0;

  /// `storages`: all that the steps use, each once. `often`: they will run so often that kernels made for
  /// them alone pay. Throws ErrorKind::unsupported for a kernel or dtype that the device does not have.
  virtual std::unique_ptr<Prepared> prepare(std::span<const Step> steps, std::span<const StoragePtr> storages,
                                            bool often) = 0;

  /// Runs the steps in order, on these storages and with these values of the programs' constants. Behind the
  /// storages of prepare() come those of Prepared::scratch.
  virtual void run(Prepared& prepared, std::span<const StoragePtr> storages,
                   std::span<const double> constants) = 0;

  /// From now on kernels add what they take to `times`; null ends that. A device that cannot tell adds
  /// nothing.
  virtual void trace(KernelTimes* /*times*/) {}

  /// Storages for run(): those of prepare(), and new ones for Prepared::scratch.
  std::vector<StoragePtr> with_scratch(const Prepared& prepared, std::vector<StoragePtr> storages);
  /// Prepares, and runs once.
  void run(std::span<const Step> steps);

  /// What `work` runs, copies and reads later goes to the device as one: at its end, and before each write
  /// and read in it.
  virtual void as_one(const std::function<void()>& work) { work(); }

  virtual MemoryUse memory() const = 0;

  virtual bool has_dtype(DType) const { return true; }
  /// Whether a primitive that also has a composed form is better off with its kernel.
  virtual bool has_kernel(std::string_view) const { return true; }
  /// Rows up to which a product's kernel can go on with the steps behind it (Step::after); 0: it cannot.
  virtual int64_t joined_rows() const { return 0; }
  /// Columns that such a kernel has at hand in one place, at least.
  virtual int64_t least_tile() const { return 8; }
  /// Whether products with codes of activations are faster than those with floats.
  virtual bool prefers_codes() const { return true; }
  /// Rows from which a product of halves, summed in f32, is much faster than other ones; 0: it never is.
  virtual int64_t halves_rows() const { return 0; }
  /// Whether a product's kernel can make codes of so many activations itself, once for each of its
  /// workgroups, and that pays for so many columns.
  virtual bool encodes(int64_t /*elements*/, int64_t /*columns*/) const { return false; }
  /// Storages that one kernel can use.
  virtual int64_t most_storages() const { return 8; }
  /// Bytes of a storage that one kernel can read.
  virtual uint64_t most_bytes() const { return ~uint64_t{0}; }

  /// What a layer above keeps for this device and what goes with it: plans.
  class Kept {
   public:
    virtual ~Kept() = default;
  };
  /// The same one always, made when it is first asked for, by any thread.
  Kept& kept(const std::function<std::unique_ptr<Kept>()>& make);

 private:
  std::once_flag kept_is_made_;
  std::unique_ptr<Kept> kept_;
};

}  // namespace weft
