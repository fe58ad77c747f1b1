#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#include "base/error.h"

namespace weft::cpu {
namespace {

constexpr uint64_t kSmall = 1 << 16;     // below: malloc is as good
constexpr uint64_t kHuge = 4 << 20;      // from here on the pages are huge ones, where the system has them
constexpr uint64_t kMinKept = 64 << 20;  // bytes that are always worth keeping

/// Eight sizes per power of two: at most 12.5 % is lost, and blocks of similar arrays are exchangeable.
uint64_t capacity_for(uint64_t bytes) {
  if (bytes < kSmall) return bytes;
  const uint64_t unit = std::bit_floor(bytes) / 8;
  return bytes + (unit - bytes % unit) % unit;
}

std::align_val_t alignment_of(uint64_t capacity) {
  return std::align_val_t(capacity < kHuge ? 64 : 2 << 20);
}

std::byte* from_system(uint64_t capacity) {
  void* data = ::operator new(capacity, alignment_of(capacity), std::nothrow);
#ifdef MADV_HUGEPAGE
  if (data && capacity >= kHuge)
    madvise(data, capacity, MADV_HUGEPAGE);  // a wish; no harm if it is not heard
#endif
  return static_cast<std::byte*>(data);
}

void to_system(std::byte* data, uint64_t capacity) {
  ::operator delete(data, alignment_of(capacity));
}

}  // namespace

Memory::~Memory() {
  drop_kept();
}

void Memory::drop_kept() {
  for (const auto& [capacity, data] : kept_) to_system(data, capacity);
  kept_.clear();
  use_.cached = 0;
}

std::byte* Memory::take(uint64_t bytes, std::string_view label) {
  const uint64_t capacity = capacity_for(bytes);
  const std::lock_guard lock(mutex_);
  std::byte* data = nullptr;
  if (const auto kept = kept_.find(capacity); kept != kept_.end()) {
    data = kept->second;
    kept_.erase(kept);
    use_.cached -= capacity;
  } else if (data = from_system(capacity); !data) {
    drop_kept();
    data = from_system(capacity);
  }
  if (!data) fail(ErrorKind::memory, "[cpu] no memory for '{}' of {} bytes", label, bytes);
  use_.active += capacity;
  use_.peak = std::max(use_.peak, use_.active);
  return data;
}

void Memory::give_back(std::byte* data, uint64_t bytes) {
  const uint64_t capacity = capacity_for(bytes);
  const std::lock_guard lock(mutex_);
  use_.active -= capacity;
  if (capacity < kSmall || use_.cached + capacity > std::max(kMinKept, use_.peak))
    return to_system(data, capacity);
  kept_.emplace(capacity, data);
  use_.cached += capacity;
}

MemoryUse Memory::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace weft::cpu
