// Matrix product after Goto & van de Geijn: blocks of b are packed once and shared by the threads, blocks of
// a are packed by the thread that uses them, and a tile of c stays in registers while k runs. Products with a
// thin side are bound by memory: they read the big operand in place, once (dots, axpys).
#include "backend/cpu/gemm.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include "backend/cpu/gemm_parts.h"

namespace weft::cpu {
namespace {

// Elements. A block of a (kRowBlock x kDepthBlock: 216 KiB) stays in L2, one of b in L3.
constexpr int64_t kDepthBlock = 384, kRowBlock = 144, kColumnBlock = 1024;
// Rows of one PackedProduct, its tasks per block, and the threads it plans for.
constexpr int64_t kMaxRows = 256 * kRowBlock, kMaxTasks = 512, kMaxThreads = 64;
// Of a product with few rows so many columns are packed by the thread that multiplies them. Shared ones are
// read from L3 by all, which takes half as long again where others use it too: 3x3 convolutions of 64
// channels 240 GFLOP/s instead of 370, 512^3 375 instead of 450. With more rows packing a again for each
// takes as long.
constexpr int64_t kOwnColumns = 128, kMostOwnColumns = 384, kOwnRows = 4 * kRowBlock;
constexpr int64_t kThinGrain = 16;  // columns; a multiple of what dots takes at once
// Rows up to which packing b does not pay, where b's columns or rows are contiguous: 1.4x at 32 rows of
// 4096 x 4096 by dots, 1.1x at 16 by axpys.
constexpr int64_t kThinDots = 64, kThinAxpys = 16;
constexpr int64_t kParallelThinWork = 1 << 18;  // as kParallelWork, for thin products
// Columns of a block for the epilogue: with kRowBlock rows it stays in L2.
constexpr int64_t kEpilogueColumns = 256;

thread_local Scratch scratch_a, scratch_b;

/// c (m, n) = a b, c with any strides.
struct Product {
  const GemmTarget& target;
  int64_t m, n, k;
  GemmOperand a, b;
  float* c;
  int64_t c_row, c_column;
  const GemmEpilogue& epilogue;
  bool turned = false;               // rows and columns have changed places
  const GemmPack* pack_b = nullptr;  // instead of b

  /// c^T = b^T a^T
  Product transposed() const {
    const auto turn = [](const GemmOperand& x) {
      return GemmOperand{x.data, x.dtype, x.column_stride, x.row_stride};
    };
    return {target, n, m, k, turn(b), turn(a), c, c_column, c_row, epilogue, !turned};
  }

  Strip rows_of_a(int64_t row, int64_t depth) const {
    return {element(a, row, depth), a.dtype, a.row_stride, a.column_stride};
  }
  Strip columns_of_b(int64_t column, int64_t depth) const {
    return {element(b, depth, column), b.dtype, b.column_stride, b.row_stride};
  }
  /// a's rows as multiply() reads them without packing.
  bool has_plain_rows() const { return a.dtype == DType::f32 && a.column_stride == 1; }

