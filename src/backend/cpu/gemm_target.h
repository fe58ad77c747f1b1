#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/dtype.h"

/// What gemm needs of the processor's vectors: blocks of matrices that fit the caches.
namespace weft::cpu {

/// Lanes of `depth` elements each: how packing and the thin products see an operand.
struct Strip {
  const std::byte* data;
  DType dtype;
  int64_t lane_stride, depth_stride;
};

/// (rows, depth) floats: panels of tile_rows rows, each (depth, tile_rows), or rows of contiguous elements
/// that lie row_stride apart.
struct GemmLeft {
  const float* data;
  bool packed;
  int64_t row_stride = 0;
};

/// (depth, columns) floats in tiles of tile_columns, tile_stride apart, whose rows are row_stride apart. A
/// tile is read in whole vectors.
struct GemmRight {
  const float* data;
  int64_t row_stride, tile_stride;
};

/// Where a product goes; `add`: to what is there.
struct GemmTile {
  float* data;
  int64_t rows, columns, row_stride, column_stride = 1;
  bool add = false;

  GemmTile part(int64_t row, int64_t column, int64_t height, int64_t width) const {
    return {data + row * row_stride + column * column_stride, height, width, row_stride, column_stride, add};
  }
  GemmTile from(int64_t row, int64_t column) const { return part(row, column, rows - row, columns - column); }
};

// Columns that axpys sums at a time: long runs of b's rows, 1024 halves the bandwidth. Rows of sums are a
// cache line more than that apart: 8 KiB apart they would push each other out of L1.
inline constexpr int64_t kAxpyColumns = 2048, kAxpyStride = kAxpyColumns + 16;

struct GemmTarget {
  int64_t lanes;                    // of a vector
  int64_t tile_rows, tile_columns;  // of c in registers
  /// out[panel][p][lane]: panels of tile_rows (a) or tile_columns (b) lanes, the last one filled up with 0.
  void (*pack_a)(const Strip& a, int64_t lanes, int64_t depth, float* out);
  void (*pack_b)(const Strip& b, int64_t lanes, int64_t depth, float* out);
  void (*multiply)(int64_t depth, const GemmLeft& a, const GemmRight& b, const GemmTile& c);
  /// out[lane][p], lanes out_stride apart.
  void (*copy)(const Strip& strip, int64_t lanes, int64_t depth, float* out, int64_t out_stride);
  /// c[i, j] = sum over p of a[i, p] b[p, j] for few i; a is not packed. dots needs b.depth_stride 1, axpys
  /// b.lane_stride 1, and sums of (rows, kAxpyStride).
  void (*dots)(int64_t depth, const GemmLeft& a, const Strip& b, const GemmTile& c);
  void (*axpys)(int64_t depth, const GemmLeft& a, const Strip& b, float* sums, const GemmTile& c);
};

/// For the processor that runs this.
const GemmTarget& gemm_target();

}  // namespace weft::cpu
