#include "backend/webgpu/webgpu_backend.h"

#include "backend/webgpu/builder.h"
#include "base/error.h"
#include "gpu/recorder.h"

namespace weft {
namespace {

const gpu::Buffer& own(const StoragePtr& storage, std::string_view what) {
  const auto* webgpu = dynamic_cast<const WebgpuStorage*>(storage.get());
  if (!webgpu) fail(ErrorKind::invalid, "[webgpu] {} of storage that is not a GPU's", what);
  return webgpu->buffer();
}

std::vector<gpu::Buffer> buffers_of(std::span<const StoragePtr> storages) {
  std::vector<gpu::Buffer> buffers;
  for (const StoragePtr& storage : storages) buffers.push_back(own(storage, "run"));
  return buffers;
}

}  // namespace

StoragePtr WebgpuBackend::alloc(uint64_t bytes, std::string_view label) {
  return std::make_shared<WebgpuStorage>(device_.alloc(bytes, label));
}

void WebgpuBackend::write(const StoragePtr& to, uint64_t offset, std::span<const std::byte> bytes) {
  device_.write(own(to, "write"), offset, bytes);
}

void WebgpuBackend::read(const StoragePtr& from, uint64_t offset, std::span<std::byte> bytes) {
  device_.read(own(from, "read"), offset, bytes);
}

void WebgpuBackend::copy(const StoragePtr& from, uint64_t from_offset, const StoragePtr& to,
                         uint64_t to_offset, uint64_t bytes) {
  gpu::Recorder recorder(device_, "copy");
  recorder.copy(own(from, "copy"), from_offset, own(to, "copy"), to_offset, bytes);
  recorder.submit();
}

std::unique_ptr<Prepared> WebgpuBackend::prepare(std::span<const Step> steps,
                                                 std::span<const StoragePtr> storages) {
  auto tape = std::make_unique<webgpu::Tape>();
  webgpu::Context context(device_, *tape, buffers_of(storages));
  context.software = software_;
  for (const Step& step : steps) webgpu::record(context, step);
  return tape;
}

void WebgpuBackend::run(Prepared& prepared, std::span<const StoragePtr> storages,
                        std::span<const double> constants) {
  dynamic_cast<webgpu::Tape&>(prepared).replay(device_, buffers_of(storages), constants);
}

MemoryUse WebgpuBackend::memory() const {
  const gpu::Counters counters = device_.counters();
  return {.active = counters.bytes_active, .peak = counters.bytes_peak, .cached = counters.bytes_cached};
}

bool WebgpuBackend::has_kernel(std::string_view op) const {
  // Software adapters take a second to compile a kernel of tiles, and run products without barriers faster.
  const bool slow = software_ && op.find("attention") != op.npos;
  return webgpu::has_kernel(op) && !slow;
}

}  // namespace weft