  GemmTile tile(const GemmBlock& block, bool add) const {
    return {c + block.row * c_row + block.column * c_column, block.rows, block.columns, c_row, c_column, add};
  }
  void finish(const GemmBlock& block) const {
    if (!epilogue) return;
    epilogue(turned ? GemmBlock{block.column, block.row, block.columns, block.rows} : block);
  }
};

/// The share of `part` of `parts` when [0, count) is cut evenly at multiples of `unit`.
struct Range {
  Range(int64_t count, int64_t unit, int64_t part, int64_t parts)
      : begin(std::min(count, ceil_div(count, unit) * part / parts * unit)),
        end(std::min(count, ceil_div(count, unit) * (part + 1) / parts * unit)) {}
  int64_t size() const { return end - begin; }
  int64_t begin, end;
};

/// A thread that waits here waits for work that another thread has begun, so it is short.
template <typename Done>
void spin_until(const Done& done) {
  for (int turns = 0; !done(); ++turns) {
    if (turns < 1000)
      hwy::Pause();
    else
      std::this_thread::yield();
  }
}

/// One block of each, too small for threads: no plan, and operands stay where they are if they can.
void small_product(const Product& p) {
  const int64_t width = p.target.tile_columns;
  GemmLeft left{reinterpret_cast<const float*>(p.a.data), false, p.a.row_stride};
  if (!p.has_plain_rows()) {
    float* packed = scratch_a.floats((p.m + p.target.tile_rows) * p.k);
    p.target.pack_a(p.rows_of_a(0, 0), p.m, p.k, packed);
    left = {packed, true};
  }
  int64_t in_place = 0;  // columns
  if (p.b.dtype == DType::f32 && p.b.column_stride == 1) {
    in_place = p.n - p.n % p.target.lanes;
    p.target.multiply(p.k, left, {reinterpret_cast<const float*>(p.b.data), p.b.row_stride, width},
                      p.tile({0, 0, p.m, in_place}, false));
  }
  if (in_place < p.n) {
    float* packed = scratch_b.floats((p.n - in_place + width) * p.k);
    p.target.pack_b(p.columns_of_b(in_place, 0), p.n - in_place, p.k, packed);
    p.target.multiply(p.k, left, packed_right(p.target, packed, p.k),
                      p.tile({0, in_place, p.m, p.n - in_place}, false));
  }
  p.finish({0, 0, p.m, p.n});
}

/// A part of a product as a list of tasks that threads take in order: for each block of (columns, k) first
/// `packs` tasks that pack b, then `tiles` tasks that each pack a part of a and multiply. A task waits for
/// what it needs of earlier tasks; those have been taken before, so the waits end. That spares a sleep and a
/// wake-up between the phases, which would cost more than the product of 256 x 256.
class PackedProduct {
 public:
  PackedProduct(const Product& product, const GemmBlock& part, int64_t threads)
      : product_(product), target_(product.target), part_(part) {
    column_blocks_ = ceil_div(part.columns, kColumnBlock);
    depth_blocks_ = ceil_div(product.k, kDepthBlock);
    const int64_t panels = ceil_div(ceil_div(part.columns, target_.tile_columns), column_blocks_);
    const int64_t units = ceil_div(part.rows, target_.tile_rows);
    row_tiles_ = ceil_div(part.rows, kRowBlock);
    if (threads > 1) {  // enough tasks that a late thread does not hold up the others
      row_tiles_ = std::min(units, ceil_div(std::max(row_tiles_, 4 * threads), threads) * threads);
      column_tiles_ = std::min(panels, ceil_div(4 * threads, row_tiles_));
      packs_ = std::min(panels, 4 * threads);
    }
    buffer_size_ = panels * target_.tile_columns * ceil_div(product.k, depth_blocks_);
    buffer_ = scratch_b.floats(buffer_size_ * (blocks() > 1 ? 2 : 1));
  }

  /// What one thread does: tasks, until none is left. The order is this counter's and not ThreadPool's, whose
  /// threads begin far apart: a thread that began in the middle would wait for all that comes before.
  void take_tasks() try {
    const int64_t steps = packs_ + tiles(), tasks = blocks() * steps;
    while (!failed_) {
      const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks) return;
      const int64_t block = task / steps, step = task % steps;
      if (step < packs_)
        pack(block, step);
      else
        multiply(block, step - packs_);
    }
  } catch (...) {
    failed_ = true;  // nobody waits for what this task would have done
    throw;
  }

 private:
  int64_t blocks() const { return column_blocks_ * depth_blocks_; }
  int64_t tiles() const { return row_tiles_ * column_tiles_; }
  Range columns_of_block(int64_t block) const {
    return {part_.columns, target_.tile_columns, block / depth_blocks_, column_blocks_};
  }
  Range depth_of_block(int64_t block) const { return {product_.k, 1, block % depth_blocks_, depth_blocks_}; }
  float* buffer(int64_t block) const { return buffer_ + (block % 2) * buffer_size_; }

  /// Until `counter` has come to `count`. False when another thread has failed.
  bool wait(const std::atomic<int64_t>& counter, int64_t count) const {
    spin_until([&] { return counter.load(std::memory_order_acquire) >= count || failed_; });
    return !failed_;
  }

