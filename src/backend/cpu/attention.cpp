// Attention without the scores in memory. Blocks of queries go over blocks of keys, products are those of
// gemm.cpp, and the softmax is kept as the largest score and the sum so far. Few queries read the keys in
// place, in pieces whose results are joined.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "backend/attention.h"
#include "backend/cpu/attention_target.h"
#include "backend/cpu/gemm_parts.h"
#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"

namespace weft::cpu {
namespace {

using Range = AttentionProblem::Range;

constexpr int64_t kRowBlock = 128, kKeyBlock = 256;  // 128 KiB of scores: with its neighbours in L2
constexpr int64_t kThinRows = 16;                    // rows up to which keys are read in place
constexpr int64_t kPiece = 512;                      // keys of a piece then

/// Memory of a thread, one per role.
struct Workspace {
  Scratch q, d_out, packed_rows, packed_keys, packed_across, packed_values;
  Scratch scores, products, packed, bias, out, d_k, d_v;
};
thread_local Workspace workspace;

/// An array (.., heads, tokens, columns).
struct Tokens {
  Tensor x;
  int64_t head_stride, token_stride, column_stride, columns;

  explicit Tokens(Tensor of) : x(std::move(of)) {
    const size_t rank = x.layout.shape.size();
    head_stride = x.layout.strides[rank - 3];
    token_stride = x.layout.strides[rank - 2];
    column_stride = x.layout.strides[rank - 1];
    columns = x.layout.shape[rank - 1];
  }

  /// `count` tokens of a head from `token` on: lanes of a product.
  Strip tokens(int64_t batch, int64_t head, int64_t token) const {
    int64_t at = x.layout.offset + head * head_stride + token * token_stride;
    for (size_t d = x.layout.shape.size() - 3; d-- > 0; batch /= x.layout.shape[d])
      at += batch % x.layout.shape[d] * x.layout.strides[d];
    return {x.data + at * static_cast<int64_t>(size_of(x.dtype)), x.dtype, token_stride, column_stride};
  }
  /// The same with its columns as lanes.
  Strip across(int64_t batch, int64_t head, int64_t token) const {
    const Strip strip = tokens(batch, head, token);
    return {strip.data, strip.dtype, strip.depth_stride, strip.lane_stride};
  }
};

/// (.., heads, tokens) as tokens of one column.
Tensor with_column(Tensor x) {
  x.layout.shape.push_back(1);
  x.layout.strides.push_back(1);
  return x;
}

struct Head {
  int64_t batch, key_head;
};

Strip rows_in(const float* x, int64_t stride) {
  return {reinterpret_cast<const std::byte*>(x), DType::f32, stride, 1};
}
Strip columns_in(const float* x, int64_t stride) {
  return {reinterpret_cast<const std::byte*>(x), DType::f32, 1, stride};
}

/// What forward and backward share: the problem, its operands, and how rows and masks are read.
class Attention {
 public:
  Attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor* mask, const Attrs& attrs)
      : problem(q.layout, k.layout, v.layout, attrs), q_(q), k_(k), v_(v) {
    if (!mask || !mask->data) return;
    Shape scores = q.layout.shape;
    scores.back() = problem.keys;
    Tensor whole = *mask;
    whole.layout = whole.layout.expanded(scores);
    mask_.emplace(std::move(whole));
  }

  int64_t head_count() const { return element_count(problem.batch) * problem.key_heads; }
  Head head(int64_t index) const { return {index / problem.key_heads, index % problem.key_heads}; }

  /// out (rows, columns) in f32.
  void load_rows(const Tokens& x, const Head& head, const Range& rows, float* out) const {
    const int64_t group = problem.group, first = head.key_head * group;
    if (group == 1)
      return gemm_.copy(x.tokens(head.batch, first, rows.begin), rows.size(), x.columns, out, x.columns);
    for (int64_t r = rows.begin; r < rows.end; ++r, out += x.columns)
      gemm_.copy(x.tokens(head.batch, first + r % group, r / group), 1, x.columns, out, x.columns);
  }

  /// Into a contiguous (.., heads, tokens, columns).
  void store_rows(const float* from, const Head& head, const Range& rows, int64_t columns,
                  const Tensor& to) const {
    const int64_t first = head.batch * problem.heads() + head.key_head * problem.group;
    for (int64_t r = rows.begin; r < rows.end; ++r, from += columns) {
      const int64_t row = (first + r % problem.group) * problem.queries + r / problem.group;
      store_run(from, columns, to, row * columns, 1);
    }
  }

  /// The keys of a block that a row sees, counted from the block's first.
  Range visible(int64_t row, const Range& keys) const {
    const Range seen = problem.keys_of(row, row + 1);
    const int64_t begin = std::clamp(seen.begin, keys.begin, keys.end);
    return {begin - keys.begin, std::max(begin, std::min(seen.end, keys.end)) - keys.begin};
  }

