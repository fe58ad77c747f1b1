// Packed weights (quant/packing.h) as vectors: their codes as bytes, their scales as floats. qmatmul.cpp
// includes this once for each instruction set, in its namespace.

#if defined(WEFT_CPU_QMATMUL_WEIGHTS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_CPU_QMATMUL_WEIGHTS_H
#undef WEFT_CPU_QMATMUL_WEIGHTS_H
#else
#define WEFT_CPU_QMATMUL_WEIGHTS_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "backend/cpu/processor.h"
#include "backend/cpu/qmatmul.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using quant::kPackedRows;
using quant::Scales;

using Floats = hn::CappedTag<float, kPackedRows>;
using Words = hn::RebindToUnsigned<Floats>;
using Ints = hn::RebindToSigned<Floats>;
#if HWY_TARGET != HWY_SCALAR
using Bytes = hn::Repartition<uint8_t, Words>;
#endif
using FloatVector = hn::Vec<Floats>;
using WordVector = hn::Vec<Words>;
using IntVector = hn::Vec<Ints>;

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));
constexpr int64_t kSpan = 256;  // elements: every unit of scales ends with one

// ---- codes

/// `bits` bits of every byte, from bit `low` on.
HWY_INLINE WordVector byte_mask(uint32_t bits, uint32_t low) {
  return hn::Set(Words(), (((1u << bits) - 1) << low) * 0x01010101u);
}

/// Where the codes of 32 elements are.
struct Units {
  const uint32_t *low, *high;  // in the first and in the last section
};

/// Words of a unit in the first section.
template <uint32_t kBits>
constexpr uint32_t kLowWords = std::bit_floor(kBits);

/// Codes of elements 4 kWord ... + 3: piece kPiece of them and those before it.
template <uint32_t kBits, uint32_t kWord, size_t kPiece = quant::pieces_of(kBits, kWord).count - 1>
HWY_INLINE WordVector code_bytes(const Units& units) {
  constexpr quant::Piece kOf = quant::pieces_of(kBits, kWord).all[kPiece];
  constexpr int kRight = static_cast<int>(kOf.from) - static_cast<int>(kOf.to);
  const uint32_t* at = kOf.word < kLowWords<kBits> ? units.low + kOf.word * kPackedRows
                                                   : units.high + (kOf.word - kLowWords<kBits>)*kPackedRows;
  WordVector word = hn::LoadU(Words(), at);
  if constexpr (kRight > 0) word = hn::ShiftRight<kRight>(word);
  if constexpr (kRight < 0) word = hn::ShiftLeft<-kRight>(word);
  if constexpr (kOf.bits == 8)
    return word;
  else if constexpr (kPiece == 0)
    return hn::And(word, byte_mask(kOf.bits, kOf.to));
  else
    return hn::OrAnd(code_bytes<kBits, kWord, kPiece - 1>(units), word, byte_mask(kOf.bits, kOf.to));
}

/// The levels of the codes where a table has them.
template <bool kTable>
HWY_INLINE WordVector levels(WordVector codes, const uint8_t* table) {
  if constexpr (!kTable) {
    return codes;
  } else {
#if HWY_TARGET == HWY_SCALAR
    uint32_t word = 0;
    for (int shift = 0; shift < 32; shift += 8) word |= uint32_t{table[codes.raw >> shift & 255]} << shift;
    return WordVector(word);
#else
    const Bytes d;
    return hn::BitCast(Words(), hn::TableLookupBytes(hn::LoadDup128(d, table), hn::BitCast(d, codes)));
#endif
  }
}

// ---- scales

/// f16 in the low half of each word, whose upper half is 0.
HWY_INLINE FloatVector from_half(WordVector bits) {
#if HWY_TARGET == HWY_AVX3_DL
  return FloatVector{_mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits.raw))};
#else
  const Words d;
  const Floats f;
  const WordVector rest = hn::And(bits, hn::Set(d, 0x7fffu));
  const WordVector sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d, 0x8000u)));
  // The multiplication moves the exponent and makes subnormals normal; exact.
  const FloatVector finite = hn::Mul(hn::BitCast(f, hn::ShiftLeft<13>(rest)), hn::Set(f, 0x1p112f));
  const auto special = hn::Gt(hn::BitCast(Ints(), rest), hn::Set(Ints(), 0x7bff));
  const WordVector exponent = hn::IfThenElseZero(hn::RebindMask(d, special), hn::Set(d, 0x7f800000u));
  return hn::BitCast(f, hn::Or(hn::Or(hn::BitCast(d, finite), exponent), sign));
#endif
}

struct GroupScale {
  FloatVector scale, min;  // min is undefined where the type has none
};

/// Of 32 elements.
template <Scales kScales>
struct BlockScales {
  static constexpr int kGroups = 32 / static_cast<int>(quant::group_elements(kScales));
  GroupScale groups[kGroups];
};

/// The same as whole numbers, which factors of their span multiply.
struct GroupParts {
  IntVector scale, min;  // min is undefined where the type has none
};
template <Scales kScales>
struct BlockParts {
  GroupParts groups[BlockScales<kScales>::kGroups];
};

