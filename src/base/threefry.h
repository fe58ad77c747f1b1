#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace weft {

/// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): two
/// random words of a key and a counter. Adds, rotations and xors only, so that every device computes the
/// same.
constexpr std::array<uint32_t, 2> threefry(std::array<uint32_t, 2> key, std::array<uint32_t, 2> counter) {
  const uint32_t a = key[0], b = key[1], c = a ^ b ^ 0x1bd11bda;
  uint32_t x = counter[0] + a, y = counter[1] + b;
  const auto round = [&](int rotation) {
    x += y;
    y = std::rotl(y, rotation) ^ x;
  };
  const auto even = [&] { round(13), round(15), round(26), round(6); };
  const auto odd = [&] { round(17), round(29), round(16), round(24); };
  // Written out: a loop over the rounds would keep compilers from computing several elements at a time.
  even(), x += b, y += c + 1;
  odd(), x += c, y += a + 2;
  even(), x += a, y += b + 3;
  odd(), x += b, y += c + 4;
  even(), x += c, y += a + 5;
  return {x, y};
}

/// Element i of the random bits of a key.
constexpr uint32_t random_word(std::array<uint32_t, 2> key, uint64_t i) {
  const std::array<uint32_t, 2> words =
      threefry(key, {static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(i)});
  return words[0] ^ words[1];
}

}  // namespace weft