  /// What the mask adds to a row's scores; null without a mask.
  const float* bias(const Head& head, int64_t row, const Range& keys) const {
    if (!mask_) return nullptr;
    float* out = workspace.bias.floats(keys.size());
    const Strip strip =
        mask_->tokens(head.batch, head.key_head * problem.group + row % problem.group, row / problem.group);
    const int64_t stride = strip.depth_stride;
    Strip from = strip;
    from.data += keys.begin * stride * static_cast<int64_t>(size_of(strip.dtype));
    if (strip.dtype != DType::boolean) {
      gemm_.copy(from, 1, keys.size(), out, keys.size());
    } else {
      for (int64_t j = 0; j < keys.size(); ++j)
        out[j] = from.data[j * stride] != std::byte{0} ? 0 : -std::numeric_limits<float>::infinity();
    }
    return out;
  }

  const AttentionProblem problem;

 protected:
  /// (rows, depth) as it lies in a buffer, rows `stride` apart.
  static GemmLeft rows_of(const float* data, int64_t stride) { return {data, false, stride}; }
  /// A product to be added to (rows, columns), contiguous.
  static GemmTile sum_in(float* data, int64_t rows, int64_t columns) {
    return {.data = data, .rows = rows, .columns = columns, .row_stride = columns, .add = true};
  }
  GemmLeft packed_left(Scratch& to, const Strip& strip, int64_t lanes, int64_t depth) const {
    float* out = to.floats(ceil_div(lanes, gemm_.tile_rows) * gemm_.tile_rows * depth);
    gemm_.pack_a(strip, lanes, depth, out);
    return {out, true};
  }
  GemmRight packed_right(Scratch& to, const Strip& strip, int64_t lanes, int64_t depth) const {
    return pack_right(gemm_, to, strip, lanes, depth);
  }
  /// Queries times `scale`, (rows, d).
  float* scaled_queries(const Head& head, const Range& rows) const {
    float* out = workspace.q.floats(rows.size() * problem.dim);
    load_rows(q_, head, rows, out);
    simd_.scale(out, rows.size() * problem.dim, problem.scale);
    return out;
  }

  const GemmTarget& gemm_ = gemm_target();
  const AttentionTarget& simd_ = attention_target();
  Tokens q_, k_, v_;
  std::optional<Tokens> mask_;
};

class Forward : Attention {
 public:
  Forward(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attrs& attrs)
      : Attention(inputs[0], inputs[1], inputs[2], inputs.size() > 3 ? &inputs[3] : nullptr, attrs),
        out_(outputs[0]),
        stats_(outputs[1]) {}

  void run(ThreadPool& pool) const {
    if (problem.rows() <= kThinRows) return by_pieces(pool);
    const int64_t blocks = ceil_div(problem.rows(), kRowBlock);
    pool.for_each(static_cast<size_t>(head_count() * blocks), 1, [&](size_t begin, size_t end) {
      for (auto task = static_cast<int64_t>(begin); task < static_cast<int64_t>(end); ++task) {
        const int64_t block = blocks - 1 - task % blocks;  // of causal ones the longest first
        by_block(head(task / blocks), {block * kRowBlock, std::min(problem.rows(), (block + 1) * kRowBlock)});
      }
    });
  }

 private:
  /// Scores (rows, stride) become weights; factors for the results so far.
  void weigh(const Head& head, const Range& rows, const Range& keys, float* scores, int64_t stride,
             RowSum* sums, float* factors) const {
    for (int64_t r = 0; r < rows.size(); ++r, scores += stride) {
      const Range seen = visible(rows.begin + r, keys);
      std::fill_n(scores, seen.begin, 0.0f);
      std::fill(scores + seen.end, scores + keys.size(), 0.0f);
      factors[r] = 1;
      if (seen.size() == 0) continue;
      const float* added = bias(head, rows.begin + r, keys);
      factors[r] = simd_.weigh(scores + seen.begin, added ? added + seen.begin : nullptr, seen.size(),
                               problem.softcap, sums[r]);
    }
  }

  /// Divides by the sums and stores.
  void finish(const Head& head, const Range& rows, float* out, const RowSum* sums) const {
    float stats[kRowBlock][2] = {};
    for (int64_t r = 0; r < rows.size(); ++r) {
      const auto [top, total] = sums[r];
      const float share = total == 0 ? 0 : 1 / total, whole = std::nearbyint(top);
      simd_.scale(out + r * problem.value_dim, problem.value_dim, share);
      if (total != 0) stats[r][0] = whole, stats[r][1] = share * std::exp(whole - top);
    }
    store_rows(out, head, rows, problem.value_dim, out_);
    store_rows(stats[0], head, rows, 2, stats_);
  }

