// Products with packed weights (quant/packing.h). 16 rows of weights lie word by word side by side: a vector
// holds the same 4 (as bytes) or 1 (as floats) elements of its rows, activations are broadcast, and no sum
// has to be taken across lanes.

// Baseline, AVX2, AVX-512 with VNNI and NEON; each target is another compilation of the first half of this
// file.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_WANT_AVX3_DL

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/qmatmul.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file again for each target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cpu/primitives.h"
#include "backend/cpu/qmatmul.h"
#include "base/error.h"

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
constexpr int64_t kSpan = 256;  // elements whose scales are unpacked at a time

// ---- codes and scales

/// A word of a plane, moved so that the bits of elements 4 kWord ... + 3 are in its bytes from bit kLow on,
/// among others.
template <uint32_t kBits, uint32_t kLow, uint32_t kWord>
HWY_INLINE WordVector plane_word(const uint32_t* unit) {
  constexpr int kRight = static_cast<int>(kWord * kBits % 8) - static_cast<int>(kLow);
  const WordVector word = hn::LoadU(Words(), unit + kWord * kBits / 8 * kPackedRows);
  if constexpr (kRight > 0)
    return hn::ShiftRight<kRight>(word);
  else if constexpr (kRight < 0)
    return hn::ShiftLeft<-kRight>(word);
  else
    return word;
}

/// `bits` bits of every byte, from bit `low` on.
HWY_INLINE WordVector byte_mask(uint32_t bits, uint32_t low) {
  return hn::Set(Words(), (((1u << bits) - 1) << low) * 0x01010101u);
}

/// Where the codes of 32 elements are.
struct Units {
  const uint32_t *low, *high;  // of the first and the last plane
};