/// The scales of up to kSpan elements of as many rows as a vector has lanes, block by block. They are taken
/// apart where they are used and stay in registers.
template <Scales kScales>
class SpanScales {
 public:
  static constexpr bool kHasParts =
      kScales == Scales::sixes || kScales == Scales::nibbles || kScales == Scales::bytes;

  /// `at`: the first row's word of the span's first unit.
  HWY_INLINE explicit SpanScales(const uint32_t* at) : at_(at) {
    if constexpr (kScales == Scales::bytes) {
      factor_ = hn::BitCast(Floats(), take_word());
    } else if constexpr (kHasParts) {
      const WordVector factors = take_word();
      factor_ = from_half(low_half(factors));
      min_factor_ = hn::Neg(from_half(hn::ShiftRight<16>(factors)));
    }
    if constexpr (kScales == Scales::sixes) {
      const WordVector words[3] = {take_word(), take_word(), take_word()};
      scales_ = hn::And(words[0], byte_mask(6, 0));
      minima_ = hn::And(words[1], byte_mask(6, 0));
      next_scales_ = hn::And(words[2], byte_mask(6, 0));
      next_minima_ = hn::And(hn::ShiftRight<6>(words[0]), byte_mask(2, 0));
      next_minima_ = hn::OrAnd(next_minima_, hn::ShiftRight<4>(words[1]), byte_mask(2, 2));
      next_minima_ = hn::OrAnd(next_minima_, hn::ShiftRight<2>(words[2]), byte_mask(2, 4));
    }
  }

  // Where kHasParts:
  FloatVector factor() const { return factor_; }
  FloatVector min_factor() const { return min_factor_; }
  /// Of the next 32 elements.
  HWY_INLINE BlockParts<kScales> take_parts() {
    if constexpr (kScales == Scales::sixes) {
      const GroupParts group{low_bits(scales_, 255u), low_bits(minima_, 255u)};
      const WordVector scales = hn::ShiftRight<8>(scales_), minima = hn::ShiftRight<8>(minima_);
      scales_ = next_scales_;
      minima_ = next_minima_;
      next_scales_ = scales;
      next_minima_ = minima;
      return {{group}};
    } else if constexpr (kScales == Scales::nibbles) {
      const WordVector two = take_half();
      return {{{low_bits(two, 15u), low_bits(hn::ShiftRight<4>(two), 15u)},
               {low_bits(hn::ShiftRight<8>(two), 15u), low_bits(hn::ShiftRight<12>(two), 15u)}}};
    } else {
      const IntVector two = hn::BitCast(Ints(), take_half());
      return {{{hn::ShiftRight<24>(hn::ShiftLeft<24>(two)), IntVector()},
               {hn::ShiftRight<24>(hn::ShiftLeft<16>(two)), IntVector()}}};
    }
  }

  /// Of the next 32 elements.
  HWY_INLINE BlockScales<kScales> take() {
    const Floats f;
    if constexpr (kScales == Scales::half) {
      return {{{from_half(take_half()), FloatVector()}}};
    } else if constexpr (kScales == Scales::bfloat) {
      return {{{hn::BitCast(f, hn::ShiftLeft<16>(take_half())), FloatVector()}}};
    } else if constexpr (kScales == Scales::halves) {
      const WordVector both = take_word();
      return {{{from_half(low_half(both)), from_half(hn::ShiftRight<16>(both))}}};
    } else if constexpr (kScales == Scales::parts) {
      const WordVector both = take_word();
      return {
          {{from_half(low_half(both)), FloatVector()}, {from_half(hn::ShiftRight<16>(both)), FloatVector()}}};
    } else {
      const BlockParts<kScales> parts = take_parts();
      BlockScales<kScales> scales;
      for (int g = 0; g < scales.kGroups; ++g) {
        scales.groups[g].scale = hn::Mul(factor_, hn::ConvertTo(f, parts.groups[g].scale));
        if constexpr (quant::has_minimum(kScales))
          scales.groups[g].min = hn::Mul(min_factor_, hn::ConvertTo(f, parts.groups[g].min));
      }
      return scales;
    }
  }

 private:
  HWY_INLINE WordVector take_word() {
    const WordVector word = hn::LoadU(Words(), at_);
    at_ += kPackedRows;
    return word;
  }
  /// The low half of a word, the next time the other one.
  HWY_INLINE WordVector take_half() {
    const WordVector half = low_half(hn::ShiftRightSame(hn::LoadU(Words(), at_), taken_bits_));
    at_ += taken_bits_;  // 0, or the 16 rows of a word that is done
    taken_bits_ ^= 16;
    return half;
  }
  static HWY_INLINE WordVector low_half(WordVector word) { return hn::And(word, hn::Set(Words(), 0xffffu)); }
  static HWY_INLINE IntVector low_bits(WordVector word, uint32_t mask) {
    return hn::BitCast(Ints(), hn::And(word, hn::Set(Words(), mask)));
  }

  const uint32_t* at_;
  int taken_bits_ = 0;  // of the word at at_
  FloatVector factor_, min_factor_;
  // Of sixes: in the lowest byte those of the block to take and of the one after it, above them of every
  // second block.
  WordVector scales_, minima_, next_scales_, next_minima_;
};

