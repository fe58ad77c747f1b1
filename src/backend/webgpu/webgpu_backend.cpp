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

void WebgpuBackend::run(std::span<const Step> steps) {
  webgpu::Context context(device_);
  for (const Step& step : steps) {
    const std::string_view op = step.program ? "elementwise" : step.kernel;
    const webgpu::Record record = step.program ? webgpu::elementwise : webgpu::find_kernel(op);
    for (const Operand& operand : step.inputs)
      if (operand.storage) webgpu::check_operand(op, operand);
    for (const Operand& operand : step.outputs) webgpu::check_operand(op, operand);
    record(context, step);
  }
  context.recorder->submit();
}

MemoryUse WebgpuBackend::memory() const {
  const gpu::Counters counters = device_.counters();
  return {.active = counters.bytes_active, .peak = counters.bytes_peak, .cached = counters.bytes_cached};
}

}  // namespace weft