/// Codes of elements 4 kWord ... + 3.
template <uint32_t kBits, uint32_t kWord>
HWY_INLINE WordVector code_bytes(const Units& units) {
  constexpr uint32_t kLow = kBits == 3 ? 2 : kBits == 5 || kBits == 6 ? 4 : kBits, kHigh = kBits - kLow;
  const WordVector low = plane_word<kLow, 0, kWord>(units.low);
  if constexpr (kHigh > 0)
    return hn::OrAnd(hn::And(plane_word<kHigh, kLow, kWord>(units.high), byte_mask(kHigh, kLow)), low,
                     byte_mask(kLow, 0));
  else
    return kBits == 8 ? low : hn::And(low, byte_mask(kLow, 0));
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

HWY_INLINE FloatVector to_float(WordVector small) {
  return hn::ConvertTo(Floats(), hn::BitCast(Ints(), small));
}

/// Scales and minima of kSpan elements of 16 rows: [group][row].
struct SpanScales {
  HWY_ALIGN float scale[16 * kPackedRows];
  HWY_ALIGN float min[16 * kPackedRows];

  void put(int64_t group, int64_t row, FloatVector s, FloatVector m) {
    const Floats d;
    hn::Store(s, d, scale + group * kPackedRows + row);
    hn::Store(m, d, min + group * kPackedRows + row);
  }
  void put(int64_t group, int64_t row, FloatVector s) {
    hn::Store(s, Floats(), scale + group * kPackedRows + row);
  }
};

/// f<0>() ... f<3>().
template <typename F>
HWY_INLINE void for_each_byte(const F& f) {
  f.template operator()<0>();
  f.template operator()<1>();
  f.template operator()<2>();
  f.template operator()<3>();
}

/// `at`: the unit of the span's first scales, with `groups` groups in the span.
template <Scales kScales>
void load_scales(const uint32_t* at, int64_t groups, SpanScales& to) {
  const Words d;
  const Floats f;
  const WordVector half_mask = hn::Set(d, 0xffffu);
  for (int64_t row = 0; row < kPackedRows; row += kLanes) {
    const auto word = [&](int64_t i) HWY_ATTR { return hn::LoadU(d, at + i * kPackedRows + row); };
    if constexpr (kScales == Scales::half || kScales == Scales::bfloat || kScales == Scales::parts) {
      for (int64_t g = 0; g < groups; ++g) {
        const WordVector both = word(g / 2);
        const WordVector bits = g % 2 == 0 ? hn::And(both, half_mask) : hn::ShiftRight<16>(both);
        const FloatVector scale =
            kScales == Scales::bfloat ? hn::BitCast(f, hn::ShiftLeft<16>(bits)) : from_half(bits);
        to.put(g, row, scale);
      }
    } else if constexpr (kScales == Scales::halves) {
      for (int64_t g = 0; g < groups; ++g)
        to.put(g, row, from_half(hn::And(word(g), half_mask)), from_half(hn::ShiftRight<16>(word(g))));
    } else if constexpr (kScales == Scales::bytes) {
      const FloatVector factor = hn::BitCast(f, word(0));
      for (int64_t g = 0; g < groups; g += 4) {
        const IntVector four = hn::BitCast(Ints(), word(1 + g / 4));
        const auto put = [&]<int kByte>() HWY_ATTR {
          const IntVector part = hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kByte>(four));
          to.put(g + kByte, row, hn::Mul(factor, hn::ConvertTo(f, part)));
        };
        for_each_byte(put);
      }
    } else {
      const FloatVector factor = from_half(hn::And(word(0), half_mask));
      const FloatVector min_factor = hn::Neg(from_half(hn::ShiftRight<16>(word(0))));
      // Groups first, first + step, ... have their scale and minimum in the bytes of a word each.
      const auto put_four = [&](WordVector scales, WordVector minima, int64_t first, int64_t step) HWY_ATTR {
        const auto put = [&]<int kByte>() HWY_ATTR {
          const auto part = [&](WordVector four) HWY_ATTR {
            return to_float(hn::And(hn::ShiftRight<8 * kByte>(four), hn::Set(d, 255u)));
          };
          to.put(first + kByte * step, row, hn::Mul(factor, part(scales)), hn::Mul(min_factor, part(minima)));
        };
        for_each_byte(put);
      };
      const WordVector nibbles = hn::Set(d, 0x0f0f0f0fu);
      if constexpr (kScales == Scales::sixes) {
        // Every second nibble, and above it two bits of those that lie 4 bits apart.
        const auto six = [&](WordVector low, WordVector high) HWY_ATTR {
          high = hn::And(high, hn::Set(d, 0x3333u));
          high = hn::And(hn::Or(high, hn::ShiftLeft<8>(high)), hn::Set(d, 0x00330033u));
          high = hn::And(hn::Or(high, hn::ShiftLeft<4>(high)), hn::Set(d, 0x03030303u));
          return hn::OrAnd(hn::ShiftLeft<4>(high), low, nibbles);
        };
        const WordVector scales = word(1), minima = word(2), high = word(3);
        put_four(six(scales, high), six(minima, hn::ShiftRight<16>(high)), 0, 2);
        put_four(six(hn::ShiftRight<4>(scales), hn::ShiftRight<2>(high)),
                 six(hn::ShiftRight<4>(minima), hn::ShiftRight<18>(high)), 1, 2);
      } else {
        for (int64_t g = 0; g < groups; g += 4) {
          const WordVector four = word(1 + g / 4);
          put_four(hn::And(four, nibbles), hn::And(hn::ShiftRight<4>(four), nibbles), g, 1);
        }
      }
    }
  }
}

void load_scales(Scales scales, const uint32_t* at, int64_t groups, SpanScales& to) {
  switch (scales) {
    case Scales::half:
      return load_scales<Scales::half>(at, groups, to);
    case Scales::bfloat:
      return load_scales<Scales::bfloat>(at, groups, to);
    case Scales::halves:
      return load_scales<Scales::halves>(at, groups, to);
    case Scales::sixes:
      return load_scales<Scales::sixes>(at, groups, to);
    case Scales::nibbles:
      return load_scales<Scales::nibbles>(at, groups, to);
    case Scales::bytes:
      return load_scales<Scales::bytes>(at, groups, to);
    case Scales::parts:
      return load_scales<Scales::parts>(at, groups, to);
  }
}

