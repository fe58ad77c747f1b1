#pragma once

#include <optional>

#include "backend/backend.h"
#include "backend/webgpu/tuning.h"
#include "gpu/recorder.h"

namespace weft {
namespace webgpu {
struct Tape;
}

class WebgpuStorage final : public Storage {
 public:
  explicit WebgpuStorage(gpu::Buffer buffer)
      : Storage(buffer.size(), buffer.label()), buffer_(std::move(buffer)) {}
  const gpu::Buffer& buffer() const { return buffer_; }

 private:
  gpu::Buffer buffer_;
};

/// A GPU behind any WebGPU library.
class WebgpuBackend : public Backend {
 public:
  explicit WebgpuBackend(gpu::Device device);
  /// Kernels as for another kind of adapter, for tests.
  WebgpuBackend(gpu::Device device, bool software) : device_(std::move(device)), software_(software) {}

  std::string name() const override { return device_.name(); }
  StoragePtr alloc(uint64_t bytes, std::string_view label) override;
  void write(const StoragePtr& to, uint64_t offset, std::span<const std::byte> bytes) override;
  void read(const StoragePtr& from, uint64_t offset, std::span<std::byte> bytes) override;
  void copy(const StoragePtr& from, uint64_t from_offset, const StoragePtr& to, uint64_t to_offset,
            uint64_t bytes) override;
  std::unique_ptr<PendingRead> read_later(const StoragePtr& from, uint64_t offset, uint64_t bytes) override;
  void synchronize() override;
  std::unique_ptr<Prepared> prepare(std::span<const Step> steps, std::span<const StoragePtr> storages,
                                    bool often) override;
  using Backend::run;
  void run(Prepared& prepared, std::span<const StoragePtr> storages,
           std::span<const double> constants) override;
  void as_one(const std::function<void()>& work) override;
  void trace(KernelTimes* times) override;
  MemoryUse memory() const override;
  bool has_dtype(DType dtype) const override { return dtype != DType::i64; }  // WGSL has none
  bool has_kernel(std::string_view op) const override;
  /// Software adapters take long to compile a kernel; one token at a time is what comes often.
  int64_t joined_rows() const override { return software_ ? 1 : 8; }
  int64_t least_tile() const override;
  bool prefers_codes() const override { return !software_; }
  bool encodes(int64_t elements, int64_t columns) const override;
  int64_t halves_rows() const override;
  int64_t most_storages() const override { return device_.limits().max_storage_buffers; }
  uint64_t most_bytes() const override { return device_.limits().max_binding_size; }

  gpu::Device& device() { return device_; }
  webgpu::Tuning& tuning() { return tuning_; }
  /// What the steps asked that were prepared last.
  const std::vector<webgpu::Asked>& asked() const { return asked_; }

 private:
  void submit();  ///< what as_one() has so far
  void measure(webgpu::Tape& tape, std::span<const gpu::Buffer* const> buffers);

  gpu::Device device_;
  bool software_;
  bool tunes_ = false;  ///< measures what tuning_ does not know
  webgpu::Tuning tuning_;
  std::vector<webgpu::Asked> asked_;
  std::optional<gpu::Recorder> recorder_;  ///< inside as_one()
  KernelTimes* times_ = nullptr;           ///< of trace()
};

}  // namespace weft