  void pack(int64_t block, int64_t part) {
    // The buffer was last read by the block before the previous one.
    for (int64_t t = 0; t < tiles(); ++t)
      if (!wait(done_[static_cast<size_t>(t)], block - 1)) return;
    const Range columns = columns_of_block(block), depth = depth_of_block(block);
    const Range share(columns.size(), target_.tile_columns, part, packs_);
    float* out = buffer(block) + share.begin * depth.size();
    const int64_t column = part_.column + columns.begin + share.begin;
    if (share.size() > 0 && product_.pack_b)
      (*product_.pack_b)({depth.begin, column, depth.size(), share.size()}, target_.tile_columns, out);
    else if (share.size() > 0)
      target_.pack_b(product_.columns_of_b(column, depth.begin), share.size(), depth.size(), out);
    packed_[block % 2].fetch_add(1, std::memory_order_acq_rel);
  }

  /// Packing a costs more than it brings where it is read for two tiles only; but rows that are a multiple of
  /// 4 KiB apart would push each other out of L1.
  GemmLeft left(const Range& rows, const Range& depth, int64_t columns) const {
    const Strip a = product_.rows_of_a(part_.row + rows.begin, depth.begin);
    if (product_.has_plain_rows() && columns <= 2 * target_.tile_columns && a.lane_stride % 1024 != 0)
      return {reinterpret_cast<const float*>(a.data), false, a.lane_stride};
    float* packed =
        scratch_a.floats(ceil_div(rows.size(), target_.tile_rows) * target_.tile_rows * depth.size());
    target_.pack_a(a, rows.size(), depth.size(), packed);
    return {packed, true};
  }

  void multiply(int64_t block, int64_t tile) {
    const Range columns = columns_of_block(block), depth = depth_of_block(block);
    const Range rows(part_.rows, target_.tile_rows, tile / column_tiles_, row_tiles_);
    const Range share(columns.size(), target_.tile_columns, tile % column_tiles_, column_tiles_);
    const GemmLeft a = left(rows, depth, share.size());
    std::atomic<int64_t>& done = done_[static_cast<size_t>(tile)];  // the sums of c so far
    if (!wait(packed_[block % 2], (block / 2 + 1) * packs_) || !wait(done, block)) return;
    const bool last = depth.end == product_.k;
    const int64_t step = last && product_.epilogue ? kEpilogueColumns : std::max<int64_t>(share.size(), 1);
    for (int64_t j = share.begin; j < share.end; j += step) {
      const GemmBlock part{part_.row + rows.begin, part_.column + columns.begin + j, rows.size(),
                           std::min(step, share.end - j)};
      target_.multiply(depth.size(), a, packed_right(target_, buffer(block) + j * depth.size(), depth.size()),
                       product_.tile(part, depth.begin > 0));
      if (last) product_.finish(part);
    }
    done.store(block + 1, std::memory_order_release);
  }

