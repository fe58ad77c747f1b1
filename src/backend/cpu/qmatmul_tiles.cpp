// Products with packed weights by the tile registers of Intel's AMX: 16 rows of x times 16 rows of weights,
// 32 elements in one instruction. Words of 16 interleaved rows (quant/packing.h), unpacked to bytes, are such
// a tile as they are. Scales belong to 16 or 32 elements, so each product of tiles goes through memory into
// vectors of floats; these do what qmatmul.cpp does, in the same order, and the results are the same bits.

// AVX-512 with VNNI is what every processor with tiles has; the baseline cannot be left out, and stays empty.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_WANT_AVX3_DL

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/qmatmul_tiles.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file again for each target.
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "backend/cpu/amx.h"
#include "backend/cpu/gemm_parts.h"
#include "backend/cpu/qmatmul_weights.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3_DL

constexpr int64_t kSide = 16;  // rows of a tile
static_assert(kPackedRows == kSide && kTaskRows % kSide == 0 && kLanes == kSide);

// ---- tile registers

// What is in them: sums of 16 rows of x and of what is left of them (codes, rests), x, weights.
enum Tile { kSums, kRestSums, kX, kLastSums, kLastRestSums, kLastX, kWeights };

template <int kTile>
HWY_INLINE void load_tile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void store_tile(int32_t* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(kSide * 4), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
/// Signed bytes of both.
template <int kTo, int kLeft, int kRight>
HWY_INLINE void multiply_tiles() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kTo), "i"(kLeft), "i"(kRight));
}