  void by_block(const Head& head, const Range& rows) const {
    const int64_t count = rows.size(), d = problem.dim, dv = problem.value_dim;
    const GemmLeft q = rows_of(scaled_queries(head, rows), d);
    float* out = workspace.out.floats(count * dv);
    float* scores = workspace.scores.floats(count * kKeyBlock);
    std::fill_n(out, count * dv, 0.0f);
    RowSum sums[kRowBlock];
    float factors[kRowBlock];
    const Range all = problem.keys_of(rows.begin, rows.end);
    for (int64_t begin = all.begin; begin < all.end; begin += kKeyBlock) {
      const Range keys{begin, std::min(begin + kKeyBlock, all.end)};
      gemm_.multiply(
          d, q,
          packed_right(workspace.packed_keys, k_.tokens(head.batch, head.key_head, begin), keys.size(), d),
          {scores, count, keys.size(), kKeyBlock});
      weigh(head, rows, keys, scores, kKeyBlock, sums, factors);
      for (int64_t r = 0; r < count; ++r)
        if (factors[r] != 1) simd_.scale(out + r * dv, dv, factors[r]);
      gemm_.multiply(
          keys.size(), rows_of(scores, kKeyBlock),
          packed_right(workspace.packed_values, v_.across(head.batch, head.key_head, begin), dv, keys.size()),
          sum_in(out, count, dv));
    }
    finish(head, rows, out, sums);
  }

  /// Few rows: every piece of the keys by itself, then joined.
  void by_pieces(ThreadPool& pool) const {
    const Range rows{0, problem.rows()};
    const int64_t count = rows.size(), dv = problem.value_dim, pieces = ceil_div(problem.keys, kPiece),
                  work = count * std::min(problem.keys, kPiece) * (problem.dim + dv);
    std::vector<float> partial(static_cast<size_t>(head_count() * pieces * count * dv));
    std::vector<RowSum> sums(static_cast<size_t>(head_count() * pieces * count));
    pool.for_each(static_cast<size_t>(head_count() * pieces),
                  static_cast<size_t>(ceil_div(kParallelWork / 8, work)), [&](size_t begin, size_t end) {
                    for (auto task = static_cast<int64_t>(begin); task < static_cast<int64_t>(end); ++task)
                      piece(head(task / pieces), rows, task % pieces * kPiece,
                            partial.data() + task * count * dv, sums.data() + task * count);
                  });
    for (int64_t h = 0; h < head_count(); ++h) {
      float* joined = partial.data() + h * pieces * count * dv;
      join_pieces(pieces, count, dv, joined, sums.data() + h * pieces * count);
      finish(head(h), rows, joined, sums.data() + h * pieces * count);
    }
  }

  void piece(const Head& head, const Range& rows, int64_t begin, float* out, RowSum* sums) const {
    const int64_t count = rows.size();
    const Range keys{begin, std::min(begin + kPiece, problem.keys)};
    float* scores = workspace.scores.floats(count * kPiece);
    simd_.score({1, count, problem.dim, whole_rows(workspace.packed_keys, k_, head, keys), keys.size()}, 0,
                keys.size(), scaled_queries(head, rows), scores, kPiece);
    float factors[kThinRows];
    weigh(head, rows, keys, scores, kPiece, sums, factors);
    simd_.gather(
        {1, count, problem.value_dim, whole_rows(workspace.packed_values, v_, head, keys), keys.size()}, 0,
        keys.size(), scores, kPiece, out);
  }

  /// Tokens whose columns are neighbours: where they are, or copied.
  Strip whole_rows(Scratch& to, const Tokens& x, const Head& head, const Range& keys) const {
    const Strip strip = x.tokens(head.batch, head.key_head, keys.begin);
    if (strip.depth_stride == 1) return strip;
    float* copied = to.floats(keys.size() * x.columns);
    gemm_.copy(strip, keys.size(), x.columns, copied, x.columns);
    return rows_in(copied, x.columns);
  }

  const Tensor &out_, &stats_;
};

/// Each head's keys, block by block, against all rows that see them: five products per pair of blocks. Where
/// there are few heads their keys are split, and each part has gradients of q of its own, added up in order.
class Backward : Attention {
 public:
  Backward(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attrs& attrs)
      : Attention(inputs[0], inputs[1], inputs[2], inputs.size() > 6 ? &inputs[6] : nullptr, attrs),
        d_out_(inputs[3]),
        stats_(inputs[4]),
        delta_(with_column(inputs[5])),
        outputs_(outputs) {}

