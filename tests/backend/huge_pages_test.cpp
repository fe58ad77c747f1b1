#include "backend/cpu/huge_pages.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace weft;

TEST_SUITE("base: huge pages") {
  TEST_CASE("blocks side by side become one again, in any order") {
    constexpr uint64_t kBlock = 1 << 16;
    std::vector<size_t> order = {0, 1, 2};
    do {
      cpu::HugePages pages;
      std::byte* blocks[3];
      for (std::byte*& block : blocks) block = pages.take(kBlock);
      std::byte* last = pages.take(kBlock);  // holds the region
      for (const size_t i : order) pages.give_back(blocks[i], kBlock);
      std::byte* all = pages.take(3 * kBlock);
      CHECK(all == blocks[0]);
      pages.give_back(all, 3 * kBlock);
      pages.give_back(last, kBlock);
    } while (std::ranges::next_permutation(order).found);
  }

  TEST_CASE("blocks keep what is written into them") {
    struct Block {
      std::byte* data;
      uint64_t bytes;
      std::byte mark;
    };
    cpu::HugePages pages;
    std::vector<Block> blocks;
    std::mt19937 random(1);
    const auto give_back = [&](size_t i) {
      const auto [data, bytes, mark] = blocks[i];
      CHECK(data[0] == mark);
      CHECK(data[bytes - 1] == mark);
      pages.give_back(data, bytes);
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(i));
    };
    for (int step = 0; step < 500; ++step) {
      const uint64_t bytes = (1 + random() % 64) << (16 + random() % 5);  // up to a whole region
      std::byte* data = pages.take(bytes);
      REQUIRE(data != nullptr);
      CHECK(reinterpret_cast<uintptr_t>(data) % 64 == 0);
      blocks.push_back({data, bytes, static_cast<std::byte>(step)});
      data[0] = data[bytes - 1] = blocks.back().mark;
      while (blocks.size() > 1 && random() % 20 < blocks.size()) give_back(random() % blocks.size());
    }
    while (!blocks.empty()) give_back(blocks.size() - 1);
  }
}