/// The blocks of a product's weights, which follow each other from group of rows to group of rows.
class Blocks {
 public:
  Blocks(const QuantProduct& p, int64_t group)
      : k_(p.packing.k), scales_(quant::coding(p.packing.type).scales) {
    const auto section = [&](const quant::Section& of) {
      return p.words + p.packing.at(of, group * kPackedRows, 0);
    };
    const quant::Section &low = p.packing.planes.front(), &high = p.packing.planes.back();
    units_ = {section(low), section(high)};
    low_step_ = low.words * kPackedRows;
    high_step_ = high.words * kPackedRows;
    scales_at_ = section(p.packing.scales);
    scale_elements_ = p.packing.scales.elements;
    scale_words_ = p.packing.scales.words;
    scale_groups_ = 32 / quant::group_elements(scales_);
  }

  /// visit(block, units, scale, min) for each 32 elements of the next group of rows, with the scales of the
  /// block's first group; those of a second one follow. Minima are undefined where the type has none.
  template <typename Visit>
  HWY_INLINE void next_rows(const Visit& visit) {
    SpanScales span;
    for (int64_t first = 0; first < k_; first += kSpan) {
      const int64_t elements = std::min(kSpan, k_ - first), blocks = elements / 32;
      load_scales(scales_, scales_at_, blocks * scale_groups_, span);
      scales_at_ += (elements + scale_elements_ - 1) / scale_elements_ * scale_words_ * kPackedRows;
      for (int64_t b = 0; b < blocks; ++b, units_.low += low_step_, units_.high += high_step_)
        visit(first / 32 + b, units_, span.scale + b * scale_groups_ * kPackedRows,
              span.min + b * scale_groups_ * kPackedRows);
    }
  }

 private:
  int64_t k_;
  Scales scales_;
  Units units_;
  int64_t low_step_, high_step_;  // words
  const uint32_t* scales_at_;
  int64_t scale_elements_, scale_words_;  // of a unit
  int64_t scale_groups_;                  // of a block
};

void store(const QuantProduct& p, int64_t group, int64_t row, int64_t rows, const float* sums) {
  const int64_t n = p.packing.n, first = group * kPackedRows;
  const auto width = static_cast<size_t>(std::min(kPackedRows, n - first));
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(p.y + (row + i) * n + first, sums + i * kPackedRows, width * sizeof(float));
}

/// A table of levels for TableLookupBytes.
struct Table {
  explicit Table(const quant::Coding& coding) {
    for (size_t i = 0; i < coding.table.size(); ++i) bytes[i] = static_cast<uint8_t>(coding.table[i]);
  }
  HWY_ALIGN uint8_t bytes[16] = {};
};

// ---- float activations

/// sums[i] += x[i] panel for kRows rows of x, 32 elements each. 8 sums are on their way at any time.
template <int64_t kRows>
HWY_INLINE void multiply_panel(const float* panel, const float* x, int64_t x_stride, float* sums) {
  const Floats d;
  constexpr int64_t kParts = 8 / kRows;
  for (int64_t lane = 0; lane < kPackedRows; lane += kLanes) {
    FloatVector part[kRows][kParts];
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t q = 0; q < kParts; ++q) part[i][q] = hn::Zero(d);
    for (int64_t e = 0; e < 32; e += kParts)
      for (int64_t q = 0; q < kParts; ++q) {
        const FloatVector w = hn::Load(d, panel + (e + q) * kPackedRows + lane);
        for (int64_t i = 0; i < kRows; ++i)
          part[i][q] = hn::MulAdd(hn::Set(d, x[i * x_stride + e + q]), w, part[i][q]);
      }
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t half = kParts / 2; half > 0; half /= 2)
        for (int64_t q = 0; q < half; ++q) part[i][q] = hn::Add(part[i][q], part[i][q + half]);
      float* sum = sums + i * kPackedRows + lane;
      hn::Store(hn::Add(hn::Load(d, sum), part[i][0]), d, sum);
    }
  }
}

