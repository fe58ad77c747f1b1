#pragma once

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gpu/series.h"

namespace weft::gpu {

/// Work that was submitted.
class Fence {
 public:
  bool done() const;
  /// Until the work is done. Throws what went wrong: ErrorKind::lost, ErrorKind::timeout.
  void wait() const;

 private:
  friend class Recorder;
  struct State;
  explicit Fence(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Bytes on their way back to the host.
class Readback {
 public:
  bool done() const;
  /// Until the bytes are here; they stay valid as long as this object.
  std::span<const std::byte> wait();

 private:
  friend class Recorder;
  struct State;
  explicit Readback(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// What a recorder measures.
enum class Trace {
  nothing,
  dispatches,  ///< each in a pass of its own, which takes some microseconds more
  passes,      ///< all dispatches between two copies
};
/// GPU time of one dispatch, or of a pass that begins with this kernel.
struct Timing {
  std::string kernel;
  double microseconds = 0;
};

/// Records dispatches and copies, then submits them as one. Dispatches share one pass until a copy comes
/// between. Work runs in the order recorded, each step sees what the steps before it wrote. A recorder that
/// is dropped without a submit leaves no trace.
class Recorder {
 public:
  /// `trace`: anything but Trace::nothing needs Features::timestamps.
  explicit Recorder(const Device& device, std::string_view label = "work", Trace trace = Trace::nothing);
  ~Recorder();
  Recorder(Recorder&&) noexcept;
  Recorder& operator=(Recorder&&) = delete;

  /// `count` dispatches from `first` on.
  void dispatch(const Series& series, size_t first, size_t count);
  void dispatch(const Kernel& kernel, std::span<const Binding> bindings, Grid grid,
                std::span<const std::byte> params = {});

  void dispatch(const Kernel& kernel, std::initializer_list<Binding> bindings, Grid grid) {
    dispatch(kernel, std::span(bindings.begin(), bindings.size()), grid);
  }
  template <typename Params>
  void dispatch(const Kernel& kernel, std::initializer_list<Binding> bindings, Grid grid,
                const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params>);
    dispatch(kernel, std::span(bindings.begin(), bindings.size()), grid,
             std::as_bytes(std::span(&params, 1)));
  }

  /// Sizes and offsets are multiples of 4; a size may be ragged where both ranges end with their buffers.
  void copy(const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset, uint64_t bytes);
  void clear(const Buffer& buffer, uint64_t offset, uint64_t bytes);

  /// The bytes as they will be at this point of the work.
  Readback read(const Buffer& buffer, uint64_t offset, uint64_t bytes);

  bool empty() const;  ///< nothing was recorded
  Fence submit();

  /// After submit() of a traced recorder: waits, and returns one row for each dispatch or pass, in order.
  std::vector<Timing> timings();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::gpu
