#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string_view>

#include "backend/backend.h"
#include "backend/cpu/huge_pages.h"

namespace weft::cpu {

/// Where the CPU's storage comes from. Large blocks are kept when they are given back: the system hands out
/// fresh pages one by one and zeroed, which costs more than most kernels that write them.
class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Aligned to 64 bytes: one cache line, one AVX-512 vector. Throws ErrorKind::memory.
  std::byte* take(uint64_t bytes, std::string_view label);
  void give_back(std::byte* data, uint64_t bytes);  ///< the bytes that were asked for
  MemoryUse use() const;

 private:
  struct Kept {
    std::byte* data = nullptr;
    uint64_t since = 0;  // which giving back it was
  };
  using Blocks = std::multimap<uint64_t, Kept>;  // by capacity

  std::byte* from_system(uint64_t capacity);
  void drop(Blocks::iterator block);

  mutable std::mutex mutex_;
  MemoryUse use_;
  HugePages pages_;  // of all blocks that are not small
  Blocks kept_;
  uint64_t given_back_ = 0;  // blocks so far
};

}  // namespace weft::cpu
