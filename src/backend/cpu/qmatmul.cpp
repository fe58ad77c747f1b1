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

#include "backend/cpu/amx.h"
#include "backend/cpu/primitives.h"
#include "backend/cpu/qmatmul_weights.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

// ---- float activations

/// sums[i] += x[i] panel for kRows rows of x, 32 elements each. 8 sums are on their way at any time.
template <int64_t kRows>
HWY_INLINE void multiply_panel(const float* panel, const float* x, int64_t x_stride, float* sums) {
  const Floats d;
  constexpr int64_t kParts = 8 / kRows;
  FloatVector part[kRows][kParts];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t q = 0; q < kParts; ++q) part[i][q] = hn::Zero(d);
  for (int64_t e = 0; e < 32; e += kParts)
    for (int64_t q = 0; q < kParts; ++q) {
      const FloatVector w = hn::Load(d, panel + (e + q) * kLanes);
      for (int64_t i = 0; i < kRows; ++i)
        part[i][q] = hn::MulAdd(hn::Set(d, x[i * x_stride + e + q]), w, part[i][q]);
    }
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t half = kParts / 2; half > 0; half /= 2)
      for (int64_t q = 0; q < half; ++q) part[i][q] = hn::Add(part[i][q], part[i][q + half]);
    float* sum = sums + i * kPackedRows;
    hn::Store(hn::Add(hn::Load(d, sum), part[i][0]), d, sum);
  }
}

/// Levels of 4 elements of each row, times the scale of their group, plus its minimum.
template <uint32_t kBits, bool kTable, uint32_t kWord>
HWY_INLINE void put_panel(const Units& units, const uint8_t* table, const GroupScale& group, float* panel) {
  const Floats d;
  constexpr bool kSigned = kTable || kBits == 8;
  const WordVector four = levels<kTable>(code_bytes<kBits, kWord>(units), table);
  const auto put = [&]<int kByte>() HWY_ATTR {
    IntVector level;
    if constexpr (kSigned)
      level = hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kByte>(hn::BitCast(Ints(), four)));
    else
      level = hn::BitCast(Ints(), hn::And(hn::ShiftRight<8 * kByte>(four), hn::Set(Words(), 255u)));
    hn::Store(hn::MulAdd(hn::ConvertTo(d, level), group.scale, group.min), d,
              panel + (4 * kWord + kByte) * kLanes);
  };
  put.template operator()<0>();
  put.template operator()<1>();
  put.template operator()<2>();
  put.template operator()<3>();
}

