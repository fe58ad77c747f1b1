// Attention over rows of a cache. Tokens of one sequence that follow each other are a block, whose visible
// keys are found once. The heads that share a key head are rows of one product; few rows take the keys in
// pieces whose results are joined, so that threads have something to share.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "backend/attention.h"
#include "backend/cpu/attention_target.h"
#include "backend/cpu/gemm_parts.h"
#include "backend/cpu/gemm_target.h"
#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"
#include "base/error.h"

namespace weft::cpu {
namespace {

constexpr int64_t kBlockRows = 128, kKeyBlock = 256;  // 128 KiB of scores: with its neighbours in L2
constexpr int64_t kThinRows = 16;                     // rows up to which keys are not packed, and split

/// Memory of a thread, one per role.
struct Workspace {
  Scratch q, keys, values, packed, scores, bias, sums;
};
thread_local Workspace workspace;

std::vector<int32_t> integers(const Tensor& x) {
  if (x.dtype == DType::i32 && x.layout.strides[0] == 1) {
    const int32_t* first = x.as<int32_t>() + x.layout.offset;
    return {first, first + x.layout.shape[0]};
  }
  std::vector<int64_t> wide(static_cast<size_t>(x.layout.shape[0]));
  load_run(x, x.layout.offset, x.layout.strides[0], std::ssize(wide), wide.data());
  return {wide.begin(), wide.end()};
}

/// A number per head; empty without an input.
std::vector<float> per_head(std::span<const Tensor> inputs, size_t i) {
  if (i >= inputs.size() || !inputs[i].data) return {};
  std::vector<float> values(static_cast<size_t>(inputs[i].layout.shape[0]));
  load_run(inputs[i], inputs[i].layout.offset, inputs[i].layout.strides[0], std::ssize(values),
           values.data());
  return values;
}

/// Keys or values: rows of `columns` elements per head.
class CacheRows {
 public:
  CacheRows(const Tensor& x, int64_t columns, std::optional<quant::Type> type)
      : x_(x), columns_(columns), head_size_(columns), type_(type) {
    if (type) head_size_ = static_cast<int64_t>(quant::row_bytes(*type, static_cast<uint64_t>(columns)));
  }

  int64_t count() const { return x_.layout.shape[0]; }
  int64_t columns() const { return columns_; }

  /// Rows from `row` on where they are, if they are floats side by side.
  std::optional<Strip> in_place(int64_t row, int64_t head) const {
    if (type_ || x_.layout.strides[1] != 1) return std::nullopt;
    const int64_t at = x_.layout.offset + row * x_.layout.strides[0] + head * head_size_;
    return Strip{x_.data + at * static_cast<int64_t>(size_of(x_.dtype)), x_.dtype, x_.layout.strides[0], 1};
  }

  void load(int64_t row, int64_t head, float* to) const {
    const int64_t stride = x_.layout.strides[1],
                  at = x_.layout.offset + row * x_.layout.strides[0] + head * head_size_ * stride;
    if (!type_) return load_run(x_, at, stride, columns_, to);
    const std::byte* from = x_.data + at;
    std::vector<std::byte> copied;
    if (stride != 1) {
      copied.resize(static_cast<size_t>(head_size_));
      copy_run(1, from, stride, copied.data(), 1, head_size_);
      from = copied.data();
    }
    quant::dequantize(*type_, from, to, static_cast<uint64_t>(columns_));
  }

