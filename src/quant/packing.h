#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quant/codes.h"

/// Weights (n, k) repacked for products: codes, factors and parts of ggml's blocks, in whole aligned words.
///
/// A code of 2 to 8 bits is cut into planes of 8, 4, 2 or 1 bits (3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2; the first
/// plane has the low bits). In a plane of b bits a unit of 32 elements is b words: the bits of element 4 j +
/// c are in byte c of word j b / 8, from bit j b % 8 on. So one shift and one mask of a word give 4
/// neighbouring codes as bytes, which is what dot products of bytes take.
///
/// The last section has the scales, in units of so many elements and words:
///   half, bfloat     64, 1   two factors of 16 bits
///   halves           32, 1   the factor
///   parts            32, 1   two parts of 16 bits
///   sixes           256, 4   the factor | 8 low nibbles of scales | 8 of minima | 8 upper 2 bits of each
///                            interleaved: the factor | 3 words of put_six
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
  int64_t groups;               ///< of kPackedRows rows, fill included
  int64_t tile;                 ///< elements, where rows are interleaved: a power of two
  std::vector<Section> planes;  ///< bits of a plane = words of its units
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

  /// A matrix of a stack as a packing of its own, in the same words: `first` and the rows behind it are whole
  /// panels.
  Packing part(int64_t first, int64_t count) const;
};

/// Packs one row of blocks into words that are zero so far.
void pack_row(const Packing& packing, int64_t row, const std::byte* blocks, uint32_t* words);
/// The k values of a packed row: the same bits as dequantize() of its blocks.
void dequantize_row(const Packing& packing, int64_t row, const uint32_t* words, float* out);

}  // namespace weft::quant