/// Levels of 4 elements of each row, times the scale of their group, plus its minimum.
template <uint32_t kBits, bool kTable, uint32_t kWord>
HWY_INLINE void put_panel(const Units& units, const uint8_t* table, FloatVector s, FloatVector m,
                          int64_t lane, float* panel) {
  const Floats d;
  constexpr bool kSigned = kTable || kBits == 8;
  const Units here{units.low + lane, units.high + lane};
  const WordVector four = levels<kTable>(code_bytes<kBits, kWord>(here), table);
  const auto put = [&]<int kByte>() HWY_ATTR {
    IntVector level;
    if constexpr (kSigned)
      level = hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kByte>(hn::BitCast(Ints(), four)));
    else
      level = hn::BitCast(Ints(), hn::And(hn::ShiftRight<8 * kByte>(four), hn::Set(Words(), 255u)));
    hn::Store(hn::MulAdd(hn::ConvertTo(d, level), s, m), d, panel + (4 * kWord + kByte) * kPackedRows + lane);
  };
  for_each_byte(put);
}

template <uint32_t kBits, bool kTable>
void multiply_floats(const QuantProduct& p, int64_t begin, int64_t end, int64_t row, int64_t rows) {
  const Floats d;
  const quant::Coding& coding = quant::coding(p.packing.type);
  const bool minimum = quant::has_minimum(coding.scales);
  const FloatVector offset = hn::Set(d, static_cast<float>(-coding.offset));
  const int64_t second =
      quant::group_elements(coding.scales) == 16 ? kPackedRows : 0;  // scales of elements 16...
  const Table table(coding);
  HWY_ALIGN float sums[kTaskRows * kPackedRows];
  HWY_ALIGN float panel[32 * kPackedRows];
  const int64_t k = p.packing.k;
  Blocks weights(p, begin);
  for (int64_t group = begin; group < end; ++group) {
    std::fill_n(sums, rows * kPackedRows, 0.0f);
    weights.next_rows([&](int64_t block, const Units& units, const float* scale, const float* min) HWY_ATTR {
      for (int64_t lane = 0; lane < kPackedRows; lane += kLanes) {
        FloatVector s[2], m[2];  // of the halves
        for (int64_t h = 0; h < 2; ++h) {
          s[h] = hn::Load(d, scale + h * second + lane);
          m[h] = minimum ? hn::Load(d, min + h * second + lane) : hn::Mul(s[h], offset);
        }
        [&]<uint32_t... kWord>(std::integer_sequence<uint32_t, kWord...>) HWY_ATTR {
          (put_panel<kBits, kTable, kWord>(units, table.bytes, s[kWord / 4], m[kWord / 4], lane, panel), ...);
        }(std::make_integer_sequence<uint32_t, 8>());
      }
      const float* x = p.x + row * k + block * 32;
      int64_t i = 0;
      for (; i + 8 <= rows; i += 8) multiply_panel<8>(panel, x + i * k, k, sums + i * kPackedRows);
      if (rows - i >= 4) multiply_panel<4>(panel, x + i * k, k, sums + i * kPackedRows), i += 4;
      if (rows - i >= 2) multiply_panel<2>(panel, x + i * k, k, sums + i * kPackedRows), i += 2;
      if (rows - i >= 1) multiply_panel<1>(panel, x + i * k, k, sums + i * kPackedRows);
    });
    store(p, group, row, rows, sums);
  }
}

// ---- activations of 8 and 16 bits