 private:
  const Tensor& x_;
  int64_t columns_, head_size_;  // of a head: elements, and what is stored for them
  std::optional<quant::Type> type_;
};

class CachedAttention {
 public:
  CachedAttention(std::span<const Tensor> inputs, const Tensor& out, const Attrs& attrs)
      : problem_(inputs[0].layout.shape, inputs[1].layout.shape, inputs[2].layout.shape, attrs),
        q_(inputs[0]),
        keys_(inputs[1], problem_.dim, problem_.type),
        values_(inputs[2], problem_.value_dim, problem_.type),
        key_rows_(integers(inputs[3])),
        key_positions_(integers(inputs[4])),
        key_sequences_(integers(inputs[5])),
        positions_(integers(inputs[6])),
        sequences_(integers(inputs[7])),
        sinks_(per_head(inputs, 8)),
        slopes_(per_head(inputs, 9)),
        out_(out.as<float>()) {
    for (int32_t row : key_rows_)
      if (row < 0 || row >= keys_.count())
        fail(ErrorKind::invalid, "[cached_attention] row {} is not one of {}", row, keys_.count());
  }

  void run(ThreadPool& pool) const {
    const std::vector<Block> all = blocks();
    std::vector<Piece> pieces;
    int64_t rows = 0;  // of all pieces
    for (const Block& block : all)
      for (int64_t head = 0; head < problem_.key_heads; ++head) {
        const auto keys = std::ssize(block.keys);
        const int64_t step = block.rows <= kThinRows ? kKeyBlock : std::max<int64_t>(keys, 1);
        const int64_t count = std::max<int64_t>(ceil_div(keys, step), 1);
        for (int64_t i = 0; i < count; ++i, rows += block.rows)
          pieces.push_back(
              {&block, head, i * step, std::min((i + 1) * step, keys), rows, i == 0 ? count : 0});
      }
    std::vector<float> sums(static_cast<size_t>(rows * problem_.value_dim));
    std::vector<RowSum> weights(static_cast<size_t>(rows));
    const auto sums_of = [&](const Piece& piece) { return sums.data() + piece.row * problem_.value_dim; };
    const auto weights_of = [&](const Piece& piece) { return weights.data() + piece.row; };

    const int64_t work = all[0].rows * std::min(kKeyBlock, std::ssize(key_rows_)) *
                         (problem_.dim + problem_.value_dim);  // of a piece, at least
    // A new token of 128 keys takes some 10 us, which is worth sharing.
    pool.for_each(pieces.size(),
                  static_cast<size_t>(ceil_div(kParallelWork / 32, std::max<int64_t>(work, 1))),
                  [&](size_t begin, size_t end) {
                    for (const Piece& piece : std::span(pieces).subspan(begin, end - begin)) {
                      add_up(piece, sums_of(piece), weights_of(piece));
                      if (piece.count == 1) finish(piece, sums_of(piece), weights_of(piece));
                    }
                  });
    for (const Piece& piece : pieces)
      if (piece.count > 1) {
        join(piece, sums_of(piece), weights_of(piece));
        finish(piece, sums_of(piece), weights_of(piece));
      }
  }

 private:
  struct Block {
    int64_t begin, end, rows;   // tokens, and those times the heads of a group
    std::vector<int32_t> keys;  // that one of the tokens sees
  };

  /// Keys [begin, end) of a block, for a key head.
  struct Piece {
    const Block* block;
    int64_t head, begin, end;
    int64_t row;    // where its results are
    int64_t count;  // pieces of this block and head, in the first of them
  };

  bool sees(int32_t position, int32_t key_position) const {
    return (!problem_.causal || key_position <= position) &&
           (problem_.window == 0 || position - key_position < problem_.window);
  }

  std::vector<Block> blocks() const {
    const int64_t most = std::max<int64_t>(kBlockRows / problem_.group(), 1);
    std::vector<Block> all;
    for (int64_t begin = 0, end = 0; begin < problem_.tokens; begin = end) {
      const int32_t sequence = sequences_[static_cast<size_t>(begin)];
      while (end < problem_.tokens && end - begin < most && sequences_[static_cast<size_t>(end)] == sequence)
        ++end;
      const auto [lowest, highest] =
          std::minmax_element(positions_.begin() + begin, positions_.begin() + end);
      Block block{begin, end, (end - begin) * problem_.group(), {}};
      const auto range = problem_.keys_of(sequence, *lowest, *highest, std::ssize(key_rows_));
      block.keys.reserve(static_cast<size_t>(range.size()));
      for (auto k = static_cast<size_t>(range.begin); k < static_cast<size_t>(range.end); ++k)
        if (key_sequences_[k] == sequence && (!problem_.causal || key_positions_[k] <= *highest) &&
            (problem_.window == 0 || *lowest - key_positions_[k] < problem_.window))
          block.keys.push_back(static_cast<int32_t>(k));
      all.push_back(std::move(block));
    }
    return all;
  }

