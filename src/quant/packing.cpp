#include "quant/packing.h"

#include <cstring>

#include "base/error.h"

namespace weft::quant {
namespace {

struct Unit {
  int64_t elements, words;
};
Unit unit_of(Scales scales) {
  switch (scales) {
    case Scales::half:
    case Scales::bfloat:
      return {64, 1};
    case Scales::halves:
    case Scales::parts:
      return {32, 1};
    case Scales::sixes:
      return {256, 4};
    default:
      return {256, 5};
  }
}

/// `bits` bits of four codes, from bit `from` on.
uint32_t piece_mask(uint32_t bits, uint32_t from) {
  return (((1u << bits) - 1) << from) * 0x01010101u;
}

/// Scale and minimum of group g go into bytes g / 2 of three words: the low 6 bits of words 0 and 1 are those
/// of even groups, of word 2 scales of odd ones, whose minima are above them, 2 bits in each word. So a mask
/// gives four of them at once.
template <typename Word>
void put_six(uint32_t scale, uint32_t min, uint32_t g, const Word& word) {
  const uint32_t shift = g / 2 * 8;
  word(g % 2 * 2) |= scale << shift;
  if (g % 2 == 0)
    word(1) |= min << shift;
  else
    for (int64_t i = 0; i < 3; ++i) word(i) |= (min >> 2 * i & 3) << (shift + 6);
}
template <typename Word>
uint32_t six_at(uint32_t g, const Word& word) {
  const uint32_t shift = g / 2 * 8, scale = word(g % 2 * 2) >> shift & 63;
  if (g % 2 == 0) return scale | (word(1) >> shift & 63) << 8;
  uint32_t min = 0;
  for (int64_t i = 0; i < 3; ++i) min |= (word(i) >> (shift + 6) & 3) << 2 * i;
  return scale | min << 8;
}

/// The scales of the block that starts at `element` of its row.
void put_scales(const Packing& p, const Unpacked& block, int64_t row, int64_t element, uint32_t* words) {
  uint32_t* to = words + p.at(p.scales, row, element);
  const auto word = [&](int64_t i) -> uint32_t& { return to[i * p.together]; };
  switch (coding(p.type).scales) {
    case Scales::half:
    case Scales::bfloat:
      word(0) |= block.factor << element % 64 / 2;
      break;
    case Scales::halves:
      word(0) = block.factor;
      break;
    case Scales::parts:  // a block is two units
      for (uint32_t i = 0; i < 4; ++i) word(i / 2) |= uint32_t{block.parts[i]} << i % 2 * 16;
      break;
    case Scales::sixes:
      word(0) = block.factor;
      for (uint32_t g = 0; g < 8; ++g) {
        const uint32_t scale = block.parts[g] & 255u, min = block.parts[g] >> 8;
        put_six(scale, min, g, [&](int64_t i) -> uint32_t& { return word(1 + i); });
      }
      break;
    case Scales::nibbles:
    case Scales::bytes:
      word(0) = block.factor;
      for (uint32_t g = 0; g < 16; ++g) word(1 + g / 4) |= uint32_t{block.parts[g]} << g % 4 * 8;
      break;
  }
}

/// The code of an element.
uint32_t code_at(const Packing& p, int64_t row, int64_t element, const uint32_t* words) {
  const Pieces pieces = pieces_of(coding(p.type).bits, static_cast<uint32_t>(element % 32 / 4));
  uint32_t codes = 0;
  for (size_t i = 0; i < pieces.count; ++i) {
    const Piece& piece = pieces.all[i];
    const uint32_t word = words[p.code_word(row, element, piece.word)];
    codes |= (word >> piece.from << piece.to) & piece_mask(piece.bits, piece.to);
  }
  return codes >> element % 4 * 8 & 255;
}

/// Scale and minimum of the group that has an element.
ScaleMin scale_min_at(const Packing& p, int64_t row, int64_t element, const uint32_t* words) {
  const Scales scales = coding(p.type).scales;
  const auto word = [&](int64_t i) { return words[p.at(p.scales, row, element) + i * p.together]; };
  const auto in_unit = static_cast<uint32_t>(element % p.scales.elements),
             g = in_unit / group_elements(scales);
  switch (scales) {
    case Scales::half:
    case Scales::bfloat:
      return scale_min(scales, word(0) >> g * 16 & 0xffff, 0);
    case Scales::halves:
      return scale_min(scales, word(0), 0);
    case Scales::parts:
      return scale_min(scales, 0, word(0) >> g * 16 & 0xffff);
    case Scales::sixes:
      return scale_min(scales, word(0), six_at(g, [&](int64_t i) { return word(1 + i); }));
    default:
      return scale_min(scales, word(0), word(1 + g / 4) >> g % 4 * 8 & 255);
  }
}

}  // namespace

Packing::Packing(Type of, int64_t rows, int64_t columns, int64_t interleaved)
    : type(of), n(rows), k(columns), together(interleaved) {
  const Coding& c = coding(type);
  if (c.bits == 0)
    fail(ErrorKind::invalid, "[quant] {} has no blocks to repack; multiply it as it is", traits(type).name);
  row_bytes(type, static_cast<uint64_t>(k));  // checks k
  tile = c.bits < 6 ? 2048 : 1024;            // 16 rows are at most 22 KiB
  groups = (n + kPackedRows - 1) / kPackedRows;
  const int64_t padded = groups * kPackedRows;
  size = 0;
  const auto add = [&](int64_t elements, int64_t words) {
    const Section section{size, (k + elements - 1) / elements, elements, words};
    size += (padded * section.units * words + 3) / 4 * 4;
    return section;
  };
  for (uint32_t left = c.bits, part; left > 0; left -= part) {
    part = std::bit_floor(left);
    codes.push_back(add(32, part));
  }
  const Unit unit = unit_of(c.scales);
  scales = add(unit.elements, unit.words);
}

Packing Packing::part(int64_t first, int64_t count) const {
  Packing rows = *this;
  rows.n = count;
  rows.groups = whole_panels(count) / kPackedRows;
  for (Section& section : rows.codes) section.start = at(section, first, 0);
  rows.scales.start = at(scales, first, 0);
  return rows;
}

void pack_row(const Packing& p, int64_t row, const std::byte* blocks, uint32_t* words) {
  const Traits& block = traits(p.type);
  Unpack* unpack = unpacker(p.type);
  Unpacked unpacked{};
  for (int64_t element = 0; element < p.k; element += block.block_elements, blocks += block.block_bytes) {
    unpack(reinterpret_cast<const uint8_t*>(blocks), unpacked);
    put_scales(p, unpacked, row, element, words);
    for (int64_t i = 0; i < block.block_elements; i += 32)
      visit_pieces(coding(p.type).bits, [&](const Piece& piece) {
        uint32_t codes = 0;
        std::memcpy(&codes, unpacked.codes + i + int64_t{4} * piece.j, sizeof(codes));
        words[p.code_word(row, element + i, piece.word)] |= (codes >> piece.to & piece_mask(piece.bits, 0))
                                                            << piece.from;
      });
  }
}

void dequantize_row(const Packing& p, int64_t row, const uint32_t* words, float* out) {
  const Coding& c = coding(p.type);
  const int64_t group = group_elements(c.scales);
  for (int64_t first = 0; first < p.k; first += group) {
    const ScaleMin s = scale_min_at(p, row, first, words);
    for (int64_t i = first; i < first + group; ++i) {
      const float level = static_cast<float>(c.level(code_at(p, row, i, words)));
      out[i] = has_minimum(c.scales) ? s.scale * level + s.min : s.scale * level;
    }
  }
}

}  // namespace weft::quant
