#include "gpu/series.h"

#include <algorithm>

#include "gpu/state.h"

namespace weft::gpu {
namespace {

void check_bindings(const Device::State& device, const Kernel::State& kernel,
                    std::span<const BindingView> bindings) {
  if (kernel.device.lock().get() != &device)
    fail(ErrorKind::invalid, "[gpu] kernel '{}' belongs to another device", kernel.name);
  if (bindings.size() != kernel.accesses.size())
    fail(ErrorKind::invalid, "[gpu] kernel '{}' takes {} buffers, {} were given", kernel.name,
         kernel.accesses.size(), bindings.size());
  const auto writes = [&](size_t i) { return kernel.accesses[i] == Access::write; };
  for (size_t i = 0; i < bindings.size(); ++i) {
    const BindingView& b = bindings[i];
    if (!b.buffer)
      fail(ErrorKind::invalid, "[gpu] kernel '{}': binding {} is an empty handle", kernel.name, i);
    const Buffer::State& buffer = *b.buffer;
    if (buffer.device.get() != &device)
      fail(ErrorKind::invalid, "[gpu] kernel '{}': buffer '{}' belongs to another device", kernel.name,
           buffer.label);
    const uint64_t size = b.size ? b.size : buffer.size - std::min(b.offset, buffer.size);
    const uint64_t limit =
        std::max(buffer.size, std::min<uint64_t>(buffer.memory.capacity, 16));  // one vector
    if (size == 0 || b.offset > buffer.size || size > limit - b.offset)
      fail(ErrorKind::invalid,
           "[gpu] kernel '{}': binding {} covers {} bytes at {} of buffer '{}', which has {}", kernel.name, i,
           size, b.offset, buffer.label, buffer.size);
    if (b.offset % device.limits.storage_alignment != 0)
      fail(ErrorKind::invalid, "[gpu] kernel '{}': offset {} in buffer '{}' is not a multiple of {}",
           kernel.name, b.offset, buffer.label, device.limits.storage_alignment);
    if (size > device.limits.max_binding_size)
      fail(ErrorKind::unsupported,
           "[gpu] kernel '{}': binding of {} bytes of buffer '{}' passes the limit of {}; bind it in parts",
           kernel.name, size, buffer.label, device.limits.max_binding_size);
    for (size_t j = 0; j < i; ++j)
      if (bindings[j].buffer == b.buffer && (writes(i) || writes(j)))
        fail(ErrorKind::invalid, "[gpu] kernel '{}': buffer '{}' is bound twice and written", kernel.name,
             buffer.label);
  }
}

}  // namespace

Series::Series(std::shared_ptr<Device::State> device) : state_(std::make_shared<State>()) {
  state_->device = std::move(device);
  state_->device->limit_bind_groups();
  state_->releases = state_->device->bind_group_releases;
}

size_t Series::size() const {
  return state_->dispatches.size();
}

bool Series::is_bound() const {
  return state_->releases == state_->device->bind_group_releases;
}

void Series::add(const Kernel& kernel, std::span<const BindingView> bindings, Grid grid,
                 std::span<const std::byte> params) {
  State& s = *state_;
  if (!kernel) fail(ErrorKind::invalid, "[gpu] dispatch of an empty kernel handle");
  const Kernel::State& k = *kernel.state();
  check_bindings(*s.device, k, bindings);
  if (params.size() != k.params_size)
    fail(ErrorKind::invalid, "[gpu] kernel '{}' takes {} bytes of params, {} were given", k.name,
         k.params_size, params.size());
  const uint32_t limit = s.device->limits.max_workgroups;
  if (grid.x > limit || grid.y > limit || grid.z > limit)
    fail(ErrorKind::invalid,
         "[gpu] kernel '{}': grid ({}, {}, {}) passes the limit of {} workgroups per dimension", k.name,
         grid.x, grid.y, grid.z, limit);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  s.device->finish(k);
  s.dispatches.push_back({&k, s.device->bind_group(k, bindings), grid, params, s.bindings.size()});
  s.bindings.insert(s.bindings.end(), bindings.begin(), bindings.end());
}

}  // namespace weft::gpu