// ---- blocks

/// The blocks of a product's weights.
template <uint32_t kBits, Scales kScales>
class Blocks {
 public:
  explicit Blocks(const QuantProduct& p)
      : words_(p.words),
        packing_(p.packing),
        span_words_(kSpan / p.packing.scales.elements * p.packing.scales.words * kPackedRows),
        ahead_(weights_ahead() / 4) {}

  /// visit(block, lane, units, scales) for each 32 elements of a tile of a group of rows, rows lane ... +
  /// kLanes - 1 of it, takes their scales. end_span(lane, scales) follows each span.
  ///
  /// Scales are fetched ahead: a processor follows the codes by itself, but not a second stream of few lines.
  /// Without that Q4_0 came from memory at 57 instead of 74 GB/s; further ahead it is slower. Codes only
  /// where that helps (processor.h).
  template <typename Visit, typename EndSpan>
  HWY_INLINE void visit_tile(int64_t group, int64_t first, const Visit& visit,
                             const EndSpan& end_span) const {
    const auto section = [&](const quant::Section& of) {
      return words_ + packing_.at(of, group * kPackedRows, first);
    };
    Units units{section(packing_.codes.front()), section(packing_.codes.back())};
    const uint32_t* scales_at = section(packing_.scales);
    const int64_t end = std::min(first + packing_.tile, packing_.k) / 32;
    for (int64_t block = first / 32; block < end; scales_at += span_words_) {
      for (int64_t word = 0; word < span_words_; word += kPackedRows)
        hwy::Prefetch(scales_at + kFetchAhead + word);
      const int64_t blocks = std::min(kSpan / 32, end - block);
      for (int64_t lane = 0; lane < kPackedRows; lane += kLanes) {
        Units at{units.low + lane, units.high + lane};
        SpanScales<kScales> scales(scales_at + lane);
        for (int64_t i = 0; i < blocks; ++i, at.low += kLowStep, at.high += kHighStep) {
          if (lane == 0 && ahead_ > 0) {
            fetch<kLowStep>(at.low);
            if (kBits != kLowWords<kBits>) fetch<kHighStep>(at.high);
          }
          visit(block + i, lane, at, scales);
        }
        end_span(lane, scales);
      }
      block += blocks;
      units.low += blocks * kLowStep;
      units.high += blocks * kHighStep;
    }
  }

 private:
  // From a block to the next one, in the first and in the last section.
  static constexpr int64_t kLowStep = kLowWords<kBits> * kPackedRows,
                           kHighStep = kLowWords<kBits> == kBits ? kLowStep : kBits * kPackedRows - kLowStep;

  static constexpr int64_t kFetchAhead = 4 * kPackedRows;  // words: 4 lines

  template <int64_t kWords>
  HWY_INLINE void fetch(const uint32_t* codes) const {
    for (int64_t word = 0; word < kWords; word += kPackedRows) hwy::Prefetch(codes + ahead_ + word);
  }

  const uint32_t* words_;
  const quant::Packing& packing_;
  int64_t span_words_;  // of scales
  int64_t ahead_;       // words
};

/// A table of levels for TableLookupBytes.
struct Table {
  explicit Table(const quant::Coding& coding) {
    for (size_t i = 0; i < coding.table.size(); ++i) bytes[i] = static_cast<uint8_t>(coding.table[i]);
  }
  HWY_ALIGN uint8_t bytes[16] = {};
};

// ---- types

/// make.operator()<kBits, kTable, kScales>() for the type with these codes.
template <typename Make>
auto for_coding(const quant::Coding& coding, const Make& make) {
  using enum Scales;
  decltype(make.template operator()<8, false, half>()) made {};
  const auto find = [&]<uint32_t kBits, bool kTable, Scales... kScales>() {
    const auto try_one = [&]<Scales kOne>() {
      if (coding.scales == kOne) made = make.template operator()<kBits, kTable, kOne>();
    };
    (try_one.template operator()<kScales>(), ...);
    return made;
  };
  const bool table = !coding.table.empty();
  switch (coding.bits) {
    case 2:
      return find.template operator()<2, false, nibbles, bytes>();
    case 3:
      return table ? find.template operator()<3, true, bytes>() : find.template operator()<3, false, bytes>();
    case 4:
      return table ? find.template operator()<4, true, half, bfloat, bytes, parts>()
                   : find.template operator()<4, false, half, halves, sixes>();
    case 5:
      return find.template operator()<5, false, half, halves, sixes>();
    case 6:
      return find.template operator()<6, false, bytes>();
    default:
      return find.template operator()<8, false, half, bytes>();
  }
}

// ---- results

inline void store(const QuantProduct& p, int64_t group, int64_t row, int64_t rows, const float* sums) {
  const int64_t n = p.packing.n, first = group * kPackedRows;
  const auto width = static_cast<size_t>(std::min(kPackedRows, n - first));
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(p.y + (row + i) * n + first, sums + i * kPackedRows, width * sizeof(float));
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