  int64_t token_of(const Block& block, int64_t row) const { return block.begin + row / problem_.group(); }
  int64_t head_of(const Piece& piece, int64_t row) const {
    return piece.head * problem_.group() + row % problem_.group();
  }

  /// Times `scale`, (rows, dim).
  const float* queries(const Piece& piece) const {
    const Block& block = *piece.block;
    float* out = workspace.q.floats(block.rows * problem_.dim);
    const std::vector<int64_t>& strides = q_.layout.strides;
    for (int64_t r = 0; r < block.rows; ++r)
      load_run(q_, q_.layout.offset + token_of(block, r) * strides[0] + head_of(piece, r) * strides[1],
               strides[2], problem_.dim, out + r * problem_.dim);
    simd_.scale(out, block.rows * problem_.dim, problem_.scale);
    return out;
  }

  /// (keys, columns) of a head: where they are, or copied when keys lie here and there.
  Strip load(Scratch& to, const CacheRows& from, std::span<const int32_t> keys, int64_t head) const {
    const auto row = [&](int32_t key) { return key_rows_[static_cast<size_t>(key)]; };
    const auto apart = [&](int32_t a, int32_t b) { return row(b) != row(a) + 1; };
    if (std::ranges::adjacent_find(keys, apart) == keys.end())
      if (const std::optional<Strip> strip = from.in_place(row(keys[0]), head)) return *strip;
    float* out = to.floats(std::ssize(keys) * from.columns());
    for (size_t i = 0; i < keys.size(); ++i)
      from.load(row(keys[i]), head, out + static_cast<int64_t>(i) * from.columns());
    return {reinterpret_cast<const std::byte*>(out), DType::f32, from.columns(), 1};
  }

  GemmRight packed(const Strip& strip, int64_t lanes, int64_t depth) const {
    float* out = workspace.packed.floats(ceil_div(lanes, gemm_.tile_columns) * gemm_.tile_columns * depth);
    gemm_.pack_b(strip, lanes, depth, out);
    return {out, gemm_.tile_columns, gemm_.tile_columns * depth};
  }

  /// The weighted sums of a piece's values, and the sums of the weights.
  void add_up(const Piece& piece, float* sums, RowSum* weights) const {
    const int64_t rows = piece.block->rows, dim = problem_.dim, value_dim = problem_.value_dim;
    const bool thin = rows <= kThinRows;
    const GemmLeft q{queries(piece), false, dim};
    float* scores = workspace.scores.floats(rows * kKeyBlock);
    for (int64_t begin = piece.begin; begin < piece.end; begin += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, piece.end - begin);
      const std::span keys =
          std::span(piece.block->keys).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
      const GemmTile products{scores, rows, count, kKeyBlock};
      const Strip k = load(workspace.keys, keys_, keys, piece.head);
      if (thin)
        gemm_.dots(dim, q, k, products);
      else
        gemm_.multiply(dim, q, packed(k, count, dim), products);
      weigh(piece, keys, scores, sums, weights);
      const Strip v = load(workspace.values, values_, keys, piece.head),
                  across{v.data, v.dtype, v.depth_stride, v.lane_stride};
      const GemmLeft weighed{scores, false, kKeyBlock};
      if (thin)  // a piece is one block of keys
        gemm_.axpys(count, weighed, across, workspace.sums.floats(rows * kAxpyStride),
                    {sums, rows, value_dim, value_dim});
      else
        gemm_.multiply(
            count, weighed, packed(across, value_dim, count),
            {.data = sums, .rows = rows, .columns = value_dim, .row_stride = value_dim, .add = true});
    }
  }

