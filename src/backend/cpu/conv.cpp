// Convolutions in f32. Three ways, forward and backward:
//   one tap            the matrix product it is
//   few outputs        direct: every tap is a shifted copy of the image (depthwise)
//   all others         matrix products whose packing takes the windows apart; windows are never in memory
//
// All of them read an Image: padded, so that no window leaves it, and with the elements that are a stride
// apart side by side, so that neighbouring windows are neighbours in memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "backend/cpu/gemm_parts.h"
#include "backend/cpu/gemm_target.h"
#include "backend/cpu/primitives.h"
#include "backend/cpu/wide.h"

namespace weft::cpu {
namespace {

thread_local Scratch scratch_image, scratch_lines, scratch_sums, scratch_turned;

using Sizes = std::array<int64_t, 3>;  // (depth, height, width); missing dims are 1

int64_t product(const Sizes& sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

/// y (n, groups * co, out) = x (n, groups * ci, in) * w (groups * co, ci, kernel).
struct Problem {
  int64_t images, groups, ci, co;
  Sizes in, out, kernel, stride, dilation, padding;

  Problem(const Shape& x, const Shape& w, const Shape& y, const Attrs& attrs)
      : images(x[0]), groups(attrs.integer("groups")), ci(w[1]), co(w[0] / groups) {
    const auto spatial = [](const std::vector<int64_t>& values, size_t from, int64_t fallback) {
      Sizes sizes{fallback, fallback, fallback};
      std::copy(values.begin() + static_cast<ptrdiff_t>(from), values.end(),
                sizes.end() - static_cast<ptrdiff_t>(values.size() - from));
      return sizes;
    };
    in = spatial(x, 2, 1), out = spatial(y, 2, 1), kernel = spatial(w, 2, 1);
    stride = spatial(attrs.list("stride"), 0, 1), dilation = spatial(attrs.list("dilation"), 0, 1);
    padding = spatial(attrs.list("padding"), 0, 0);
  }

  int64_t taps() const { return product(kernel); }
  int64_t depth() const { return ci * taps(); }  // elements of a window
  int64_t positions() const { return product(out); }
  int64_t rows() const { return out[0] * out[1]; }  // of windows side by side
  int64_t work() const { return images * groups * co * depth() * positions(); }
  /// Of conv_transpose `out` may be smaller: what output_padding adds to `in` no window reaches.
  bool is_pointwise() const {
    return taps() == 1 && stride == Sizes{1, 1, 1} && padding == Sizes{0, 0, 0} && in == out;
  }
  bool is_direct() const { return co <= 4; }  // too few rows for a matrix product

  /// Images that make a matrix wide enough for whole tiles.
  int64_t chunk() const { return std::clamp<int64_t>(1024 / positions(), 1, std::max<int64_t>(images, 1)); }

  // Where an image's part of a group starts.
  int64_t x_at(int64_t image, int64_t group) const { return (image * groups + group) * ci * product(in); }
  int64_t y_at(int64_t image, int64_t group) const { return (image * groups + group) * co * positions(); }
  int64_t w_at(int64_t group) const { return group * co * depth(); }

  /// The problem that gives the gradient of x from that of y where windows are one apart: w turned round.
  Problem turned() const {
    Problem p = *this;
    std::swap(p.ci, p.co);
    std::swap(p.in, p.out);
    for (size_t d = 0; d < 3; ++d) p.padding[d] = dilation[d] * (kernel[d] - 1) - padding[d];
    return p;
  }
  bool can_turn() const { return stride == Sizes{1, 1, 1}; }
};

/// The channels of one group in one or several images, or their gradient: (image, channel, depth, height,
/// phase, width), where element x of a row is at phase x % stride, column x / stride.
class Image {
 public:
  explicit Image(const Problem& p, int64_t images = 1) : p_(p), phases_(p.stride[2]) {
    for (size_t d = 0; d < 3; ++d)
      size_[d] = std::max((p.out[d] - 1) * p.stride[d] + p.dilation[d] * (p.kernel[d] - 1) + 1, int64_t{1});
    size_[2] = ceil_div(size_[2], phases_);
    row_ = size_[2] * phases_;
    plane_ = size_[1] * row_;
    channel_ = size_[0] * plane_;
    data_ = scratch_image.floats(images * p.ci * channel_ + kSlack);
    std::fill_n(data_ + images * p.ci * channel_, kSlack, 0.0f);
    taps_.reserve(static_cast<size_t>(p.depth()));
    for (int64_t channel = 0; channel < p.ci; ++channel)
      for (int64_t d = 0; d < p.kernel[0]; ++d)
        for (int64_t h = 0; h < p.kernel[1]; ++h)
          for (int64_t w = 0; w < p.kernel[2]; ++w)
            taps_.push_back(channel * channel_ + d * p.dilation[0] * plane_ + h * p.dilation[1] * row_ +
                            place(w * p.dilation[2]));
  }

  float* data() const { return data_; }
  int64_t channel_stride() const { return channel_; }

  /// Where the first window has each of its elements.
  const std::vector<int64_t>& taps() const { return taps_; }
  int64_t tap(int64_t element) const { return taps_[static_cast<size_t>(element)]; }
  /// How far the row of windows (image, od, oh) is from the first one; its windows are side by side.
  int64_t row_of(int64_t row) const {
    const int64_t plane = row / p_.out[1];
    return plane / p_.out[0] * p_.ci * channel_ + plane % p_.out[0] * p_.stride[0] * plane_ +
           row % p_.out[1] * p_.stride[1] * row_;
  }

  /// Fills channels [begin, end), counted over all images, from x (end - begin, in).
  void read(const float* x, int64_t begin, int64_t end) const {
    clear(begin, end);
    each_run(begin, end, [&](int64_t from, int64_t to, int64_t count) {
      if (phases_ == 1)
        std::copy_n(x + from, count, data_ + to);
      else
        for (int64_t i = 0; i < count; ++i) data_[to + i] = x[from + i * phases_];
    });
  }

  void clear(int64_t begin, int64_t end) const {
    std::fill(data_ + begin * channel_, data_ + end * channel_, 0.0f);
  }

  /// Writes channels [begin, end) to x (end - begin, in); what no window reaches is 0.
  void write(float* x, int64_t begin, int64_t end) const {
    std::fill_n(x, (end - begin) * product(p_.in), 0.0f);
    each_run(begin, end, [&](int64_t from, int64_t to, int64_t count) {
      for (int64_t i = 0; i < count; ++i) x[from + i * phases_] = data_[to + i];
    });
  }

  static constexpr int64_t kSlack = 64;  // floats that may be read beyond the end

 private:
  /// In a row: of element `at`, padding counted.
  int64_t place(int64_t at) const { return at % phases_ * size_[2] + at / phases_; }

  /// body(place in x, place here, count) for each row and phase that both have; in x elements are phases_
  /// apart.
  template <typename Body>
  void each_run(int64_t begin, int64_t end, const Body& body) const {
    const int64_t last = std::min(p_.in[2], row_ - p_.padding[2]);
    for (int64_t channel = begin; channel < end; ++channel)
      for (int64_t d = 0; d < p_.in[0]; ++d)
        for (int64_t h = 0; h < p_.in[1]; ++h) {
          const int64_t at_d = d + p_.padding[0], at_h = h + p_.padding[1];
          if (at_d < 0 || at_d >= size_[0] || at_h < 0 || at_h >= size_[1]) continue;
          const int64_t from = (((channel - begin) * p_.in[0] + d) * p_.in[1] + h) * p_.in[2],
                        to = channel * channel_ + at_d * plane_ + at_h * row_;
          for (int64_t phase = 0; phase < phases_; ++phase) {
            const int64_t first = std::max(-p_.padding[2], int64_t{0}) + phase;
            if (first < last)
              body(from + first, to + place(first + p_.padding[2]), ceil_div(last - first, phases_));
          }
        }
  }

  const Problem& p_;
  Sizes size_;  // (depth, height, columns of a phase)
  int64_t phases_, row_, plane_, channel_;
  float* data_;
  std::vector<int64_t> taps_;
};

// ---- loops along rows, compiled for wide vectors

using Vector [[gnu::vector_size(64)]] = float;
constexpr int64_t kLanes = 16, kVectors = 4;  // of a vector; at a time

/// Into a parameter: a vector as a result would depend on the target it is compiled for.
void load(Vector& vector, const float* from) {
  std::memcpy(&vector, from, sizeof vector);
}

/// out[i] = sum over taps of weights[tap] x[offsets[tap] + i], in whole vectors: up to Image::kSlack more
/// than count.
void correlate_run(const float* x, const int64_t* offsets, const float* weights, int64_t taps, float* out,
                   int64_t count) {
  for (int64_t i = 0; i < count; i += kVectors * kLanes) {
    Vector sums[kVectors] = {};
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t v = 0; v < kVectors; ++v) {
        Vector part;
        load(part, x + offsets[tap] + i + v * kLanes);
        sums[v] += weights[tap] * part;
      }
    std::memcpy(out + i, sums, sizeof sums);
  }
}

/// Rows of `count` elements; those of x and y are x_stride and y_stride apart.
struct Rows {
  int64_t rows, count, x_stride, y_stride;
};

/// y += factor x
void add_rows(const Rows& at, float factor, const float* x, float* y) {
  for (int64_t row = 0; row < at.rows; ++row, x += at.x_stride, y += at.y_stride)
    for (int64_t i = 0; i < at.count; ++i) y[i] += factor * x[i];
}

/// *sum += sum of x y; reads up to Image::kSlack more than there is.
void dot_rows(const Rows& at, const float* x, const float* y, float* sum) {
  using Numbers [[gnu::vector_size(64)]] = int32_t;
  const Numbers lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const auto count = static_cast<int32_t>(at.count);
  Vector sums[kVectors] = {};
  for (int64_t row = 0; row < at.rows; ++row, x += at.x_stride, y += at.y_stride)
    for (int32_t i = 0; i < count; i += kVectors * kLanes)
      for (int32_t v = 0; v < kVectors; ++v) {
        const int32_t from = i + v * static_cast<int32_t>(kLanes);
        Vector of_x, of_y;
        load(of_x, x + from), load(of_y, y + from);
        // Chosen, not multiplied by 0: what lies beyond the row may be infinite.
        sums[v] += lane + from < count ? of_x * of_y : Vector{};
      }
  const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int64_t l = 0; l < kLanes; ++l) *sum += all[l];
}

/// A vector of windows side by side: where it is in the image and in a row of the packed block.
struct Piece {
  int64_t from, to;
};

/// The same pieces for each tap, one row after the other. What a piece has too much the next one overwrites.
void copy_pieces(const float* image, const int64_t* taps, int64_t rows, const Piece* pieces, int64_t count,
                 int64_t width, float* out) {
  for (int64_t row = 0; row < rows; ++row, out += width)
    for (int64_t i = 0; i < count; ++i) {
      Vector part;
      load(part, image + taps[row] + pieces[i].from);
      std::memcpy(out + pieces[i].to, &part, sizeof part);
    }
}

// ---- windows as the right operand of a product

/// Windows side by side: the first one's place in the image, and its number.
struct Run {
  int64_t place, first, count;
};

/// Of windows [begin, begin + count), numbered from 0; and the same in vectors.
struct Windows {
  std::vector<Run> runs;
  std::vector<Piece> pieces;

