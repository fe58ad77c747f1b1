#include "io/inflate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace weft {
namespace {

constexpr size_t kWindow = 1 << 15;  // how far back a copy reaches
constexpr int kMaxBits = 15;         // of a code

[[noreturn]] void damaged(std::string_view what) {
  fail(ErrorKind::io, "[inflate] the data is damaged: {}", what);
}

class Bits {
 public:
  explicit Bits(std::span<const std::byte> bytes) : rest_(bytes) {}

  uint32_t take(uint32_t count) {
    fill(count);
    if (have_ < count) damaged("it ends too early");
    const auto value = static_cast<uint32_t>(bits_ & ((uint64_t{1} << count) - 1));
    drop(count);
    return value;
  }
  /// The next bits, zeros behind the end.
  uint32_t peek(uint32_t count) {
    fill(count);
    return static_cast<uint32_t>(bits_ & ((uint64_t{1} << count) - 1));
  }
  void drop(uint32_t count) {
    if (have_ < count) damaged("it ends too early");
    bits_ >>= count;
    have_ -= count;
  }
  void to_byte() { drop(have_ % 8); }

 private:
  void fill(uint32_t count) {
    for (; have_ < count && !rest_.empty(); have_ += 8, rest_ = rest_.subspan(1))
      bits_ |= std::to_integer<uint64_t>(rest_[0]) << have_;
  }

  std::span<const std::byte> rest_;
  uint64_t bits_ = 0;
  uint32_t have_ = 0;
};

/// A prefix code, given by the lengths of its words. Words of the same length follow each other.
class Code {
 public:
  explicit Code(std::span<const uint8_t> lengths) : table_(size_t{1} << kMaxBits) {
    std::array<uint32_t, kMaxBits + 2> next{};
    for (const uint8_t length : lengths)
      if (length > 0) ++next[length + 1u];
    for (size_t i = 1; i < next.size(); ++i) next[i] = (next[i] + next[i - 1]) << 1;
    for (size_t symbol = 0; symbol < lengths.size(); ++symbol)
      if (lengths[symbol] > 0) put(next[lengths[symbol]]++, lengths[symbol], static_cast<uint16_t>(symbol));
  }

  uint32_t read(Bits& bits) const {
    const Entry entry = table_[bits.peek(kMaxBits)];
    if (entry.length == 0) damaged("a code that means nothing");
    bits.drop(entry.length);
    return entry.symbol;
  }

 private:
  struct Entry {
    uint16_t symbol = 0;
    uint8_t length = 0;
  };

  /// Words come with their first bit lowest: every number that ends with the word finds it.
  void put(uint32_t word, int length, uint16_t symbol) {
    if (word >= 1u << length) damaged("too many codes");
    uint32_t reversed = 0;
    for (int i = 0; i < length; ++i) reversed |= (word >> i & 1) << (length - 1 - i);
    for (size_t at = reversed; at < table_.size(); at += size_t{1} << length)
      table_[at] = {symbol, static_cast<uint8_t>(length)};
  }

  std::vector<Entry> table_;
};

/// What was written last, for copies; full halves go to the sink.
class Window {
 public:
  explicit Window(const std::function<void(std::span<const std::byte>)>& sink) : sink_(sink) {
    bytes_.reserve(2 * kWindow);
  }

  void put(std::byte value) {
    if (bytes_.size() == 2 * kWindow) flush(kWindow);
    bytes_.push_back(value);
  }
  void copy(size_t distance, size_t length) {
    if (distance > bytes_.size()) damaged("a copy from before the beginning");
    while (length-- > 0) put(bytes_[bytes_.size() - distance]);
  }
  void finish() { flush(0); }

 private:
  void flush(size_t keep) {
    const size_t end = bytes_.size();
    sink_(std::span(bytes_).subspan(sent_, end - sent_));
    const size_t kept = std::min(keep, end);
    bytes_.erase(bytes_.begin(), bytes_.end() - static_cast<std::ptrdiff_t>(kept));
    sent_ = kept;
  }

