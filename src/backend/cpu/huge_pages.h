#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace weft::cpu {

/// Blocks of memory in huge pages, where the system has them: a thread that multiplies with weights in pages
/// of 4 KiB reads 18 GB/s, in huge ones 34, for it waits for no translations and is fetched ahead of across
/// the ends of pages. Blocks are cut out of regions, because a huge page holds several.
class HugePages {
 public:
  HugePages() = default;
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  std::byte* take(uint64_t bytes);  ///< a multiple of 64, as is the address; null where there is no memory
  void give_back(std::byte* data, uint64_t bytes);

 private:
  using Spans = std::map<std::byte*, uint64_t>;  // bytes by address

  Spans regions_;
  Spans free_;  // parts of regions that no block has; two of them never touch inside a region
};

}  // namespace weft::cpu
