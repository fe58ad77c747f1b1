#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quant/codes.h"

/// Weights (n, k) repacked for products: codes, factors and parts of ggml's blocks, in whole aligned words.
///
/// A unit of 32 codes of b bits is b words. Word j of eight of codes has those of elements 4 j to 4 j + 3 as
/// bytes, which is what dot products of bytes take. A byte of the unit's words holds 8 / b codes whole, one
/// above the other; those of the first words of codes lie so, one word after the other. The last words of
/// codes lie in the bits that are left over at the top of each byte, cut into pieces (visit_pieces). So a
/// mask, and mostly a shift, gives a word of whole codes, which most are: of 6 bits, six words of eight.
///
/// A section has 8, 4, 2 or 1 words of each unit, so that loads are aligned: of 6 words four, and then two.
///
/// The last section has the scales, in units of so many elements and words:
///   half, bfloat     64, 1   two factors of 16 bits
///   halves           32, 1   the factor
///   parts            32, 1   two parts of 16 bits
///   sixes           256, 4   the factor | 8 scales and minima of 6 bits in 3 words (put_six)
///   nibbles, bytes  256, 5   the factor | 16 parts of 8 bits
///
/// A section holds its units row by row, and starts at a multiple of 4 words. Rows are filled up with zeros
/// to a multiple of 16. A GPU has 32 rows side by side (16 where their number is odd): a unit of each, then
/// the next unit of each.
///
/// A CPU interleaves 16 rows, word by word, so that a vector holds the same elements of several rows. Four
/// such groups are a panel: a tile of each, then the next tile of each. So a product reads its weights from
/// one end to the other, and 16 rows of a tile leave room in the L1 cache for the part of x that the next 16
/// meet.
namespace weft::quant {

inline constexpr int64_t kPackedRows = 16, kPanelGroups = 4;
/// Rows of a matrix in a stack of several, so that each begins with a panel of its own.
inline constexpr int64_t whole_panels(int64_t rows) {
  constexpr int64_t kPanel = kPanelGroups * kPackedRows;
  return (rows + kPanel - 1) / kPanel * kPanel;
}

/// Of the codes of elements 4 j to 4 j + 3 of a unit: `bits` of them, which are in each byte of `word` from
/// bit `from` on, and in the code from bit `to` on.
struct Piece {
  uint32_t j, word, from, to, bits;
};

/// visit(piece) for all of a unit.
template <typename Visit>
constexpr void visit_pieces(uint32_t bits, const Visit& visit) {
  const uint32_t whole = 8 / bits, left = 8 % bits;  // codes that lie whole in a byte, bits left over
  for (uint32_t word = 0; word < bits; ++word) {
    for (uint32_t i = 0; i < whole; ++i) visit(Piece{word * whole + i, word, i * bits, 0, bits});
    for (uint32_t i = 0; i < left;) {
      const uint32_t at = word * left + i, to = at % bits, count = std::min(left - i, bits - to);
      visit(Piece{bits * whole + at / bits, word, whole * bits + i, to, count});
      i += count;
    }
  }
}

struct Pieces {
  std::array<Piece, 3> all;
  size_t count;
};
constexpr Pieces pieces_of(uint32_t bits, uint32_t j) {
  Pieces pieces{};
  visit_pieces(bits, [&](const Piece& piece) {
    if (piece.j == j) pieces.all[pieces.count++] = piece;
  });
  return pieces;
}

struct Section {
  int64_t start;            ///< words
  int64_t units;            ///< of a row
  int64_t elements, words;  ///< of a unit; a power of two of elements
};

class Packing {
 public:
  /// `together`: rows that are interleaved, 1 or kPackedRows. Plain floats have no packing
  /// (ErrorKind::invalid), and k must be whole blocks.
  Packing(Type type, int64_t n, int64_t k, int64_t together);

  Type type;
  int64_t n, k, together;
  int64_t groups;              ///< of kPackedRows rows, fill included
  int64_t tile;                ///< elements, where rows are interleaved: a power of two
  std::vector<Section> codes;  ///< the words of a unit, shared out
  Section scales;
  int64_t size;  ///< words

  /// The first word of the unit that has an element; its next words are `together` apart.
  int64_t at(const Section& section, int64_t row, int64_t element) const {
    if (together == 1)
      return section.start + (row * section.units + element / section.elements) * section.words;
    // Without divisions, which would take a tenth of the time of a tile's products.
    const int shift = std::countr_zero(static_cast<uint64_t>(section.elements));
    const auto units = [&](int64_t elements) { return (elements + section.elements - 1) >> shift; };
    const int64_t group = row / kPackedRows, panel = group / kPanelGroups * kPanelGroups,
                  in_panel = std::min(kPanelGroups, groups - panel), first = element & -tile;
    const int64_t before = panel * section.units + in_panel * units(first) +
                           (group - panel) * units(std::min(tile, k - first)) + ((element - first) >> shift);
    return section.start + before * section.words * kPackedRows + row % kPackedRows;
  }

  /// Word `word` of the unit of codes that has an element.
  int64_t code_word(int64_t row, int64_t element, int64_t word) const {
    const Section& first = codes.front();
    if (word < first.words) return at(first, row, element) + word * together;
    return at(codes.back(), row, element) + (word - first.words) * together;
  }

  /// A matrix of a stack as a packing of its own, in the same words: `first` and the rows behind it are whole
  /// panels.
  Packing part(int64_t first, int64_t count) const;
};

/// Packs one row of blocks into words that are zero so far.
void pack_row(const Packing& packing, int64_t row, const std::byte* blocks, uint32_t* words);
/// The k values of a packed row: the same bits as dequantize() of its blocks.
void dequantize_row(const Packing& packing, int64_t row, const uint32_t* words, float* out);

}  // namespace weft::quant