  const std::function<void(std::span<const std::byte>)>& sink_;
  std::vector<std::byte> bytes_;
  size_t sent_ = 0;  // bytes at the front that the sink has already
};

void stored_block(Bits& bits, Window& out) {
  bits.to_byte();
  const uint32_t size = bits.take(16), complement = bits.take(16);
  if (size != (~complement & 0xffff)) damaged("a length that contradicts itself");
  for (uint32_t i = 0; i < size; ++i) out.put(static_cast<std::byte>(bits.take(8)));
}

void coded_block(Bits& bits, const Code& symbols, const Code& distances, Window& out) {
  constexpr std::array<uint16_t, 29> kLengths = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                                 15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                                 67, 83, 99, 115, 131, 163, 195, 227, 258};
  constexpr std::array<uint16_t, 30> kDistances = {
      1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
      193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
  for (;;) {
    const uint32_t symbol = symbols.read(bits);
    if (symbol < 256) {
      out.put(static_cast<std::byte>(symbol));
      continue;
    }
    if (symbol == 256) return;
    const uint32_t l = symbol - 257;
    if (l >= kLengths.size()) damaged("a length that does not exist");
    const uint32_t more = l < 8 || l == 28 ? 0 : l / 4 - 1;
    const uint32_t length = kLengths[l] + bits.take(more);
    const uint32_t d = distances.read(bits);
    if (d >= kDistances.size()) damaged("a distance that does not exist");
    out.copy(kDistances[d] + bits.take(d < 4 ? 0 : d / 2 - 1), length);
  }
}

void fixed_block(Bits& bits, Window& out) {
  std::array<uint8_t, 288> lengths;
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  std::array<uint8_t, 30> distances;
  distances.fill(5);
  coded_block(bits, Code(lengths), Code(distances), out);
}

void dynamic_block(Bits& bits, Window& out) {
  constexpr std::array<uint8_t, 19> kOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                              11, 4,  12, 3, 13, 2, 14, 1, 15};
  const uint32_t symbols = bits.take(5) + 257, distances = bits.take(5) + 1, used = bits.take(4) + 4;
  std::array<uint8_t, 19> of_lengths{};
  for (uint32_t i = 0; i < used; ++i) of_lengths[kOrder[i]] = static_cast<uint8_t>(bits.take(3));
  const Code code(of_lengths);
  std::vector<uint8_t> lengths;
  while (lengths.size() < symbols + distances) {
    const uint32_t symbol = code.read(bits);
    if (symbol < 16) {
      lengths.push_back(static_cast<uint8_t>(symbol));
      continue;
    }
    if (symbol == 16 && lengths.empty()) damaged("a repetition of nothing");
    const uint32_t repeat = symbol == 16   ? 3 + bits.take(2)
                            : symbol == 17 ? 3 + bits.take(3)
                                           : 11 + bits.take(7);
    lengths.insert(lengths.end(), repeat, symbol == 16 ? lengths.back() : uint8_t{0});
  }
  if (lengths.size() > symbols + distances) damaged("too many lengths");
  coded_block(bits, Code(std::span(lengths).first(symbols)), Code(std::span(lengths).subspan(symbols)), out);
}

}  // namespace

void inflate(std::span<const std::byte> stream, const std::function<void(std::span<const std::byte>)>& sink) {
  Bits bits(stream);
  Window out(sink);
  for (bool last = false; !last;) {
    last = bits.take(1) != 0;
    const uint32_t kind = bits.take(2);
    if (kind == 0)
      stored_block(bits, out);
    else if (kind == 1)
      fixed_block(bits, out);
    else if (kind == 2)
      dynamic_block(bits, out);
    else
      damaged("a block of an unknown kind");
  }
  out.finish();
}

}  // namespace weft