// What dot() adds to signed weights, to make them unsigned for an instruction that wants that.
constexpr int kBias = HWY_TARGET == HWY_AVX3_DL ? 128 : 0;

/// sum + the products of the 4 bytes of each lane with the 4 of *x. Weights are signed, or unsigned below 64.
template <bool kSigned>
HWY_INLINE IntVector dot(IntVector sum, WordVector weights, const uint32_t* x) {
#if HWY_TARGET == HWY_AVX3_DL
  // Highway 1.0.3 does not tell the compiler of AVX512_VNNI; the target has it.
  if constexpr (kSigned) weights = hn::Xor(weights, hn::Set(Words(), 0x80808080u));
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(weights.raw), "m"(*x));
  return sum;
#elif HWY_TARGET == HWY_AVX2
  const __m256i right = _mm256_set1_epi32(static_cast<int>(*x));
  const __m256i pairs =
      kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(weights.raw), _mm256_sign_epi8(right, weights.raw))
              : _mm256_maddubs_epi16(weights.raw, right);
  return hn::Add(sum, IntVector{_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))});
#elif HWY_ARCH_ARM_A64 && defined(__ARM_FEATURE_DOTPROD)
  return IntVector(
      vdotq_s32(sum.raw, vreinterpretq_s8_u32(weights.raw), vreinterpretq_s8_u32(vdupq_n_u32(*x))));
#elif HWY_TARGET == HWY_SCALAR
  for (int shift = 0; shift < 32; shift += 8)
    sum.raw += static_cast<int8_t>(weights.raw >> shift) * static_cast<int8_t>(*x >> shift);
  return sum;
#else
  // Even and odd bytes as 16-bit numbers: two products of signed bytes fit.
  const hn::Repartition<int16_t, Words> d;
  const auto left = hn::BitCast(d, weights), right = hn::BitCast(d, hn::Set(Words(), *x));
  const auto low = [&](auto v) HWY_ATTR { return hn::ShiftRight<8>(hn::ShiftLeft<8>(v)); };
  const auto pairs = hn::BitCast(Ints(), hn::Add(hn::Mul(low(left), low(right)),
                                                 hn::Mul(hn::ShiftRight<8>(left), hn::ShiftRight<8>(right))));
  return hn::Add(sum, hn::Add(hn::ShiftRight<16>(pairs), hn::ShiftRight<16>(hn::ShiftLeft<16>(pairs))));
#endif
}

/// 32 elements of as many rows of weights as a vector has lanes, ready for products with any number of x.
template <uint32_t kBits, bool kTable, uint32_t kGroup, bool kMinimum>
struct CodeBlock {
  static constexpr bool kSigned = kTable || kBits == 8;

  HWY_INLINE CodeBlock(const Units& units, const uint8_t* table, const float* scale, const float* min) {
    [&]<uint32_t... kWord>(std::integer_sequence<uint32_t, kWord...>) HWY_ATTR {
      ((words[kWord] = levels<kTable>(code_bytes<kBits, kWord>(units), table)), ...);
    }(std::make_integer_sequence<uint32_t, 8>());
    const Floats d;
    for (int g = 0; g < kGroups; ++g) {
      scales[g] = hn::Load(d, scale + g * kPackedRows);
      if constexpr (kMinimum) minima[g] = hn::Load(d, min + g * kPackedRows);
    }
  }