  void find(const Problem& p, const Image& image, int64_t begin, int64_t count) {
    runs.clear();
    pieces.clear();
    for (int64_t i = 0; i < count; i += runs.back().count) {
      const int64_t at = (begin + i) % p.out[2];
      runs.push_back({image.row_of((begin + i) / p.out[2]) + at, i, std::min(p.out[2] - at, count - i)});
      for (int64_t j = 0; j < runs.back().count; j += kLanes)
        pieces.push_back({runs.back().place + j, i + j});
    }
  }
};

/// Columns are windows, rows their elements.
void pack_windows(const Problem& p, const Image& image, const GemmBlock& block, int64_t width, float* out) {
  Windows windows;
  const int64_t* const taps = image.taps().data() + block.row;
  for (int64_t column = 0; column < block.columns; column += width) {
    const int64_t lanes = std::min(width, block.columns - column);
    windows.find(p, image, block.column + column, lanes);
    // All rows but the last, behind which there is nothing to overwrite.
    wide<copy_pieces>(image.data(), taps, block.rows - 1, windows.pieces.data(), std::ssize(windows.pieces),
                      width, out);
    float* const last = out + (block.rows - 1) * width;
    for (const Run& run : windows.runs)
      std::copy_n(image.data() + taps[block.rows - 1] + run.place, run.count, last + run.first);
    if (lanes < width)
      for (int64_t i = 0; i < block.rows; ++i)
        std::fill(out + i * width + lanes, out + (i + 1) * width, 0.0f);
    out += block.rows * width;
  }
}

/// Columns are elements of a window, rows are windows.
void pack_elements(const Problem& p, const Image& image, const GemmBlock& block, int64_t width, float* out) {
  Windows windows;
  windows.find(p, image, block.row, block.rows);
  float* lines = scratch_lines.floats(width * block.rows + kLanes);  // (lane, window)
  for (int64_t column = 0; column < block.columns; column += width, out += width * block.rows) {
    const int64_t lanes = std::min(width, block.columns - column);
    wide<copy_pieces>(image.data(), image.taps().data() + block.column + column, lanes, windows.pieces.data(),
                      std::ssize(windows.pieces), block.rows, lines);
    const Strip strip{reinterpret_cast<const std::byte*>(lines), DType::f32, block.rows, 1};
    gemm_target().pack_b(strip, lanes, block.rows, out);
  }
}

GemmOperand matrix(const float* data, int64_t row_stride, int64_t column_stride) {
  return {reinterpret_cast<const std::byte*>(data), DType::f32, row_stride, column_stride};
}

// ---- forward

void direct_forward(const Problem& p, const Image& image, const float* w, float* y) {
  // Where windows are one apart a plane is a single run: what it computes between two rows is dropped.
  const int64_t rows = p.stride[1] == 1 && p.stride[2] == 1 ? p.out[1] : 1;
  const int64_t apart = image.row_of(1), count = (rows - 1) * apart + p.out[2];
  float* line = scratch_lines.floats(count + Image::kSlack);
  for (int64_t channel = 0; channel < p.co; ++channel)
    for (int64_t row = 0; row < p.rows(); row += rows) {
      wide<correlate_run>(image.data() + image.row_of(row), image.taps().data(), w + channel * p.depth(),
                          p.depth(), line, count);
      for (int64_t r = 0; r < rows; ++r)
        std::copy_n(line + r * apart, p.out[2], y + (channel * p.rows() + row + r) * p.out[2]);
    }
}

/// Images [image, image + count) of one group.
struct Chunk {
  int64_t group, image, count;
};

/// body(chunk) for all images and groups: chunks side by side where there are enough or they are small.
template <typename Body>
void for_chunks(ThreadPool& pool, const Problem& p, int64_t images, const Body& body) {
  const int64_t per_group = ceil_div(p.images, images), chunks = p.groups * per_group;
  const auto one = [&](int64_t index) {
    const int64_t image = index % per_group * images;
    body(Chunk{index / per_group, image, std::min(images, p.images - image)});
  };
  const int64_t work = p.work() / std::max<int64_t>(chunks, 1) + 1;
  if (chunks >= int64_t{4} * pool.threads() || work < kParallelWork || p.is_direct())
    pool.for_each(static_cast<size_t>(chunks), static_cast<size_t>(ceil_div(kParallelWork / 8, work)),
                  [&](size_t begin, size_t end) {
                    for (size_t i = begin; i < end; ++i) one(static_cast<int64_t>(i));
                  });
  else
    for (int64_t i = 0; i < chunks; ++i) one(i);
}

void read_images(ThreadPool& pool, const Problem& p, const Chunk& chunk, const float* x, const Image& image) {
  const auto channels = static_cast<size_t>(chunk.count * p.ci);
  pool.for_each(
      channels, static_cast<size_t>(ceil_div(1 << 15, image.channel_stride())),
      [&](size_t begin, size_t end) {
        for (auto channel = static_cast<int64_t>(begin); channel < static_cast<int64_t>(end); ++channel)
          image.read(x + p.x_at(chunk.image + channel / p.ci, chunk.group) + channel % p.ci * product(p.in),
                     channel, channel + 1);
      });
}

/// (co, count * positions) <-> the images' own (co, positions) in y; f(chunk's place, y's place, count).
template <typename F>
void each_image_row(const Problem& p, const Chunk& chunk, const GemmBlock& block, const F& f) {
  const int64_t size = p.positions();
  for (int64_t row = block.row; row < block.row + block.rows; ++row)
    for (int64_t column = block.column; column < block.column + block.columns;) {
      const int64_t image = column / size, at = column % size;
      const int64_t count = std::min(size - at, block.column + block.columns - column);
      f(row * chunk.count * size + column, p.y_at(chunk.image + image, chunk.group) + row * size + at, count);
      column += count;
    }
}

void forward(ThreadPool& pool, const Problem& p, const float* x, const float* w, float* y) {
  for_chunks(pool, p, p.is_direct() || p.is_pointwise() ? 1 : p.chunk(), [&](const Chunk& chunk) {
    const int64_t columns = chunk.count * p.positions();
    const float* weights = w + p.w_at(chunk.group);
    float* to = y + p.y_at(chunk.image, chunk.group);
    const GemmOperand left = matrix(weights, p.depth(), 1);
    if (p.is_pointwise())
      return gemm(pool, p.co, columns, p.ci, left, matrix(x + p.x_at(chunk.image, chunk.group), columns, 1),
                  to, columns);
    const Image image(p, chunk.count);
    read_images(pool, p, chunk, x, image);
    if (p.is_direct()) return direct_forward(p, image, weights, to);
    const auto pack = [&](const GemmBlock& block, int64_t width, float* out) {
      pack_windows(p, image, block, width, out);
    };
    if (chunk.count == 1) return gemm(pool, p.co, columns, p.depth(), left, pack, to, columns);
    float* sums = scratch_sums.floats(p.co * columns);
    gemm(pool, p.co, columns, p.depth(), left, pack, sums, columns, [&](const GemmBlock& block) {
      each_image_row(p, chunk, block, [&](int64_t from, int64_t at, int64_t count) {
        std::copy_n(sums + from, count, y + at);
      });
    });
  });
}

// ---- gradients

/// w (groups * co, ci, taps) -> (groups * ci, co, taps backwards).
const float* turned_weights(const Problem& p, const float* w) {
  const int64_t taps = p.taps();
  float* turned = scratch_turned.floats(p.groups * p.co * p.ci * taps);
  for (int64_t group = 0; group < p.groups; ++group)
    for (int64_t co = 0; co < p.co; ++co)
      for (int64_t ci = 0; ci < p.ci; ++ci) {
        const float* from = w + ((group * p.co + co) * p.ci + ci) * taps;
        std::reverse_copy(from, from + taps, turned + ((group * p.ci + ci) * p.co + co) * taps);
      }
  return turned;
}

/// The windows of a plane: in y (or its gradient) and in the image.
Rows rows_of(const Problem& p, const Image& image) {
  return {p.out[1], p.out[2], p.out[2], image.row_of(1) - image.row_of(0)};
}

/// Channels [begin, end) of the gradient of x, where windows are further apart.
void spread_gradient(ThreadPool& pool, const Problem& all, const Chunk& of, int64_t begin, int64_t end,
                     const float* g, const float* w, float* x) {
  Problem p = all;
  p.ci = end - begin;
  g += all.y_at(of.image, of.group), w += all.w_at(of.group) + begin * p.taps();
  x += all.x_at(of.image, of.group) + begin * product(p.in);
  const Image image(p);
  image.clear(0, p.ci);
  const auto add = [&](float factor, const float* from, int64_t element) {
    for (int64_t plane = 0; plane < p.out[0]; ++plane)
      wide<add_rows>(rows_of(p, image), factor, from + plane * p.out[1] * p.out[2],
                     image.data() + image.tap(element) + image.row_of(plane * p.out[1]));
  };
  if (p.is_direct()) {
    for (int64_t co = 0; co < p.co; ++co)
      for (int64_t i = 0; i < p.depth(); ++i) add(w[co * all.depth() + i], g + co * p.positions(), i);
  } else {
    float* sums = scratch_sums.floats(p.depth() * p.positions());  // (depth, positions)
    gemm(pool, p.depth(), p.positions(), p.co, matrix(w, 1, all.depth()), matrix(g, p.positions(), 1), sums,
         p.positions());
    for (int64_t i = 0; i < p.depth(); ++i) add(1, sums + i * p.positions(), i);
  }
  image.write(x, 0, p.ci);
}

void input_gradient(ThreadPool& pool, const Problem& p, const float* g, const float* w, float* x) {
  if (p.is_pointwise()) {
    for_chunks(pool, p, 1, [&](const Chunk& chunk) {
      gemm(pool, p.ci, p.positions(), p.co, matrix(w + p.w_at(chunk.group), 1, p.ci),
           matrix(g + p.y_at(chunk.image, chunk.group), p.positions(), 1),
           x + p.x_at(chunk.image, chunk.group), p.positions());
    });
    return;
  }
  if (p.can_turn()) return forward(pool, p.turned(), g, turned_weights(p, w), x);
  constexpr int64_t kBlock = 1 << 17;  // floats of sums: they stay in L2
  const int64_t block = std::clamp<int64_t>(kBlock / (p.taps() * p.positions()), 1, p.ci);
  const int64_t blocks = ceil_div(p.ci, block);
  pool.for_each(static_cast<size_t>(p.images * p.groups * blocks), 1, [&](size_t task, size_t) {
    const int64_t index = static_cast<int64_t>(task) / blocks,
                  begin = static_cast<int64_t>(task) % blocks * block;
    spread_gradient(pool, p, {index % p.groups, index / p.groups, 1}, begin, std::min(begin + block, p.ci), g,
                    w, x);
  });
}

void direct_weight_gradient(const Problem& p, const Image& image, const float* g, float* w) {
  const int64_t plane = p.out[1] * p.out[2];
  float* line = scratch_lines.floats(plane + Image::kSlack);
  std::fill_n(line + plane, Image::kSlack, 0.0f);
  for (int64_t i = 0; i < p.co * p.out[0]; ++i) {
    std::copy_n(g + i * plane, plane, line);
    const float* windows = image.data() + image.row_of(i % p.out[0] * p.out[1]);
    for (int64_t element = 0; element < p.depth(); ++element)
      wide<dot_rows>(rows_of(p, image), static_cast<const float*>(line), windows + image.tap(element),
                     w + i / p.out[0] * p.depth() + element);
  }
}

void weight_gradient(ThreadPool& pool, const Problem& p, const float* x, const float* g, float* w) {
  std::fill_n(w, p.groups * p.co * p.depth(), 0.0f);
  const auto add_chunk = [&](const Chunk& chunk) {
    const float* of_y = g + p.y_at(chunk.image, chunk.group);
    float* to = w + p.w_at(chunk.group);
    const int64_t rows = chunk.count * p.positions();
    float* sums = scratch_sums.floats(p.co * (p.depth() + rows));
    const auto add = [&](const GemmBlock& block) {
      const int64_t at = block.row * p.depth() + block.column;
      wide<add_rows>(Rows{block.rows, block.columns, p.depth(), p.depth()}, 1.0f,
                     static_cast<const float*>(sums + at), to + at);
    };
    if (p.is_pointwise())
      return gemm(pool, p.co, p.depth(), rows, matrix(of_y, rows, 1),
                  matrix(x + p.x_at(chunk.image, chunk.group), 1, rows), sums, p.depth(), add);
    const Image image(p, chunk.count);
    read_images(pool, p, chunk, x, image);
    if (p.is_direct()) return direct_weight_gradient(p, image, of_y, to);
    const float* left = of_y;
    if (chunk.count > 1) {
      float* joined = sums + p.co * p.depth();  // (co, count * positions)
      each_image_row(p, chunk, {0, 0, p.co, rows}, [&](int64_t at, int64_t from, int64_t count) {
        std::copy_n(g + from, count, joined + at);
      });
      left = joined;
    }
    const auto pack = [&](const GemmBlock& block, int64_t width, float* out) {
      pack_elements(p, image, block, width, out);
    };
    gemm(pool, p.co, p.depth(), rows, matrix(left, rows, 1), pack, sums, p.depth(), add);
  };
  // Images of a group one after the other: the order of the sums does not depend on the threads.
  const int64_t images = p.is_direct() || p.is_pointwise() ? 1 : p.chunk();
  const auto group = [&](int64_t at) {
    for (int64_t image = 0; image < p.images; image += images)
      add_chunk({at, image, std::min(images, p.images - image)});
  };
  if (p.groups >= int64_t{2} * pool.threads())
    pool.for_each(static_cast<size_t>(p.groups), 1,
                  [&](size_t at, size_t) { group(static_cast<int64_t>(at)); });
  else
    for (int64_t at = 0; at < p.groups; ++at) group(at);
}

/// f32 elements in row-major order: the tensor's own, or a copy in `storage`.
const float* plain(ThreadPool& pool, const Tensor& x, std::vector<float>& storage) {
  if (x.layout.is_contiguous()) return x.as<const float>() + x.layout.offset;
  storage.resize(static_cast<size_t>(element_count(x.layout.shape)));
  const Tensor to{reinterpret_cast<std::byte*>(storage.data()), DType::f32,
                  Layout::contiguous(x.layout.shape)};
  copy(pool, std::span(&x, 1), std::span(&to, 1), {});
  return storage.data();
}

using Tensors = std::span<const Tensor>;
using Way = void (*)(ThreadPool&, const Problem&, const float*, const float*, float*);

void run(Way f, ThreadPool& pool, const Problem& p, Tensors in, const Tensor& out) {
  if (element_count(out.layout.shape) == 0) return;
  std::vector<float> first, second;
  f(pool, p, plain(pool, in[0], first), plain(pool, in[1], second), out.as<float>());
}

}  // namespace

void convolve(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  run(forward, pool, {in[0].layout.shape, in[1].layout.shape, out[0].layout.shape, attrs}, in, out[0]);
}

void convolve_input(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  run(input_gradient, pool, {out[0].layout.shape, in[1].layout.shape, in[0].layout.shape, attrs}, in, out[0]);
}

void convolve_weight(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  run(weight_gradient, pool, {in[0].layout.shape, out[0].layout.shape, in[1].layout.shape, attrs}, in,
      out[0]);
}

}  // namespace weft::cpu