template <uint32_t kBits, bool kTable, Scales kScales>
void multiply_floats(const QuantProduct& p, int64_t begin, int64_t end, int64_t row, int64_t rows) {
  const quant::Coding& coding = quant::coding(p.packing.type);
  const FloatVector offset = hn::Set(Floats(), static_cast<float>(-coding.offset));
  const Table table(coding);
  HWY_ALIGN float sums[kTaskRows * kPackedRows];
  HWY_ALIGN float panel[32 * kLanes];
  const int64_t k = p.packing.k;
  // In one place: what is taken apart meets many rows.
  const auto visit = [&](int64_t block, int64_t lane, const Units& units,
                         SpanScales<kScales>& span) HWY_ATTR {
    BlockScales<kScales> scales = span.take();
    if constexpr (!quant::has_minimum(kScales))
      for (GroupScale& group : scales.groups) group.min = hn::Mul(group.scale, offset);
    [&]<uint32_t... kWord>(std::integer_sequence<uint32_t, kWord...>) HWY_ATTR {
      (put_panel<kBits, kTable, kWord>(units, table.bytes, scales.groups[kWord * scales.kGroups / 8], panel),
       ...);
    }(std::make_integer_sequence<uint32_t, 8>());
    const float* x = p.x + row * k + block * 32;
    float* to = sums + lane;
    int64_t i = 0;
    for (; i + 8 <= rows; i += 8) multiply_panel<8>(panel, x + i * k, k, to + i * kPackedRows);
    if (rows - i >= 4) multiply_panel<4>(panel, x + i * k, k, to + i * kPackedRows), i += 4;
    if (rows - i >= 2) multiply_panel<2>(panel, x + i * k, k, to + i * kPackedRows), i += 2;
    if (rows - i >= 1) multiply_panel<1>(panel, x + i * k, k, to + i * kPackedRows);
  };
  const Blocks<kBits, kScales> weights(p);
  for (int64_t group = begin; group < end; ++group) {
    std::fill_n(sums, rows * kPackedRows, 0.0f);
    for (int64_t first = 0; first < k; first += p.packing.tile)
      weights.visit_tile(group, first, visit, [](auto...) {});
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

/// The codes of 32 elements of as many rows of weights as a vector has lanes, unpacked when they are asked
/// for.
template <uint32_t kBits, bool kTable>
struct PackedCodes {
  template <uint32_t kWord>
  HWY_INLINE WordVector word() const {
    return levels<kTable>(code_bytes<kBits, kWord>(units), table);
  }

  Units units;
  const uint8_t* table;
};

/// The same, ready for products with many x.
struct UnpackedCodes {
  template <uint32_t kBits, bool kTable>
  HWY_INLINE explicit UnpackedCodes(const PackedCodes<kBits, kTable>& packed) {
    [&]<uint32_t... kWord>(std::integer_sequence<uint32_t, kWord...>) HWY_ATTR {
      ((words[kWord] = packed.template word<kWord>()), ...);
    }(std::make_integer_sequence<uint32_t, 8>());
  }
  template <uint32_t kWord>
  HWY_INLINE WordVector word() const {
    return words[kWord];
  }

  WordVector words[8];
};

/// Products of 32 elements, of which codes of x have kBytes bytes each.
template <uint32_t kBits, bool kTable, Scales kScales, int kBytes>
struct BlockProduct {
  static constexpr bool kSigned = kTable || kBits == 8, kMinimum = quant::has_minimum(kScales);
  static constexpr int kGroups = BlockScales<kScales>::kGroups;

  /// Levels times a group of x, in units of its scale. Either the type has minima or its codes an offset,
  /// never both; offsets are taken off here.
  template <int kGroup, typename Codes>
  HWY_INLINE IntVector of(const Codes& w) const {
    IntVector bytes[2] = {hn::Zero(Ints()), hn::Zero(Ints())};  // codes, rests
    if constexpr (!kMinimum)
      bytes[kBytes - 1] =
          hn::Set(Ints(), -offset * (kGroups == 1 ? facts.sums[0] + facts.sums[1] : facts.sums[kGroup]));
    const auto add = [&]<uint32_t kWord>() HWY_ATTR {
      const WordVector word = w.template word<kWord>();
      for (int64_t b = 0; b < kBytes; ++b) bytes[b] = dot<kSigned>(bytes[b], word, x + b * 8 + kWord);
    };
    constexpr uint32_t kWords = 8 / kGroups;
    [&]<uint32_t... kWord>(std::integer_sequence<uint32_t, kWord...>) HWY_ATTR {
      (add.template operator()<kGroup * kWords + kWord>(), ...);
    }(std::make_integer_sequence<uint32_t, kWords>());
    return kBytes == 2 ? hn::Add(hn::ShiftLeft<8>(bytes[0]), bytes[1]) : bytes[0];
  }
  /// What a group's minimum is multiplied with.
  HWY_INLINE FloatVector x_sum(int g) const {
    return hn::Set(Floats(), kGroups == 1 ? facts.total : facts.scale * static_cast<float>(facts.sums[g]));
  }
  /// add.operator()<kGroup>() for all groups.
  template <typename Add>
  static HWY_INLINE void for_groups(const Add& add) {
    add.template operator()<0>();
    if constexpr (kGroups == 2) add.template operator()<1>();
  }

  /// sum + all of them.
  template <typename Codes>
  HWY_INLINE FloatVector add_to(FloatVector sum, const Codes& w, const BlockScales<kScales>& scales) const {
    const Floats d;
    for_groups([&]<int kGroup>() HWY_ATTR {
      const auto& [scale, min] = scales.groups[kGroup];
      const FloatVector scaled = hn::Mul(hn::ConvertTo(d, of<kGroup>(w)), scale);
      sum = hn::MulAdd(scaled, hn::Set(d, facts.scale), sum);
      if constexpr (kMinimum) sum = hn::MulAdd(x_sum(kGroup), min, sum);
    });
    return sum;
  }

  const uint32_t* x;
  const CodeFacts& facts;
  int offset;
};

/// What the blocks of a span add up to, before its factors multiply it.
template <Scales kScales>
class SpanSum {
 public:
  HWY_INLINE SpanSum() : scaled_(hn::Zero(Floats())), minima_(scaled_) {}

  template <typename Product, typename Codes>
  HWY_INLINE void add(const Product& product, const Codes& w, const BlockParts<kScales>& parts) {
    const Floats d;
    Product::for_groups([&]<int kGroup>() HWY_ATTR {
      const IntVector products = product.template of<kGroup>(w);
      const auto& [scale, min] = parts.groups[kGroup];
      // 31 bits hold them times the part, but where levels are large.
      const FloatVector scaled = Product::kSigned
                                     ? hn::Mul(hn::ConvertTo(d, products), hn::ConvertTo(d, scale))
                                     : hn::ConvertTo(d, hn::Mul(products, scale));
      scaled_ = hn::MulAdd(scaled, hn::Set(d, product.facts.scale), scaled_);
      if constexpr (Product::kMinimum)
        minima_ = hn::MulAdd(hn::ConvertTo(d, min), product.x_sum(kGroup), minima_);
    });
  }
  /// Added to `sum`, and gone.
  HWY_INLINE void move_to(FloatVector& sum, const SpanScales<kScales>& scales) {
    sum = hn::MulAdd(scaled_, scales.factor(), sum);
    if constexpr (quant::has_minimum(kScales)) sum = hn::MulAdd(minima_, scales.min_factor(), sum);
    scaled_ = minima_ = hn::Zero(Floats());
  }

 private:
  FloatVector scaled_, minima_;
};

/// One row of x. The weights are read in the order in which they lie: panel, tile, group of rows.
template <uint32_t kBits, bool kTable, Scales kScales, int kBytes>
void multiply_row(const QuantProduct& p, int64_t begin, int64_t end, int64_t row) {
  using Product = BlockProduct<kBits, kTable, kScales, kBytes>;
  using Span = SpanScales<kScales>;
  const Floats d;
  const quant::Coding& coding = quant::coding(p.packing.type);
  const Table table(coding);
  constexpr int64_t kWords = int64_t{8} * kBytes;  // of the codes of 32 elements
  const int64_t blocks = p.packing.k / 32;
  const uint32_t* codes = p.codes + row * blocks * (kWords + kFactsWords);
  const auto* facts = reinterpret_cast<const CodeFacts*>(codes + blocks * kWords);
  const int offset = coding.offset + (Product::kSigned ? kBias : 0);
  HWY_ALIGN float sums[quant::kPanelGroups * kPackedRows];
  const Blocks<kBits, kScales> weights(p);
  while (begin < end) {
    const int64_t groups = std::min(quant::kPanelGroups - begin % quant::kPanelGroups, end - begin);
    std::fill_n(sums, groups * kPackedRows, 0.0f);
    for (int64_t first = 0; first < p.packing.k; first += p.packing.tile)
      for (int64_t g = 0; g < groups; ++g) {
        FloatVector sum[kPackedRows / kLanes];  // in registers
        float* to = sums + g * kPackedRows;
        for (int64_t i = 0; i < kPackedRows / kLanes; ++i) sum[i] = hn::Load(d, to + i * kLanes);
        SpanSum<kScales> span;
        weights.visit_tile(
            begin + g, first,
            [&](int64_t block, int64_t lane, const Units& units, Span& scales) HWY_ATTR
            __attribute__((always_inline)) {
              const PackedCodes<kBits, kTable> w{units, table.bytes};
              const Product product{codes + block * kWords, facts[block], offset};
              FloatVector& s = sum[lane / kLanes];
              if constexpr (Span::kHasParts)
                span.add(product, w, scales.take_parts());
              else
                s = product.add_to(s, w, scales.take());
            },
            [&](int64_t lane, const Span& scales) HWY_ATTR __attribute__((always_inline)) {
              if constexpr (Span::kHasParts) span.move_to(sum[lane / kLanes], scales);
            });
        for (int64_t i = 0; i < kPackedRows / kLanes; ++i) hn::Store(sum[i], d, to + i * kLanes);
      }
    for (int64_t g = 0; g < groups; ++g, ++begin) store(p, begin, row, 1, sums + g * kPackedRows);
  }
}

template <uint32_t kBits, bool kTable, Scales kScales, int kBytes>
void multiply_codes(const QuantProduct& p, int64_t begin, int64_t end, int64_t row, int64_t rows) {
  if (rows == 1) return multiply_row<kBits, kTable, kScales, kBytes>(p, begin, end, row);
  using Product = BlockProduct<kBits, kTable, kScales, kBytes>;
  const Floats d;
  const quant::Coding& coding = quant::coding(p.packing.type);
  const Table table(coding);
  constexpr int64_t kWords = int64_t{8} * kBytes;  // of the codes of 32 elements
  const int64_t blocks = p.packing.k / 32, stride = blocks * (kWords + kFactsWords);
  const uint32_t* codes = p.codes + row * stride;
  const int offset = coding.offset + (Product::kSigned ? kBias : 0);
  HWY_ALIGN float sums[kTaskRows * kPackedRows];
  const Blocks<kBits, kScales> weights(p);
  const auto visit = [&](int64_t block, int64_t lane, const Units& units,
                         SpanScales<kScales>& span) HWY_ATTR {
    const UnpackedCodes w(PackedCodes<kBits, kTable>{units, table.bytes});
    const BlockScales<kScales> scales = span.take();
    for (int64_t i = 0; i < rows; ++i) {
      const uint32_t* x = codes + i * stride;
      const auto& facts = reinterpret_cast<const CodeFacts*>(x + blocks * kWords)[block];
      float* to = sums + i * kPackedRows + lane;
      const Product product{x + block * kWords, facts, offset};
      hn::Store(product.add_to(hn::Load(d, to), w, scales), d, to);
    }
  };
  for (int64_t group = begin; group < end; ++group) {
    std::fill_n(sums, rows * kPackedRows, 0.0f);
    for (int64_t first = 0; first < p.packing.k; first += p.packing.tile)
      weights.visit_tile(group, first, visit, [](auto...) {});
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
    facts->scale = largest / (rests ? 127.0f * 256 : 127.0f);
    facts->total = facts->scale * static_cast<float>(facts->sums[0] + facts->sums[1]);
  }
}

// ---- choice

QuantTasks tasks(const quant::Coding& coding) {
  return for_coding(coding, []<uint32_t kBits, bool kTable, Scales kScales>() -> QuantTasks {
    return {multiply_floats<kBits, kTable, kScales>, multiply_codes<kBits, kTable, kScales, 1>,
            multiply_codes<kBits, kTable, kScales, 2>};
  });
}

const QuantTarget* target() {
  static constexpr QuantTarget kTarget{tasks, encode};
  return &kTarget;
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
namespace {

HWY_EXPORT(target);

// Rows of x from which tiles are faster (8 rows: 179 GFLOP/s instead of 275, 64: 401 instead of 261, Q4_K on
// an Emerald Rapids), and groups of rows of weights that one task of tiles takes.
constexpr int64_t kTileRows = 16, kTileGroups = 16;

const QuantTarget& best_target() {
  return *HWY_DYNAMIC_DISPATCH(target)();
}

QuantProduct product_of(std::span<const Tensor> inputs, const Tensor& y, const Attrs& attrs) {
  const quant::Type type = quant::type_from_name(attrs.text("type"));
  quant::Packing packing(type, attrs.integer("n"), attrs.integer("k"), quant::kPackedRows);
  const int64_t m = packing.n > 0 ? element_count(y.layout.shape) / packing.n : 0;
  return {std::move(packing), inputs[1].as<uint32_t>() + inputs[1].layout.offset, nullptr, nullptr, m,
          y.as<float>()};
}

}  // namespace

void multiply(ThreadPool& pool, std::span<const QuantProduct> products, int64_t bits) {
  struct Piece {
    const QuantProduct* product;
    int64_t row;  // of x, the first of kTaskRows
  };
  std::vector<Piece> pieces;
  for (const QuantProduct& product : products)
    for (int64_t row = 0; row < product.m; row += kTaskRows) pieces.push_back({&product, row});
  if (pieces.empty()) return;
  const quant::Packing& packing = products[0].packing;
  const int64_t m = products[0].m;
  const int64_t groups = (packing.n + quant::kPackedRows - 1) / quant::kPackedRows;
  const quant::Coding& coding = quant::coding(packing.type);
  const QuantTask vectors = best_target().tasks(coding).of(bits),
                  tiles = m < kTileRows ? nullptr : tile_tasks(coding).of(bits);
  // A task of less than 32 Ki products is not worth a turn of its own.
  const int64_t work = quant::kPackedRows * packing.k * std::min(m, kTaskRows);
  int64_t grain = std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(work, 1));
  // One row of x waits for memory, and with each piece for what has to be fetched before reading ahead sets
  // in again: 16 pieces for each thread, at most 512 rows, of whole panels if possible.
  if (m == 1) {
    const int64_t share = std::min<int64_t>(groups / (int64_t{16} * pool.threads()), 8 * quant::kPanelGroups);
    grain = std::max(grain,
                     share < quant::kPanelGroups ? share : share / quant::kPanelGroups * quant::kPanelGroups);
  }
  // Tiles gather what they need of x for all of a task.
  if (tiles)
    grain = std::max(grain, std::clamp<int64_t>(groups * std::ssize(pieces) / (int64_t{8} * pool.threads()),
                                                1, kTileGroups));
  pool.for_each(static_cast<size_t>(groups * std::ssize(pieces)), static_cast<size_t>(grain),
                [&](size_t begin, size_t end) {
                  for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end);) {
                    const auto& [product, row] = pieces[static_cast<size_t>(i / groups)];
                    const int64_t group = i % groups,
                                  count = std::min(groups - group, static_cast<int64_t>(end) - i);
                    const int64_t rows = std::min(kTaskRows, product->m - row);
                    (tiles && rows >= kTileRows ? tiles : vectors)(*product, group, group + count, row, rows);
                    i += count;
                  }
                });
}

void qmatmul_packed(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                    const Attrs& attrs) {
  QuantProduct p = product_of(inputs, outputs[0], attrs);
  std::vector<float> copied;
  p.x = without_gaps(pool, inputs[0], copied);
  multiply(pool, std::span(&p, 1), 0);
}

void qmatmul_codes(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                   const Attrs& attrs) {
  QuantProduct p = product_of(inputs, outputs[0], attrs);
  std::vector<uint32_t> copied;
  p.codes = without_gaps(pool, inputs[0], copied);
  multiply(pool, std::span(&p, 1), attrs.integer("bits"));
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
                                  outputs[0].as<uint32_t>() + row * k / 32 * (bits + kFactsWords));
                });
}

}  // namespace weft::cpu
#endif