  const Product& product_;
  const GemmTarget& target_;
  const GemmBlock part_;
  int64_t column_blocks_, depth_blocks_;
  int64_t row_tiles_, column_tiles_ = 1, packs_ = 1;
  float* buffer_;  // two blocks of packed b
  int64_t buffer_size_;
  std::atomic<int64_t> next_{0};  // task
  std::atomic<bool> failed_{false};
  std::array<std::atomic<int64_t>, 2> packed_{};        // pack tasks done, by parity of the block
  std::array<std::atomic<int64_t>, kMaxTasks> done_{};  // blocks done, by tile
};

/// Columns of a piece of n columns, so that threads have as much to do as each other and seldom pack a.
int64_t own_columns(int64_t n, int64_t threads, int64_t width) {
  constexpr int64_t kPackA = 8;  // takes as long as so many columns
  int64_t best = kOwnColumns, least = n + n * kPackA;
  for (int64_t own = kMostOwnColumns; own >= kOwnColumns; own -= width) {
    const int64_t pieces = n / own, turns = pieces / threads;
    const int64_t columns = turns * own + (pieces % threads > 0 ? own : n % own);
    const int64_t cost = columns + ceil_div(columns, own) * kPackA;
    if (cost < least) best = own, least = cost;
  }
  return best;
}

void packed_product(ThreadPool& pool, const Product& p) {
  const bool parallel = p.m * p.n * p.k >= kParallelWork && pool.threads() > 1;
  const int64_t threads = parallel ? std::min<int64_t>(pool.threads(), kMaxThreads) : 1;
  const int64_t width = p.target.tile_columns;
  if (threads > 1 && p.m <= kOwnRows && p.n >= 2 * kOwnColumns * threads)
    return pool.for_each(
        static_cast<size_t>(p.n), static_cast<size_t>(own_columns(p.n, threads, width)),
        [&](size_t begin, size_t end) {
          const auto column = static_cast<int64_t>(begin);
          PackedProduct(p, {0, column, p.m, static_cast<int64_t>(end) - column}, 1).take_tasks();
        });
  for (int64_t row = 0; row < p.m; row += kMaxRows) {
    PackedProduct product(p, {row, 0, std::min(kMaxRows, p.m - row), p.n}, threads);
    pool.for_each(static_cast<size_t>(threads), 1, [&](size_t, size_t) { product.take_tasks(); });
  }
}

/// Few rows of a, and b read in place. False when the shape or the strides do not suit.
bool thin_product(ThreadPool& pool, const Product& p) {
  // In the cache, tiles of more rows are faster (small_product, packed_product).
  const bool large = p.m <= 4 || p.n * p.k >= 1 << 20;
  const bool along_depth = p.b.row_stride == 1 && p.k >= 32 && p.m <= kThinDots && large;
  const bool along_columns = p.b.column_stride == 1 && p.n >= 32 && p.m <= kThinAxpys && large;
  if (!along_depth && !along_columns) return false;

  GemmLeft a{reinterpret_cast<const float*>(p.a.data), false, p.a.row_stride};
  if (!p.has_plain_rows() || (p.m > 1 && a.row_stride % 1024 == 0)) {
    const int64_t stride = p.k + 16;  // no multiple of 4 KiB: all rows are read side by side
    float* copied = scratch_a.floats(p.m * stride);
    p.target.copy(p.rows_of_a(0, 0), p.m, p.k, copied, stride);
    a = {copied, false, stride};
  }
  const auto piece = [&](size_t begin, size_t end) {
    const GemmBlock block{0, static_cast<int64_t>(begin), p.m, static_cast<int64_t>(end - begin)};
    const Strip b = p.columns_of_b(block.column, 0);
    if (along_depth)
      p.target.dots(p.k, a, b, p.tile(block, false));
    else
      p.target.axpys(p.k, a, b, scratch_b.floats(p.m * kAxpyStride), p.tile(block, false));
    p.finish(block);
  };
  if (p.m * p.n * p.k < kParallelThinWork || pool.threads() == 1) {
    piece(0, static_cast<size_t>(p.n));
  } else {
    // dots: 32 Ki elements. axpys: long runs matter more than even shares.
    const int64_t grain =
        along_depth ? ceil_div(1 << 15, p.k) : std::min(ceil_div(p.n, pool.threads()), kAxpyColumns);
    pool.for_each(static_cast<size_t>(p.n), static_cast<size_t>(ceil_div(grain, kThinGrain) * kThinGrain),
                  piece);
  }
  return true;
}

/// Without elements or without k there is nothing to multiply.
bool is_empty(const Product& p) {
  if (p.m <= 0 || p.n <= 0) return true;
  if (p.k > 0) return false;
  for (int64_t i = 0; i < p.m; ++i) std::fill_n(p.c + i * p.c_row, p.n, 0.0f);
  p.finish({0, 0, p.m, p.n});
  return true;
}

}  // namespace

void gemm(ThreadPool& pool, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmPack& pack_b,
          float* c, int64_t c_stride, const GemmEpilogue& epilogue) {
  const Product product{gemm_target(), m, n, k, a, {}, c, c_stride, 1, epilogue, false, &pack_b};
  if (!is_empty(product)) packed_product(pool, product);
}

void gemm(ThreadPool& pool, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
          float* c, int64_t c_stride, const GemmEpilogue& epilogue) {
  const Product product{gemm_target(), m, n, k, a, b, c, c_stride, 1, epilogue};
  if (is_empty(product)) return;
  const Product transposed = product.transposed();
  if (thin_product(pool, product) || thin_product(pool, transposed)) return;
  if (m <= kRowBlock && k <= kDepthBlock && n <= kColumnBlock && m * n * k < kParallelWork)
    return small_product(product);
  // Of a wide matrix with few rows, columns make better rows: 12 of them fill a tile.
  packed_product(pool, m <= kThinAxpys && n > m ? transposed : product);
}

}  // namespace weft::cpu