  /// sum + the products with 32 elements. Either the type has minima or its codes an offset, never both;
  /// offsets are taken off in integers.
  template <int kBytes>
  HWY_INLINE FloatVector add_to(FloatVector sum, const uint32_t* x, const CodeFacts& facts,
                                int offset) const {
    const Floats d;
    const int32_t* x_sums = kGroups == 1 ? &facts.sum : facts.sums;
    FloatVector all;  // in units of the scale of x
    for (int g = 0; g < kGroups; ++g) {
      IntVector bytes[2] = {hn::Zero(Ints()), hn::Zero(Ints())};  // codes, rests
      if constexpr (!kMinimum) bytes[kBytes - 1] = hn::Set(Ints(), -offset * x_sums[g]);
      for (int j = g * 8 / kGroups; j < (g + 1) * 8 / kGroups; ++j)
        for (int b = 0; b < kBytes; ++b) bytes[b] = dot<kSigned>(bytes[b], words[j], x + b * 8 + j);
      if constexpr (kBytes == 2) bytes[0] = hn::Add(hn::ShiftLeft<8>(bytes[0]), bytes[1]);
      const FloatVector part = hn::ConvertTo(d, bytes[0]);
      all = g == 0 ? hn::Mul(part, scales[g]) : hn::MulAdd(part, scales[g], all);
      if constexpr (kMinimum) all = hn::MulAdd(hn::ConvertTo(d, hn::Set(Ints(), x_sums[g])), minima[g], all);
    }
    return hn::MulAdd(all, hn::Set(d, facts.scale), sum);
  }

  static constexpr int kGroups = kGroup == 16 ? 2 : 1;
  WordVector words[8];
  FloatVector scales[kGroups], minima[kGroups];
};

template <uint32_t kBits, bool kTable, uint32_t kGroup, bool kMinimum, int kBytes>
void multiply_codes(const QuantProduct& p, int64_t begin, int64_t end, int64_t row, int64_t rows) {
  using Block = CodeBlock<kBits, kTable, kGroup, kMinimum>;
  const Floats d;
  const quant::Coding& coding = quant::coding(p.packing.type);
  const Table table(coding);
  const int64_t blocks = p.packing.k / 32, words = 8 * kBytes, stride = blocks * (words + 4);
  const uint32_t* codes = p.codes + row * stride;
  const auto* facts = reinterpret_cast<const CodeFacts*>(codes + blocks * words);
  const int offset = coding.offset + (Block::kSigned ? kBias : 0);
  HWY_ALIGN float sums[kTaskRows * kPackedRows];
  Blocks weights(p, begin);
  for (int64_t group = begin; group < end; ++group) {
    if (rows == 1) {  // the sums stay in registers
      FloatVector sum[kPackedRows / kLanes];
      for (FloatVector& part : sum) part = hn::Zero(d);
      weights.next_rows(
          [&](int64_t block, const Units& units, const float* scale, const float* min) HWY_ATTR {
            for (int64_t lane = 0; lane < kPackedRows; lane += kLanes) {
              const Block w({units.low + lane, units.high + lane}, table.bytes, scale + lane, min + lane);
              sum[lane / kLanes] =
                  w.template add_to<kBytes>(sum[lane / kLanes], codes + block * words, facts[block], offset);
            }
          });
      for (int64_t lane = 0; lane < kPackedRows; lane += kLanes)
        hn::Store(sum[lane / kLanes], d, sums + lane);
    } else {
      std::fill_n(sums, rows * kPackedRows, 0.0f);
      weights.next_rows([&](int64_t block, const Units& units, const float* scale,
                            const float* min) HWY_ATTR {
        for (int64_t lane = 0; lane < kPackedRows; lane += kLanes) {
          const Block w({units.low + lane, units.high + lane}, table.bytes, scale + lane, min + lane);
          for (int64_t i = 0; i < rows; ++i) {
            const uint32_t* x = codes + i * stride;
            const auto& x_facts = reinterpret_cast<const CodeFacts*>(x + blocks * words)[block];
            float* to = sums + i * kPackedRows + lane;
            hn::Store(w.template add_to<kBytes>(hn::Load(d, to), x + block * words, x_facts, offset), d, to);
          }
        }
      });
    }
    store(p, group, row, rows, sums);
  }
}

