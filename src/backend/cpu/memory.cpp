#include "backend/cpu/memory.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/error.h"

namespace weft::cpu {
namespace {

constexpr uint64_t kSmall = 1 << 16;     // below: malloc is as good
constexpr uint64_t kMinKept = 64 << 20;  // bytes that are always worth keeping

/// Eight sizes per power of two: at most 12.5 % is lost, and blocks of similar arrays are exchangeable.
uint64_t capacity_for(uint64_t bytes) {
  if (bytes < kSmall) return bytes;
  const uint64_t unit = std::bit_floor(bytes) / 8;
  return (bytes + unit - 1) & ~(unit - 1);
}

constexpr std::align_val_t kAlignment{64};

}  // namespace

std::byte* Memory::from_system(uint64_t capacity) {
  if (capacity >= kSmall) return pages_.take(capacity);
  return static_cast<std::byte*>(::operator new(capacity, kAlignment, std::nothrow));
}

Memory::~Memory() {
  while (!kept_.empty()) drop(kept_.begin());
}

void Memory::drop(Blocks::iterator block) {
  const auto& [capacity, kept] = *block;
  pages_.give_back(kept.data, capacity);
  use_.cached -= capacity;
  kept_.erase(block);
}

std::byte* Memory::take(uint64_t bytes, std::string_view label) {
  const uint64_t capacity = capacity_for(bytes);
  const std::lock_guard lock(mutex_);
  std::byte* data = nullptr;
  if (const auto kept = kept_.find(capacity); kept != kept_.end()) {
    data = kept->second.data;
    kept_.erase(kept);
    use_.cached -= capacity;
  } else if (data = from_system(capacity); !data) {
    while (!kept_.empty()) drop(kept_.begin());
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
  if (capacity < kSmall) return ::operator delete(data, kAlignment);
  // What was not used for longest makes room: sizes that are no longer asked for must not stay.
  while (!kept_.empty() && use_.cached + capacity > std::max(kMinKept, use_.peak))
    drop(std::ranges::min_element(kept_, {}, [](const auto& block) { return block.second.since; }));
  kept_.emplace(capacity, Kept{data, ++given_back_});
  use_.cached += capacity;
}

MemoryUse Memory::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace weft::cpu
