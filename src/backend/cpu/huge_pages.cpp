#include "backend/cpu/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <new>

namespace weft::cpu {
namespace {

constexpr uint64_t kPage = 2 << 20;
// Above 32 MiB malloc always maps pages that nobody used yet. Those of its heap stay as small as they are.
constexpr uint64_t kRegion = 64 << 20;

}  // namespace

std::byte* HugePages::take(uint64_t bytes) {
  auto found = std::ranges::find_if(free_, [&](const auto& span) { return span.second >= bytes; });
  if (found == free_.end()) {
    const uint64_t size = std::max(kRegion, bytes);
    void* region = ::operator new(size, std::align_val_t(kPage), std::nothrow);
    if (!region) return nullptr;
#ifdef MADV_HUGEPAGE
    madvise(region, size, MADV_HUGEPAGE);  // a wish; no harm if it is not heard
#endif
    regions_.emplace(static_cast<std::byte*>(region), size);
    found = free_.emplace(static_cast<std::byte*>(region), size).first;
  }
  const auto [data, size] = *found;
  free_.erase(found);
  if (size > bytes) free_.emplace(data + bytes, size - bytes);
  return data;
}

void HugePages::give_back(std::byte* data, uint64_t bytes) {
  const auto region = std::prev(regions_.upper_bound(data));
  const auto join_next = [&](Spans::iterator span) {
    const auto next = std::next(span);
    if (next == free_.end() || next->first != span->first + span->second || regions_.contains(next->first))
      return;
    span->second += next->second;
    free_.erase(next);
  };
  const auto span = free_.emplace(data, bytes).first;
  join_next(span);
  if (span != free_.begin()) join_next(std::prev(span));
  const auto first = free_.find(region->first);
  if (first == free_.end() || first->second < region->second) return;
  ::operator delete(region->first, std::align_val_t(kPage));
  free_.erase(first);
  regions_.erase(region);
}

}  // namespace weft::cpu
