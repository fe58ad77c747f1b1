// Attention over rows of a cache. Tokens of one sequence that follow each other are a block, whose visible
// keys are found once. Few queries read the rows where they are, all heads at once and in pieces whose
// results are joined, so that threads have something to share; of many, the heads that share a key head are
// rows of one product.
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
constexpr int64_t kUnpacked = 16;                     // rows of a cache that are copied at a time

/// Memory of a thread, one per role.
struct Workspace {
  Scratch q, keys, values, packed, scores, bias;
};
thread_local Workspace workspace;

/// An input of integers: where it is, or copied when its elements are not neighbours.
class Integers {
 public:
  explicit Integers(const Tensor& x) : size_(static_cast<size_t>(x.layout.shape[0])) {
    data_ = x.as<int32_t>() + x.layout.offset;
    if (x.layout.strides[0] == 1) return;
    for (size_t i = 0; i < size_; ++i)
      copied_.push_back(data_[static_cast<int64_t>(i) * x.layout.strides[0]]);
    data_ = copied_.data();
  }
  Integers(const Integers&) = delete;
  Integers& operator=(const Integers&) = delete;
  ~Integers() = default;

  int32_t operator[](int64_t i) const { return data_[i]; }
  std::span<const int32_t> all() const { return {data_, size_}; }

 private:
  std::vector<int32_t> copied_;
  const int32_t* data_ = nullptr;
  size_t size_;
};

