#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace weft::gpu {

/// Device memory. Copies are handles on the same memory, which goes back to the device's pool with the last
/// one.
class Buffer {
 public:
  Buffer() = default;
  uint64_t size() const;  ///< bytes, as asked for
  const std::string& label() const;
  uint64_t memory() const;  ///< the number of its memory, which no other memory ever has
  explicit operator bool() const { return state_ != nullptr; }

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }
  explicit Buffer(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

/// Kernels that read a buffer through a texture (wgsl.h) find so many vectors of four words in a row of it.
/// Every adapter has textures of 8192 rows.
inline constexpr uint32_t kImageWidth = 4096;
inline constexpr uint64_t kImageRow = uint64_t{kImageWidth} * 16;  // bytes
inline constexpr uint64_t kMostImageBytes = 8192 * kImageRow;

/// A part of a buffer, bound to a kernel while somebody else holds it. Size 0 = to the end.
struct BindingView {
  Buffer::State* buffer = nullptr;
  uint64_t offset = 0, size = 0;
};

/// A part of a buffer, bound to a kernel. Offsets are multiples of Limits::storage_alignment.
struct Binding {
  Buffer buffer;
  uint64_t offset = 0;
  uint64_t size = 0;  ///< 0 = to the end

  Binding(Buffer whole) : buffer(std::move(whole)) {}  // NOLINT: a buffer is a binding of all of it
  Binding(Buffer part, uint64_t part_offset, uint64_t part_size)
      : buffer(std::move(part)), offset(part_offset), size(part_size) {}
  BindingView view() const { return {buffer.state().get(), offset, size}; }
};

}  // namespace weft::gpu
