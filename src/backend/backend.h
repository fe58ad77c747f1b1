#pragma once

#include <cstddef>
#include <cstdint>
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
};

struct ElementwiseProgram;  // backend/elementwise.h

/// One kernel to run: a primitive by name, or a fused chain of elementwise ops (`program`). Outputs are
/// contiguous.
struct Step {
  std::string_view kernel;
  std::vector<Operand> inputs, outputs;
  const Attrs* attrs = nullptr;
  const ElementwiseProgram* program = nullptr;
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
  virtual void synchronize() = 0;

  /// Runs the steps in order. Throws ErrorKind::unsupported for a kernel or dtype that the device does not
  /// have.
  virtual void run(std::span<const Step> steps) = 0;
  virtual MemoryUse memory() const = 0;
};

}  // namespace weft
