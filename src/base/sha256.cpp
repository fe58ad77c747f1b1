#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace weft {
namespace {

// Of the cube roots of the first 64 primes, the first 32 bits behind the point.
constexpr std::array<uint32_t, 64> kRoots = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const std::byte* p) {
  return std::to_integer<uint32_t>(p[0]) << 24 | std::to_integer<uint32_t>(p[1]) << 16 |
         std::to_integer<uint32_t>(p[2]) << 8 | std::to_integer<uint32_t>(p[3]);
}

}  // namespace

void Sha256::mix(const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    const uint32_t s0 = std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3;
    const uint32_t s1 = std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRoots[i] + w[i];
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += mixed[i];
}

void Sha256::add(std::span<const std::byte> bytes) {
  const size_t used = size_ % 64;
  size_ += bytes.size();
  const size_t first = std::min(bytes.size(), 64 - used);
  if (used > 0 || first < 64) {
    std::copy_n(bytes.begin(), first, waiting_.begin() + static_cast<std::ptrdiff_t>(used));
    if (used + first < 64) return;
    mix(waiting_.data());
    bytes = bytes.subspan(first);
  }
  for (; bytes.size() >= 64; bytes = bytes.subspan(64)) mix(bytes.data());
  std::copy(bytes.begin(), bytes.end(), waiting_.begin());
}

std::string Sha256::finish() {
  const uint64_t bits = 8 * size_;
  std::vector<std::byte> end((size_ % 64 < 56 ? 56 : 120) - size_ % 64);
  end[0] = std::byte{0x80};
  for (int shift = 56; shift >= 0; shift -= 8) end.push_back(static_cast<std::byte>(bits >> shift));
  add(end);
  std::string digits;
  for (const uint32_t word : state_) digits += fmt::format("{:08x}", word);
  return digits;
}

std::string sha256_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::vector<char> block(1 << 16);
  Sha256 sum;
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0)
    sum.add(std::as_bytes(std::span(block).first(static_cast<size_t>(in.gcount()))));
  if (!in.eof()) fail(ErrorKind::io, "[io] cannot read {}", file.string());
  return sum.finish();
}

}  // namespace weft