void encode(const float* x, int64_t k, int64_t bits, uint32_t* to) {
  const Floats d;
  const hn::Rebind<int8_t, Floats> bytes;
  auto* codes = reinterpret_cast<int8_t*>(to);
  const bool rests = bits == 16;
  auto* facts = reinterpret_cast<CodeFacts*>(to + k / 32 * bits);
  const FloatVector most_rest = hn::Set(d, 127.0f), parts = hn::Set(d, 256.0f);
  for (int64_t at = 0; at < k; at += 32, codes += bits * 4, ++facts) {
    FloatVector most = hn::Zero(d);
    for (int64_t i = 0; i < 32; i += kLanes) most = hn::Max(most, hn::Abs(hn::LoadU(d, x + at + i)));
    const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
    const FloatVector inverse = hn::Set(d, largest > 0 ? 127 / largest : 0);
    for (int64_t half = 0; half < 2; ++half) {
      IntVector sum = hn::Zero(Ints());
      for (int64_t i = 16 * half; i < 16 * half + 16; i += kLanes) {
        const FloatVector v = hn::Mul(hn::LoadU(d, x + at + i), inverse);
        const IntVector code = hn::NearestInt(v);
        hn::StoreU(hn::DemoteTo(bytes, code), bytes, codes + i);
        if (!rests) {
          sum = hn::Add(sum, code);
          continue;
        }
        const FloatVector left = hn::Mul(hn::Sub(v, hn::ConvertTo(d, code)), parts);
        const IntVector rest = hn::NearestInt(hn::Min(hn::Max(left, hn::Neg(most_rest)), most_rest));
        hn::StoreU(hn::DemoteTo(bytes, rest), bytes, codes + 32 + i);
        sum = hn::Add(sum, hn::Add(hn::ShiftLeft<8>(code), rest));
      }
      facts->sums[half] = hn::GetLane(hn::SumOfLanes(Ints(), sum));
    }
    facts->scale = largest / (rests ? 127 * 256 : 127);
    facts->sum = facts->sums[0] + facts->sums[1];
  }
}

// ---- choice

QuantTarget::Task floats_task(const quant::Coding& coding) {
  const bool table = !coding.table.empty();
  switch (coding.bits) {
    case 2:
      return multiply_floats<2, false>;
    case 3:
      return table ? multiply_floats<3, true> : multiply_floats<3, false>;
    case 4:
      return table ? multiply_floats<4, true> : multiply_floats<4, false>;
    case 5:
      return multiply_floats<5, false>;
    case 6:
      return multiply_floats<6, false>;
    default:
      return multiply_floats<8, false>;
  }
}

template <int kBytes>
QuantTarget::Task codes_task(const quant::Coding& coding) {
  const bool table = !coding.table.empty(), wide = quant::group_elements(coding.scales) == 32;
  const bool minimum = quant::has_minimum(coding.scales);
  switch (coding.bits) {
    case 2:
      return minimum ? multiply_codes<2, false, 16, true, kBytes>
                     : multiply_codes<2, false, 16, false, kBytes>;
    case 3:
      return table ? multiply_codes<3, true, 16, false, kBytes> : multiply_codes<3, false, 16, false, kBytes>;
    case 4:
      if (!table)
        return minimum ? multiply_codes<4, false, 32, true, kBytes>
                       : multiply_codes<4, false, 32, false, kBytes>;
      return wide ? multiply_codes<4, true, 32, false, kBytes> : multiply_codes<4, true, 16, false, kBytes>;
    case 5:
      return minimum ? multiply_codes<5, false, 32, true, kBytes>
                     : multiply_codes<5, false, 32, false, kBytes>;
    case 6:
      return multiply_codes<6, false, 16, false, kBytes>;
    default:
      return wide ? multiply_codes<8, false, 32, false, kBytes> : multiply_codes<8, false, 16, false, kBytes>;
  }
}

QuantTarget::Task codes_task(const quant::Coding& coding, int64_t bits) {
  return bits == 16 ? codes_task<2>(coding) : codes_task<1>(coding);
}