  /// Scores (rows, kKeyBlock) become weights, and the sums so far what they are beside them.
  void weigh(const Piece& piece, std::span<const int32_t> keys, float* scores, float* sums,
             RowSum* weights) const {
    const auto position = [&](int32_t key) { return key_positions_[static_cast<size_t>(key)]; };
    int32_t lowest = std::numeric_limits<int32_t>::max(), highest = std::numeric_limits<int32_t>::min();
    for (int32_t key : keys) {
      lowest = std::min(lowest, position(key));
      highest = std::max(highest, position(key));
    }
    float* bias = workspace.bias.floats(kKeyBlock);
    for (int64_t r = 0; r < piece.block->rows; ++r, scores += kKeyBlock) {
      const int32_t at = positions_[static_cast<size_t>(token_of(*piece.block, r))];
      const bool masked = !slopes_.empty() || !sees(at, lowest) || !sees(at, highest);
      if (masked) {
        const float slope = slopes_.empty() ? 0 : slopes_[static_cast<size_t>(head_of(piece, r))];
        for (size_t i = 0; i < keys.size(); ++i)
          bias[i] = sees(at, position(keys[i])) ? slope * static_cast<float>(position(keys[i]) - at)
                                                : -std::numeric_limits<float>::infinity();
      }
      const float factor =
          simd_.weigh(scores, masked ? bias : nullptr, std::ssize(keys), problem_.softcap, weights[r]);
      if (factor != 1) simd_.scale(sums + r * problem_.value_dim, problem_.value_dim, factor);
    }
  }

  /// Adds the pieces up in the first, from which they follow each other.
  void join(const Piece& first, float* sums, RowSum* weights) const {
    const int64_t rows = first.block->rows, columns = problem_.value_dim;
    for (int64_t r = 0; r < rows; ++r) {
      RowSum joined;
      for (int64_t p = 0; p < first.count; ++p) joined.top = std::max(joined.top, weights[p * rows + r].top);
      for (int64_t p = 0; p < first.count; ++p) {
        const RowSum& part = weights[p * rows + r];
        const float factor = part.total == 0 ? 0 : std::exp(part.top - joined.top);
        float *to = sums + r * columns, *from = sums + (p * rows + r) * columns;
        joined.total += part.total * factor;
        for (int64_t c = 0; c < columns; ++c) to[c] = (p == 0 ? 0 : to[c]) + factor * from[c];
      }
      weights[r] = joined;
    }
  }

  /// Divides by the sums of weights, with the sinks among them, and stores.
  void finish(const Piece& piece, const float* sums, const RowSum* weights) const {
    for (int64_t r = 0; r < piece.block->rows; ++r, sums += problem_.value_dim) {
      const int64_t head = head_of(piece, r);
      const RowSum& weight = weights[r];
      float share = weight.total == 0 ? 0 : 1 / weight.total;
      if (!sinks_.empty() && weight.total != 0)
        share /= 1 + std::exp(sinks_[static_cast<size_t>(head)] - weight.top) / weight.total;
      float* to = out_ + (token_of(*piece.block, r) * problem_.heads + head) * problem_.value_dim;
      for (int64_t c = 0; c < problem_.value_dim; ++c) to[c] = sums[c] * share;
    }
  }

  const GemmTarget& gemm_ = gemm_target();
  const AttentionTarget& simd_ = attention_target();
  const CachedProblem problem_;
  const Tensor& q_;
  const CacheRows keys_, values_;
  const std::vector<int32_t> key_rows_, key_positions_, key_sequences_, positions_, sequences_;
  const std::vector<float> sinks_, slopes_;
  float* out_;  // (n, heads, value_dim)
};

}  // namespace

void cached_attention(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                      const Attrs& attrs) {
  CachedAttention(inputs, outputs[0], attrs).run(pool);
}

}  // namespace weft::cpu