  void run(ThreadPool& pool) const {
    const int64_t blocks = ceil_div(problem.keys, kKeyBlock),
                  parts = std::clamp<int64_t>(ceil_div(kMinTasks, head_count()), 1, blocks),
                  size = problem.rows() * problem.dim;
    std::vector<float> d_q(static_cast<size_t>(head_count() * parts * size));
    pool.for_each(static_cast<size_t>(head_count() * parts), 1, [&](size_t begin, size_t end) {
      for (auto task = static_cast<int64_t>(begin); task < static_cast<int64_t>(end); ++task)
        for (int64_t block = task % parts; block < blocks; block += parts)
          by_block(head(task / parts), {block * kKeyBlock, std::min(problem.keys, (block + 1) * kKeyBlock)},
                   d_q.data() + task * size);
    });
    pool.for_each(static_cast<size_t>(head_count()), 1, [&](size_t begin, size_t end) {
      for (auto h = static_cast<int64_t>(begin); h < static_cast<int64_t>(end); ++h) {
        float* sum = d_q.data() + h * parts * size;
        for (int64_t part = 1; part < parts; ++part)
          for (int64_t i = 0; i < size; ++i) sum[i] += sum[part * size + i];
        simd_.scale(sum, size, problem.scale);
        store_rows(sum, head(h), {0, problem.rows()}, problem.dim, outputs_[0]);
      }
    });
  }

 private:
  static constexpr int64_t kMinTasks = 16;

  void by_block(const Head& head, const Range& keys, float* d_q) const {
    Workspace& w = workspace;
    const int64_t n = keys.size(), d = problem.dim, dv = problem.value_dim;
    const GemmRight k = packed_right(w.packed_keys, k_.tokens(head.batch, head.key_head, keys.begin), n, d),
                    k_across =
                        packed_right(w.packed_across, k_.across(head.batch, head.key_head, keys.begin), d, n),
                    v = packed_right(w.packed_values, v_.tokens(head.batch, head.key_head, keys.begin), n,
                                     dv);
    float *d_k = w.d_k.floats(n * d), *d_v = w.d_v.floats(n * dv);
    std::fill_n(d_k, n * d, 0.0f);
    std::fill_n(d_v, n * dv, 0.0f);
    const Range all = problem.rows_of(keys.begin, keys.end);
    for (int64_t begin = all.begin; begin < all.end; begin += kRowBlock) {
      const Range rows{begin, std::min(begin + kRowBlock, all.end)};
      const int64_t count = rows.size();
      const float* q = scaled_queries(head, rows);
      float* d_out = w.d_out.floats(count * dv);
      load_rows(d_out_, head, rows, d_out);
      float *scores = w.scores.floats(count * kKeyBlock), *products = w.products.floats(count * kKeyBlock);
      gemm_.multiply(d, rows_of(q, d), k, {scores, count, n, kKeyBlock});
      gemm_.multiply(dv, rows_of(d_out, dv), v, {products, count, n, kKeyBlock});
      differentiate(head, rows, keys, scores, products);
      gemm_.multiply(count, packed_left(w.packed, columns_in(scores, kKeyBlock), n, count),
                     packed_right(w.packed_rows, columns_in(d_out, dv), dv, count), sum_in(d_v, n, dv));
      gemm_.multiply(count, packed_left(w.packed, columns_in(products, kKeyBlock), n, count),
                     packed_right(w.packed_rows, columns_in(q, d), d, count), sum_in(d_k, n, d));
      gemm_.multiply(n, rows_of(products, kKeyBlock), k_across, sum_in(d_q + rows.begin * d, count, d));
    }
    const int64_t first = (head.batch * problem.key_heads + head.key_head) * problem.keys + keys.begin;
    store_run(d_k, n * d, outputs_[1], first * d, 1);
    store_run(d_v, n * dv, outputs_[2], first * dv, 1);
  }

  /// Scores become weights, products the gradients of the scores; both 0 where a key is hidden.
  void differentiate(const Head& head, const Range& rows, const Range& keys, float* scores,
                     float* products) const {
    float stats[kRowBlock][2], delta[kRowBlock];
    load_rows(stats_, head, rows, stats[0]);
    load_rows(delta_, head, rows, delta);
    for (int64_t r = 0; r < rows.size(); ++r, scores += kKeyBlock, products += kKeyBlock) {
      const Range seen = visible(rows.begin + r, keys);
      for (float* x : {scores, products}) {
        std::fill_n(x, seen.begin, 0.0f);
        std::fill(x + seen.end, x + keys.size(), 0.0f);
      }
      const float* added = bias(head, rows.begin + r, keys);
      simd_.backward(scores + seen.begin, products + seen.begin, added ? added + seen.begin : nullptr,
                     seen.size(), problem.softcap, stats[r][0], stats[r][1], delta[r]);
    }
  }

  const Tokens d_out_, stats_, delta_;
  const std::span<const Tensor> outputs_;
};

}  // namespace

void attention(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
               const Attrs& attrs) {
  Forward(inputs, outputs, attrs).run(pool);
}

void attention_backward(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                        const Attrs& attrs) {
  Backward(inputs, outputs, attrs).run(pool);
}

}  // namespace weft::cpu