std::span<const int32_t> part(std::span<const int32_t> of, int64_t first, int64_t count) {
  return of.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
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

  /// Rows from `row` on where they are, from the columns of `head` on, if they are floats side by side.
  std::optional<Strip> in_place(int64_t row, int64_t head) const {
    if (type_ || x_.layout.strides[1] != 1) return std::nullopt;
    const int64_t at = x_.layout.offset + row * x_.layout.strides[0] + head * head_size_;
    return Strip{x_.data + at * static_cast<int64_t>(size_of(x_.dtype)), x_.dtype, x_.layout.strides[0], 1};
  }

  void load(int64_t row, int64_t head, int64_t heads, float* to) const {
    const int64_t stride = x_.layout.strides[1],
                  at = x_.layout.offset + row * x_.layout.strides[0] + head * head_size_ * stride;
    if (!type_) return load_run(x_, at, stride, heads * columns_, to);
    const std::byte* from = x_.data + at;
    std::vector<std::byte> copied;
    if (stride != 1) {
      copied.resize(static_cast<size_t>(heads * head_size_));
      copy_run(1, from, stride, copied.data(), 1, heads * head_size_);
      from = copied.data();
    }
    quant::dequantize(*type_, from, to, static_cast<uint64_t>(heads * columns_));
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
        key_rows_(inputs[3]),
        key_positions_(inputs[4]),
        key_sequences_(inputs[5]),
        positions_(inputs[6]),
        sequences_(inputs[7]),
        sinks_(per_head(inputs, 8)),
        slopes_(per_head(inputs, 9)),
        out_(out.as<float>()) {
    uint32_t furthest = 0;  // a negative row is further than all
    for (int32_t row : key_rows_.all()) furthest = std::max(furthest, static_cast<uint32_t>(row));
    if (furthest >= static_cast<uint64_t>(keys_.count()))
      fail(ErrorKind::invalid, "[cached_attention] row {} is not one of {}", static_cast<int32_t>(furthest),
           keys_.count());
  }

  void run(ThreadPool& pool) const {
    const std::vector<Block> all = blocks();
    std::vector<Piece> pieces;
    int64_t rows = 0;  // of all pieces
    for (const Block& block : all) {
      const int64_t keys = std::ssize(block.rows), heads = block.thin() ? problem_.key_heads : 1,
                    step = block.thin() ? piece_keys(keys) : std::max<int64_t>(keys, 1),
                    count = std::max<int64_t>(ceil_div(keys, step), 1);
      for (int64_t head = 0; head < problem_.key_heads; head += heads)
        for (int64_t i = 0; i < count; ++i, rows += heads * block.queries)
          pieces.push_back(
              {&block, head, heads, i * step, std::min((i + 1) * step, keys), rows, i == 0 ? count : 0});
    }
    std::vector<float> sums(static_cast<size_t>(rows * problem_.value_dim));
    std::vector<RowSum> weights(static_cast<size_t>(rows));
    const auto sums_of = [&](const Piece& piece) { return sums.data() + piece.row * problem_.value_dim; };
    const auto weights_of = [&](const Piece& piece) { return weights.data() + piece.row; };

    const Piece& first = pieces[0];
    const int64_t work = first.rows() * std::max<int64_t>(first.end - first.begin, 1) *
                         (problem_.dim + problem_.value_dim);  // of a piece, mostly
    // A new token of 128 keys takes some 10 us, which is worth sharing.
    pool.for_each(pieces.size(), static_cast<size_t>(ceil_div(kParallelWork / 32, work)),
                  [&](size_t begin, size_t end) {
                    for (const Piece& piece : std::span(pieces).subspan(begin, end - begin)) {
                      if (piece.block->thin())
                        add_up_thin(piece, sums_of(piece), weights_of(piece));
                      else
                        add_up(piece, sums_of(piece), weights_of(piece));
                      if (piece.count == 1) finish(piece, sums_of(piece), weights_of(piece));
                    }
                  });
    for (const Piece& piece : pieces)
      if (piece.count > 1) {
        join_pieces(piece.count, piece.rows(), problem_.value_dim, sums_of(piece), weights_of(piece));
        finish(piece, sums_of(piece), weights_of(piece));
      }
  }

 private:
  /// Tokens of a sequence, and the keys that one of them sees: rows of the cache, and positions.
  struct Block {
    int64_t begin, end, queries;  // tokens, and those times the heads of a group
    std::span<const int32_t> rows, positions;
    std::vector<int32_t> found;  // what the spans are of, when the keys had to be looked for

    bool thin() const { return queries <= kThinRows; }
  };

  /// Keys [begin, end) of a block, for some of the key heads: one, or all when the block is thin.
  struct Piece {
    const Block* block;
    int64_t head, heads, begin, end;
    int64_t row;    // where its results are
    int64_t count;  // pieces of this block and these heads, in the first of them

    int64_t rows() const { return heads * block->queries; }
  };

  /// Of a piece of a thin block. Eight pieces are enough for threads to share, and a result does not depend
  /// on how many there are.
  static int64_t piece_keys(int64_t keys) {
    return std::clamp<int64_t>(ceil_div(ceil_div(keys, 8), kUnpacked) * kUnpacked, 32, kKeyBlock);
  }

  bool sees(int32_t position, int32_t key_position) const {
    return (!problem_.causal || key_position <= position) &&
           (problem_.window == 0 || position - key_position < problem_.window);
  }

  std::vector<Block> blocks() const {
    const int64_t most = std::max<int64_t>(kBlockRows / problem_.group(), 1);
    std::vector<Block> all;
    for (int64_t begin = 0, end = 0; begin < problem_.tokens; begin = end) {
      const int32_t sequence = sequences_[begin];
      while (end < problem_.tokens && end - begin < most && sequences_[end] == sequence) ++end;
      const auto [lowest, highest] = std::ranges::minmax(part(positions_.all(), begin, end - begin));
      const auto range = problem_.keys_of(sequence, lowest, highest, std::ssize(key_rows_.all()));
      Block& block = all.emplace_back(Block{begin, end, (end - begin) * problem_.group(), {}, {}, {}});
      if (problem_.in_order()) {
        block.rows = part(key_rows_.all(), range.begin, range.size());
        block.positions = part(key_positions_.all(), range.begin, range.size());
      } else {
        find_keys(block, range, sequence, lowest, highest);
      }
    }
    return all;
  }

  void find_keys(Block& block, const AttentionProblem::Range& range, int32_t sequence, int32_t lowest,
                 int32_t highest) const {
    std::vector<int32_t> rows, positions;
    for (int64_t k = range.begin; k < range.end; ++k)
      if (key_sequences_[k] == sequence && (!problem_.causal || key_positions_[k] <= highest) &&
          (problem_.window == 0 || lowest - key_positions_[k] < problem_.window)) {
        rows.push_back(key_rows_[k]);
        positions.push_back(key_positions_[k]);
      }
    const size_t count = rows.size();
    block.found = std::move(rows);
    block.found.insert(block.found.end(), positions.begin(), positions.end());
    block.rows = std::span(block.found).first(count);
    block.positions = std::span(block.found).last(count);
  }

  int64_t token_of(const Piece& piece, int64_t row) const {
    return piece.block->begin + row % piece.block->queries / problem_.group();
  }
  int64_t head_of(const Piece& piece, int64_t row) const {
    const int64_t queries = piece.block->queries;
    return (piece.head + row / queries) * problem_.group() + row % queries % problem_.group();
  }

  /// Times `scale`, (rows, dim).
  const float* queries(const Piece& piece) const {
    float* out = workspace.q.floats(piece.rows() * problem_.dim);
    const std::vector<int64_t>& strides = q_.layout.strides;
    for (int64_t r = 0; r < piece.rows(); ++r)
      load_run(q_, q_.layout.offset + token_of(piece, r) * strides[0] + head_of(piece, r) * strides[1],
               strides[2], problem_.dim, out + r * problem_.dim);
    simd_.scale(out, piece.rows() * problem_.dim, problem_.scale);
    return out;
  }

  static Strip copied(Scratch& to, const CacheRows& from, std::span<const int32_t> rows, int64_t head,
                      int64_t heads) {
    const int64_t columns = heads * from.columns();
    float* out = to.floats(std::ssize(rows) * columns);
    for (size_t i = 0; i < rows.size(); ++i)
      from.load(rows[i], head, heads, out + static_cast<int64_t>(i) * columns);
    return {reinterpret_cast<const std::byte*>(out), DType::f32, columns, 1};
  }

  /// (rows, columns) of a head: where they are, or copied when they lie here and there.
  static Strip load(Scratch& to, const CacheRows& from, std::span<const int32_t> rows, int64_t head) {
    const auto apart = [](int32_t a, int32_t b) { return b != a + 1; };
    if (std::ranges::adjacent_find(rows, apart) == rows.end())
      if (const std::optional<Strip> strip = from.in_place(rows[0], head)) return *strip;
    return copied(to, from, rows, head, 1);
  }

  /// body(rows, begin, end, first): keys [begin, end) of some rows, which are those of a piece from `first`
  /// on: all of them where they are, or copied a few at a time.
  template <typename Body>
  void for_rows(const Piece& piece, Scratch& to, const CacheRows& from, const Body& body) const {
    const std::span<const int32_t> all = piece.block->rows;
    HeadRows rows{piece.heads, piece.block->queries, from.columns(), {}, std::ssize(all), all.data()};
    if (const std::optional<Strip> strip = from.in_place(0, piece.head)) {
      rows.rows = *strip;
      return body(rows, piece.begin, piece.end, 0);
    }
    rows.places = nullptr;
    for (int64_t begin = piece.begin; begin < piece.end; begin += kUnpacked) {
      rows.count = std::min(kUnpacked, piece.end - begin);
      rows.rows = copied(to, from, part(all, begin, rows.count), piece.head, piece.heads);
      body(rows, 0, rows.count, begin - piece.begin);
    }
  }

  /// The weighted sums of a piece's values, and the sums of the weights. A piece is one block of keys.
  void add_up_thin(const Piece& piece, float* sums, RowSum* weights) const {
    const float* q = queries(piece);
    float* scores = workspace.scores.floats(piece.rows() * kKeyBlock);
    for_rows(piece, workspace.keys, keys_,
             [&](const HeadRows& keys, int64_t begin, int64_t end, int64_t first) {
               simd_.score(keys, begin, end, q, scores + first, kKeyBlock);
             });
    weigh(piece, piece.begin, piece.end - piece.begin, scores, sums, weights);
    for_rows(piece, workspace.values, values_,
             [&](const HeadRows& values, int64_t begin, int64_t end, int64_t first) {
               simd_.gather(values, begin, end, scores + first, kKeyBlock, sums);
             });
  }

  GemmRight packed(const Strip& strip, int64_t lanes, int64_t depth) const {
    return pack_right(gemm_, workspace.packed, strip, lanes, depth);
  }

  /// The same for many queries, one key head, and all keys.
  void add_up(const Piece& piece, float* sums, RowSum* weights) const {
    const int64_t rows = piece.rows(), dim = problem_.dim, value_dim = problem_.value_dim;
    const GemmLeft q{queries(piece), false, dim};
    float* scores = workspace.scores.floats(rows * kKeyBlock);
    for (int64_t begin = piece.begin; begin < piece.end; begin += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, piece.end - begin);
      const auto key_rows = part(piece.block->rows, begin, count);
      gemm_.multiply(dim, q, packed(load(workspace.keys, keys_, key_rows, piece.head), count, dim),
                     {scores, rows, count, kKeyBlock});
      weigh(piece, begin, count, scores, sums, weights);
      const Strip v = load(workspace.values, values_, key_rows, piece.head);
      gemm_.multiply(
          count, {scores, false, kKeyBlock},
          packed({v.data, v.dtype, v.depth_stride, v.lane_stride}, value_dim, count),
          {.data = sums, .rows = rows, .columns = value_dim, .row_stride = value_dim, .add = true});
    }
  }

  /// Scores (rows, kKeyBlock) become weights, and the sums so far what they are beside them.
  void weigh(const Piece& piece, int64_t begin, int64_t count, float* scores, float* sums,
             RowSum* weights) const {
    const auto positions = part(piece.block->positions, begin, count);
    if (positions.empty()) return;
    const auto [lowest, highest] = std::ranges::minmax(positions);
    float* bias = workspace.bias.floats(kKeyBlock);
    for (int64_t r = 0; r < piece.rows(); ++r, scores += kKeyBlock) {
      const int32_t at = positions_[token_of(piece, r)];
      const bool masked = !slopes_.empty() || !sees(at, lowest) || !sees(at, highest);
      if (masked) {
        const float slope = slopes_.empty() ? 0 : slopes_[static_cast<size_t>(head_of(piece, r))];
        for (size_t i = 0; i < positions.size(); ++i)
          bias[i] = sees(at, positions[i]) ? slope * static_cast<float>(positions[i] - at)
                                           : -std::numeric_limits<float>::infinity();
      }
      const float factor = simd_.weigh(scores, masked ? bias : nullptr, count, problem_.softcap, weights[r]);
      if (factor != 1) simd_.scale(sums + r * problem_.value_dim, problem_.value_dim, factor);
    }
  }

  /// Divides by the sums of weights, with the sinks among them, and stores.
  void finish(const Piece& piece, const float* sums, const RowSum* weights) const {
    for (int64_t r = 0; r < piece.rows(); ++r, sums += problem_.value_dim) {
      const int64_t head = head_of(piece, r);
      const RowSum& weight = weights[r];
      float share = weight.total == 0 ? 0 : 1 / weight.total;
      if (!sinks_.empty() && weight.total != 0)
        share /= 1 + std::exp(sinks_[static_cast<size_t>(head)] - weight.top) / weight.total;
      float* to = out_ + (token_of(piece, r) * problem_.heads + head) * problem_.value_dim;
      for (int64_t c = 0; c < problem_.value_dim; ++c) to[c] = sums[c] * share;
    }
  }

  const GemmTarget& gemm_ = gemm_target();
  const AttentionTarget& simd_ = attention_target();
  const CachedProblem problem_;
  const Tensor& q_;
  const CacheRows keys_, values_;
  const Integers key_rows_, key_positions_, key_sequences_, positions_, sequences_;
  const std::vector<float> sinks_, slopes_;
  float* out_;  // (n, heads, value_dim)
};

}  // namespace

void cached_attention(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                      const Attrs& attrs) {
  CachedAttention(inputs, outputs[0], attrs).run(pool);
}

}  // namespace weft::cpu