const QuantTarget* target() {
  static constexpr QuantTarget kTarget{floats_task, codes_task, encode};
  return &kTarget;
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
namespace {

HWY_EXPORT(target);

const QuantTarget& best_target() {
  return *HWY_DYNAMIC_DISPATCH(target)();
}

/// The elements without gaps: in place, or copied into `copied`.
template <typename T>
const T* without_gaps(ThreadPool& pool, const Tensor& x, std::vector<T>& copied) {
  Layout layout = x.layout;
  layout.offset = 0;
  if (layout.is_contiguous()) return x.as<T>() + x.layout.offset;
  copied.resize(static_cast<size_t>(element_count(layout.shape)));
  const Tensor whole{reinterpret_cast<std::byte*>(copied.data()), x.dtype, Layout::contiguous(layout.shape)};
  copy(pool, std::span(&x, 1), std::span(&whole, 1), {});
  return copied.data();
}

void multiply(ThreadPool& pool, const QuantProduct& p, QuantTarget::Task task) {
  const int64_t groups = (p.packing.n + quant::kPackedRows - 1) / quant::kPackedRows;
  const int64_t pieces = (p.m + kTaskRows - 1) / kTaskRows;
  // A task of less than 32 Ki products is not worth a turn of its own.
  const int64_t work = quant::kPackedRows * p.packing.k * std::min(p.m, kTaskRows);
  const auto grain = static_cast<size_t>(std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(work, 1)));
  pool.for_each(static_cast<size_t>(groups * pieces), grain, [&](size_t begin, size_t end) {
    for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end);) {
      const int64_t row = i / groups * kTaskRows, group = i % groups,
                    count = std::min(groups - group, static_cast<int64_t>(end) - i);
      task(p, group, group + count, row, std::min(kTaskRows, p.m - row));
      i += count;
    }
  });
}

QuantProduct product_of(std::span<const Tensor> inputs, const Tensor& y, const Attrs& attrs) {
  const quant::Type type = quant::type_from_name(attrs.text("type"));
  quant::Packing packing(type, attrs.integer("n"), attrs.integer("k"), quant::kPackedRows);
  const int64_t m = packing.n > 0 ? element_count(y.layout.shape) / packing.n : 0;
  return {std::move(packing), inputs[1].as<uint32_t>() + inputs[1].layout.offset, nullptr, nullptr, m,
          y.as<float>()};
}

}  // namespace

void qmatmul_packed(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                    const Attrs& attrs) {
  QuantProduct p = product_of(inputs, outputs[0], attrs);
  std::vector<float> copied;
  p.x = without_gaps(pool, inputs[0], copied);
  multiply(pool, p, best_target().floats(quant::coding(p.packing.type)));
}

void qmatmul_codes(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                   const Attrs& attrs) {
  QuantProduct p = product_of(inputs, outputs[0], attrs);
  std::vector<uint32_t> copied;
  p.codes = without_gaps(pool, inputs[0], copied);
  multiply(pool, p, best_target().codes(quant::coding(p.packing.type), attrs.integer("bits")));
}

void activation_codes(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                      const Attrs& attrs) {
  const int64_t bits = attrs.integer("bits");
  std::vector<float> copied;
  const float* x = without_gaps(pool, inputs[0], copied);
  const int64_t k = inputs[0].layout.shape.back(),
                rows = k > 0 ? element_count(inputs[0].layout.shape) / k : 0;
  const QuantTarget& target = best_target();
  pool.for_each(static_cast<size_t>(rows),
                static_cast<size_t>(std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(k, 1))),
                [&](size_t begin, size_t end) {
                  for (auto row = static_cast<int64_t>(begin); row < static_cast<int64_t>(end); ++row)
                    target.encode(x + row * k, k, bits,
                                  outputs[0].as<uint32_t>() + row * k / 32 * (bits + 4));
                });
}

}  // namespace weft::cpu
#endif
