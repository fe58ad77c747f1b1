#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/webgpu/tuning.h"
#include "gpu/recorder.h"

/// Steps as a list of dispatches that can be submitted again, also with other buffers.
namespace weft::webgpu {

/// A number of a dispatch that is a constant of the plan.
struct ConstantWord {
  size_t word = 0;
  int constant = 0;
  DType dtype = DType::f32;
};

/// The word that stands for a constant in a kernel.
uint32_t constant_word(DType dtype, double value);

struct Tape : Prepared {
  struct Part {
    int buffer = -1;                ///< index of those given to on(); -1 = always the same one:
    gpu::Buffer fixed;              ///< a table
    uint64_t offset = 0, size = 0;  ///< size 0 = all of it
  };
  struct Dispatch {
    gpu::Kernel kernel = {};
    std::vector<Part> bindings = {};
    gpu::Grid grid = {};
    std::vector<uint32_t> numbers;  ///< Params, or the contents of `table`
    gpu::Buffer table = {};         ///< where there are more numbers than Params holds
    std::vector<ConstantWord> constants = {};
  };
  std::vector<Dispatch> dispatches;

  /// Other values of the plan's constants from now on. True where they are in tables: those are to be written
  /// before the replay, and behind earlier ones.
  bool set(std::span<const double> constants);
  void write_tables(gpu::Device& device) const;

  /// The dispatches on `buffers`: those that the steps were recorded with, or others in their places; then
  /// scratch. To be recorded before the next call.
  const gpu::Series& on(const gpu::Device& device, std::span<const gpu::Buffer* const> buffers);

 private:
  /// A loop meets the same few sets of buffers again.
  struct Bound {
    std::vector<uint64_t> key;
    gpu::Series series;
  };
  std::vector<Bound> bound_;  ///< the last one used at the end
};

class SmallKernels;  // small.h

/// Where steps are recorded: kernels see real buffers, the tape remembers which place each has.
class Context {
 public:
  Context(gpu::Device& on, Tape& tape, std::span<const gpu::Buffer* const> buffers);

  gpu::Device& device;
  bool software;  ///< invocations are SIMD lanes of a CPU: barriers and long kernels cost more than they gain

  /// Memory that the kernels of one step pass on to each other, of that size or larger. The next step uses it
  /// again.
  gpu::Buffer scratch(int64_t words, std::string_view label);
  void next_step() { used_ = kept_, kept_ = 0, ++step_; }
  /// But not what this one was given.
  void keep_scratch() { kept_ = used_; }

  std::span<const Step> behind = {};  ///< steps that come after the one that is recorded

  /// What splits of attention left in the place of codes: the product behind it puts them together.
  struct Parts {
    StoragePtr codes;
    gpu::Buffer left;
    int64_t heads = 0, columns = 0, splits = 0;
    int64_t lanes = 0;  ///< that look at a head's splits
    Operand sinks;      ///< perhaps without storage
  };
  std::optional<Parts> parts;
  /// Where these codes are to be put together from them; else null.
  const Parts* parts_of(const StoragePtr& codes) const {
    return parts && parts->codes == codes ? &*parts : nullptr;
  }

  /// Whether a kernel of so many elements is to be one that others can be put together with.
  bool is_small(int64_t elements) const {
    constexpr int64_t kMost = 8192;  // a row of activations of the largest models
    return small && elements <= kMost;
  }
  /// Whether rows of such a kernel are so few that most invocations had nothing to do, if each took one.
  bool leaves_idle(int64_t rows, int64_t length) const {
    return is_small(rows * length) && !software && 16 * rows <= length;
  }
  SmallKernels* small = nullptr;  ///< where those go; null: nowhere

  /// How a kernel is to be run.
  Way choose(Question question);
  const Tuning* tuning = nullptr;
  std::vector<Asked> asked;

  void dispatch(const gpu::Kernel& kernel, std::span<const gpu::Binding> bindings, gpu::Grid grid,
                Tape::Dispatch numbers);

  /// Which of the buffers given to replay() this one stands for; -1: none.
  int place_of(const gpu::Buffer& buffer) const;

 private:
  Tape& tape_;
  std::unordered_map<const gpu::Buffer::State*, int> places_;
  size_t given_ = 0, used_ = 0, kept_ = 0;  ///< storages; scratch of this step, and what is left to the next
  size_t step_ = ~size_t{0};                ///< the first next_step() begins with 0
  std::vector<gpu::Buffer> slots_, held_;   ///< scratch; all that kernels were recorded with
};

}  // namespace weft::webgpu
