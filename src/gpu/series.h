#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "gpu/device.h"

namespace weft::gpu {

/// Workgroups of a dispatch. A grid with a zero does nothing.
struct Grid {
  uint32_t x = 1, y = 1, z = 1;
};

/// Dispatches that are checked and bound to memory once, and recorded as often as wanted. Their kernels,
/// buffers and params have to be there as long as it is used.
class Series {
 public:
  explicit Series(std::shared_ptr<Device::State> device);

  void add(const Kernel& kernel, std::span<const BindingView> bindings, Grid grid,
           std::span<const std::byte> params = {});
  size_t size() const;  ///< dispatches; those of grids with a zero are not among them

  /// False when the device dropped bind groups since: all has to be added anew.
  bool is_bound() const;

  struct State;
  const State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace weft::gpu
