#pragma once

#include "backend/backend.h"
#include "backend/cpu/memory.h"
#include "base/threads.h"

namespace weft {

/// Host memory, aligned for the widest vectors.
class CpuStorage : public Storage {
 public:
  CpuStorage(uint64_t size, std::string_view label, std::shared_ptr<cpu::Memory> memory)
      : Storage(size, label), data_(memory->take(size, label)), memory_(std::move(memory)) {}
  ~CpuStorage() override { memory_->give_back(data_, size()); }
  std::byte* data() { return data_; }

 private:
  std::byte* data_;
  std::shared_ptr<cpu::Memory> memory_;
};

/// The CPU as a device: the same interface as a GPU, work done at once by a pool of threads.
class CpuBackend : public Backend {
 public:
  /// 0 threads = WEFT_THREADS, or one per core.
  explicit CpuBackend(int threads = 0) : pool_(threads) {}

  std::string name() const override;
  StoragePtr alloc(uint64_t bytes, std::string_view label) override;
  void write(const StoragePtr& to, uint64_t offset, std::span<const std::byte> bytes) override;
  void read(const StoragePtr& from, uint64_t offset, std::span<std::byte> bytes) override;
  void copy(const StoragePtr& from, uint64_t from_offset, const StoragePtr& to, uint64_t to_offset,
            uint64_t bytes) override;
  void synchronize() override {}
  std::unique_ptr<Prepared> prepare(std::span<const Step> steps, std::span<const StoragePtr> storages,
                                    bool often) override;
  using Backend::run;
  void run(Prepared& prepared, std::span<const StoragePtr> storages,
           std::span<const double> constants) override;
  void trace(KernelTimes* times) override { trace_ = times; }
  MemoryUse memory() const override { return memory_->use(); }
  bool has_kernel(std::string_view op) const override;

  ThreadPool& pool() { return pool_; }

 private:
  ThreadPool pool_;
  KernelTimes* trace_ = nullptr;
  std::shared_ptr<cpu::Memory> memory_ = std::make_shared<cpu::Memory>();
};

/// Model name of the processor.
std::string cpu_name();

}  // namespace weft