/// The shapes of this thread's tiles, for as long as it lives; then those that another library may have set.
class TileShapes {
 public:
  /// For products of so many bytes, and `last` rows of x in the tiles named so.
  TileShapes(int64_t bytes, int64_t last) {
    Shapes shapes{.palette = 1};
    const auto set = [&](Tile tile, int64_t rows, int64_t row_bytes) {
      shapes.rows[tile] = static_cast<uint8_t>(rows);
      shapes.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
    };
    for (const Tile tile : {kSums, kRestSums}) set(tile, kSide, kSide * 4);
    for (const Tile tile : {kLastSums, kLastRestSums}) set(tile, last, kSide * 4);
    set(kX, kSide, bytes);
    set(kLastX, last, bytes);
    set(kWeights, bytes / 4, kSide * 4);
    asm volatile("sttilecfg %0" : "=m"(before_));
    asm volatile("ldtilecfg %0" : : "m"(shapes));
  }
  ~TileShapes() { asm volatile("ldtilecfg %0" : : "m"(before_)); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;

 private:
  struct alignas(64) Shapes {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  Shapes before_;
};

// ---- products

struct Memory {
  Scratch weights, scales, facts;
};
thread_local Memory memory;

/// What 16 rows of weights and of x have for 32 elements.
template <Scales kScales>
struct Block {
  static constexpr int kGroups = BlockScales<kScales>::kGroups;
  static constexpr bool kMinimum = quant::has_minimum(kScales);

  struct Weights {
    uint32_t words[8][kSide];
  };
  struct WeightScales {
    float scale[kGroups][kSide], min[kGroups][kSide];  // min: where the type has one
  };
  struct Facts {
    float scale[kSide];
    // What a group's minimum is multiplied with, or else what its products begin with.
    std::conditional_t<kMinimum, float, int32_t> term[kGroups][kSide];
  };
};

template <uint32_t kBits, bool kTable, Scales kScales, int kBytes>
class TileProduct {
 public:
  TileProduct(const QuantProduct& p, int64_t row, int64_t rows)
      : p_(p),
        coding_(quant::coding(p.packing.type)),
        table_(coding_),
        weights_(p),
        blocks_(p.packing.k / 32),
        tile_blocks_(std::min(p.packing.tile / 32, blocks_)),
        row_(row),
        rows_(rows),
        x_stride_(blocks_ * (kWords + kFactsWords)),
        x_(p.codes + row * x_stride_) {}

  /// Groups of rows of weights [begin, end).
  void run(int64_t begin, int64_t end) const {
    const int64_t sets = ceil_div(rows_, kSide);
    const TileShapes shapes(32 / Of::kGroups, (rows_ - 1) % kSide + 1);
    auto* facts = room<typename Of::Facts>(memory.facts, sets * blocks_);
    for (int64_t set = 0; set < sets; ++set) gather(set, facts + set * blocks_);
    auto* words = room<typename Of::Weights>(memory.weights, quant::kPanelGroups * tile_blocks_);
    auto* scales = room<typename Of::WeightScales>(memory.scales, quant::kPanelGroups * tile_blocks_);
    HWY_ALIGN float sums[quant::kPanelGroups][kTaskRows * kSide];
    for (int64_t group = begin; group < end;) {
      const int64_t groups = std::min(quant::kPanelGroups - group % quant::kPanelGroups, end - group);
      for (int64_t g = 0; g < groups; ++g) std::fill_n(sums[g], sets * kSide * kSide, 0.0f);
      for (int64_t first = 0; first < blocks_; first += tile_blocks_) {
        const int64_t count = std::min(tile_blocks_, blocks_ - first);
        for (int64_t g = 0; g < groups; ++g)
          unpack(group + g, first, words + g * tile_blocks_, scales + g * tile_blocks_);
        for (int64_t set = 0; set < sets; ++set)
          for (int64_t at = 0; at < count; at += kTogether)
            for (int64_t g = 0; g < groups; ++g) {
              const Part part{x_ + set * kSide * x_stride_ + (first + at) * kWords,
                              words + g * tile_blocks_ + at, scales + g * tile_blocks_ + at,
                              facts + set * blocks_ + first + at, std::min(kTogether, count - at)};
              float* to = sums[g] + set * kSide * kSide;
              set + 1 < sets ? add<kX, kSums, kRestSums>(part, to)
                             : add<kLastX, kLastSums, kLastRestSums>(part, to);
            }
      }
      for (int64_t g = 0; g < groups; ++g, ++group) store(p_, group, row_, rows_, sums[g]);
    }
  }

 private:
  using Of = Block<kScales>;
  static constexpr bool kOffset = !Of::kMinimum && !kTable && kBits < 8;
  static constexpr int64_t kWords = int64_t{8} * kBytes;  // of the codes of 32 elements
  // Blocks that 16 rows of x go through at a time: 16 KiB of codes, which stay in L1 for the next 16 rows of
  // weights.
  static constexpr int64_t kTogether = 16;

  struct Part {
    const uint32_t* x;
    const typename Of::Weights* words;
    const typename Of::WeightScales* scales;
    const typename Of::Facts* facts;
    int64_t blocks;
  };

  template <typename T>
  static T* room(Scratch& memory, int64_t count) {
    return reinterpret_cast<T*>(memory.floats(count * static_cast<int64_t>(sizeof(T) / sizeof(float))));
  }

  void gather(int64_t set, typename Of::Facts* to) const {
    for (int64_t i = 0; i < kSide; ++i) {
      // What is behind the last row counts nothing, but is a number.
      const int64_t row = std::min(set * kSide + i, rows_ - 1);
      const auto* facts = reinterpret_cast<const CodeFacts*>(x_ + row * x_stride_ + blocks_ * kWords);
      for (int64_t block = 0; block < blocks_; ++block) {
        const CodeFacts& of = facts[block];
        to[block].scale[i] = of.scale;
        for (int g = 0; g < Of::kGroups; ++g) {
          if constexpr (Of::kMinimum)
            to[block].term[g][i] = Of::kGroups == 1 ? of.total : of.scale * static_cast<float>(of.sums[g]);
          else
            to[block].term[g][i] =
                -coding_.offset * (Of::kGroups == 1 ? of.sums[0] + of.sums[1] : of.sums[g]);
        }
      }
    }
  }

  void unpack(int64_t group, int64_t first, typename Of::Weights* words,
              typename Of::WeightScales* scales) const {
    const auto visit = [&](int64_t block, int64_t, const Units& units, SpanScales<kScales>& span) HWY_ATTR {
      [&]<uint32_t... kWord>(std::integer_sequence<uint32_t, kWord...>) HWY_ATTR {
        (hn::Store(levels<kTable>(code_bytes<kBits, kWord>(units), table_.bytes), Words(),
                   words[block - first].words[kWord]),
         ...);
      }(std::make_integer_sequence<uint32_t, 8>());
      const BlockScales<kScales> of = span.take();
      for (int g = 0; g < Of::kGroups; ++g) {
        hn::Store(of.groups[g].scale, Floats(), scales[block - first].scale[g]);
        if constexpr (Of::kMinimum) hn::Store(of.groups[g].min, Floats(), scales[block - first].min[g]);
      }
    };
    weights_.visit_tile(group, first * 32, visit, [](auto...) {});
  }

  /// The tiles' products of a block, for add() to take from `to`.
  template <int kXTile, int kSumsTile, int kRestSumsTile>
  HWY_INLINE void multiply(const Part& part, int64_t block, int32_t (*to)[kBytes][kSide * kSide]) const {
    const int64_t stride = x_stride_ * 4;
    for (int g = 0; g < Of::kGroups; ++g) {
      const uint32_t* x = part.x + block * kWords + g * 8 / Of::kGroups;
      load_tile<kWeights>(part.words[block].words[g * 8 / Of::kGroups], kSide * 4);
      load_tile<kXTile>(x, stride);
      clear_tile<kSumsTile>();
      multiply_tiles<kSumsTile, kXTile, kWeights>();
      store_tile<kSumsTile>(to[g][0]);
      if constexpr (kBytes == 2) {
        load_tile<kXTile>(x + 8, stride);
        clear_tile<kRestSumsTile>();
        multiply_tiles<kRestSumsTile, kXTile, kWeights>();
        store_tile<kRestSumsTile>(to[g][1]);
      }
    }
  }

  /// sums (16, 16) += x w^T. The next block's tiles are multiplied while this one's sums are taken.
  template <int kXTile, int kSumsTile, int kRestSumsTile>
  void add(const Part& part, float* sums) const {
    const Floats d;
    HWY_ALIGN int32_t products[2][Of::kGroups][kBytes][kSide * kSide];
    FloatVector sum[kSide];
    const auto each_row = [](const auto& body) HWY_ATTR {
      [&]<int... kRow>(std::integer_sequence<int, kRow...>)
          HWY_ATTR { (body.template operator()<kRow>(), ...); }(std::make_integer_sequence<int, kSide>());
    };
    each_row([&]<int kRow>() HWY_ATTR { sum[kRow] = hn::Load(d, sums + kRow * kSide); });
    multiply<kXTile, kSumsTile, kRestSumsTile>(part, 0, products[0]);
    for (int64_t block = 0; block < part.blocks; ++block) {
      if (block + 1 < part.blocks)
        multiply<kXTile, kSumsTile, kRestSumsTile>(part, block + 1, products[(block + 1) % 2]);
      const typename Of::Facts& facts = part.facts[block];
      for (int g = 0; g < Of::kGroups; ++g) {
        const auto* of = products[block % 2][g];
        const FloatVector scale = hn::Load(d, part.scales[block].scale[g]);
        FloatVector min = hn::Undefined(d);
        if constexpr (Of::kMinimum) min = hn::Load(d, part.scales[block].min[g]);
        each_row([&]<int kRow>() HWY_ATTR {
          IntVector product = hn::Load(Ints(), of[kBytes - 1] + kRow * kSide);
          if constexpr (kBytes == 2)
            product = hn::Add(hn::ShiftLeft<8>(hn::Load(Ints(), of[0] + kRow * kSide)), product);
          if constexpr (kOffset) product = hn::Add(product, hn::Set(Ints(), facts.term[g][kRow]));
          const FloatVector scaled = hn::Mul(hn::ConvertTo(d, product), scale);
          sum[kRow] = hn::MulAdd(scaled, hn::Set(d, facts.scale[kRow]), sum[kRow]);
          if constexpr (Of::kMinimum) sum[kRow] = hn::MulAdd(hn::Set(d, facts.term[g][kRow]), min, sum[kRow]);
        });
      }
    }
    each_row([&]<int kRow>() HWY_ATTR { hn::Store(sum[kRow], d, sums + kRow * kSide); });
  }

  const QuantProduct& p_;
  const quant::Coding& coding_;
  const Table table_;
  const Blocks<kBits, kScales> weights_;
  const int64_t blocks_, tile_blocks_, row_, rows_, x_stride_;
  const uint32_t* x_;
};

template <uint32_t kBits, bool kTable, Scales kScales, int kBytes>
void multiply(const QuantProduct& p, int64_t begin, int64_t end, int64_t row, int64_t rows) {
  TileProduct<kBits, kTable, kScales, kBytes>(p, row, rows).run(begin, end);
}

QuantTasks tasks(const quant::Coding& coding) {
  if (!has_tiles()) return {};
  return for_coding(coding, []<uint32_t kBits, bool kTable, Scales kScales>() -> QuantTasks {
    return {nullptr, multiply<kBits, kTable, kScales, 1>, multiply<kBits, kTable, kScales, 2>};
  });
}

#else

QuantTasks tasks(const quant::Coding&) {
  return {};
}

#endif

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(tasks);

QuantTasks tile_tasks(const quant::Coding& coding) {
  return HWY_DYNAMIC_DISPATCH(tasks)(coding);
}

}  // namespace weft::cpu
#endif
