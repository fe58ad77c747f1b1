#include <cmath>
#include <numeric>

#include "quant/codes.h"
#include "quant/near_points.h"
#include "quant/search.h"

/// Encoders of iq1: three levels, all moved up or down by an eighth. Which elements get which level is
/// solved exactly before points of the grid are taken for them.
namespace weft::quant {
namespace {

constexpr size_t kBlock = 256;
constexpr float kMove = 0.125f;
constexpr float kUp[] = {-1 + kMove, kMove, 1 + kMove}, kDown[] = {-1 - kMove, -kMove, 1 - kMove};

/// A group of elements with one scale. `parts` of it are moved each on its own: one of 32 elements in iq1_s,
/// two of 8 in iq1_m.
template <size_t parts>
struct Group {
  static constexpr size_t kElements = parts == 1 ? 32 : 16;

  float scale = 0;
  std::array<uint16_t, kElements / 8> points{};
  std::array<bool, parts> down{};

  static size_t part_of(size_t element) { return element * parts / kElements; }
  std::span<const float> levels_of(size_t element) const { return down[part_of(element)] ? kDown : kUp; }
};

const NearPoints<2048, 8>& near_points() {
  static const NearPoints near(kGridIq1, 3);
  return near;
}

/// The digits with the least weighted error: in the order of their values, the elements are cut twice, and
/// every pair of cuts is tried with every way to move the parts.
template <size_t parts>
bool search_digits(const float* x, const float* weights, Group<parts>& group, uint8_t* digits) {
  constexpr size_t n = Group<parts>::kElements;
  std::array<size_t, n> order;
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return x[i]; });
  float sum_x[parts][n + 1] = {}, sum_w[parts][n + 1] = {};
  for (size_t j = 0; j < n; ++j) {
    const size_t i = order[j];
    for (size_t p = 0; p < parts; ++p) {
      const bool here = Group<parts>::part_of(i) == p;
      sum_x[p][j + 1] = here ? sum_x[p][j] + weights[i] * x[i] : sum_x[p][j];
      sum_w[p][j + 1] = here ? sum_w[p][j] + weights[i] : sum_w[p][j];
    }
  }
  float best = -std::numeric_limits<float>::max();
  size_t best_first = n + 1, best_second = 0;
  for (size_t first = 0; first <= n; ++first)
    for (size_t second = first; second <= n; ++second) {
      float xq[parts][2], qq[parts][2];
      for (size_t p = 0; p < parts; ++p)
        for (size_t down = 0; down < 2; ++down) {
          const float* l = down ? kDown : kUp;
          const float *sx = sum_x[p], *sw = sum_w[p];
          // Two ways to write the same sums. Where cuts are equally good their rounding decides, and ggml has
          // one in each type.
          if (parts == 1) {
            xq[p][down] = sx[first] * l[0] + (sx[second] - sx[first]) * l[1] + (sx[n] - sx[second]) * l[2];
            qq[p][down] = sw[first] * l[0] * l[0] + (sw[second] - sw[first]) * l[1] * l[1] +
                          (sw[n] - sw[second]) * l[2] * l[2];
          } else {
            xq[p][down] = sx[n] * l[2] - (sx[first] + sx[second]);
            qq[p][down] = sw[n] * l[2] * l[2] + sw[first] * (l[0] * l[0] - l[1] * l[1]) +
                          sw[second] * (l[1] * l[1] - l[2] * l[2]);
          }
        }
      for (size_t way = 0; way < 1u << parts; ++way) {
        float sum_xq = 0, sum_qq = 0;
        for (size_t p = 0; p < parts; ++p) {
          const size_t down = way >> (parts - 1 - p) & 1;
          sum_xq += xq[p][down];
          sum_qq += qq[p][down];
        }
        if (!(sum_qq > 0 && sum_xq * sum_xq > best * sum_qq)) continue;
        group.scale = sum_xq / sum_qq;
        best = group.scale * sum_xq;
        best_first = first, best_second = second;
        for (size_t p = 0; p < parts; ++p) group.down[p] = way >> (parts - 1 - p) & 1;
      }
    }
  if (best_first > n) return false;
  for (size_t j = 0; j < n; ++j) digits[order[j]] = j < best_first ? 0 : j < best_second ? 1 : 2;
  if (group.scale < 0) {
    group.scale = -group.scale;
    for (size_t i = 0; i < n; ++i) digits[i] = static_cast<uint8_t>(2 - digits[i]);
    for (bool& down : group.down) down = !down;
  }
  return true;
}

/// Sums of the products of x and its levels, times `factor`, and of the levels' squares.
template <size_t parts>
void add_fit(const float* x, const float* weights, const Group<parts>& group, float factor, float& xq,
             float& qq) {
  for (size_t i = 0; i < Group<parts>::kElements; ++i) {
    const float q = group.levels_of(i)[near_points().grid()[group.points[i / 8]][i % 8]] * factor;
    xq += weights[i] * q * x[i];
    qq += weights[i] * q * q;
  }
}

template <size_t parts>
Group<parts> search_group(const float* x, const float* weights, float smallest) {
  constexpr size_t n = Group<parts>::kElements;
  if (std::abs(peak({x, n})) < smallest) return {};
  Group<parts> group;
  uint8_t digits[n];
  if (!search_digits(x, weights, group, digits)) return {};
  bool exact = true;
  for (size_t k = 0; k < n / 8; ++k) {
    exact = exact && near_points().has(digits + 8 * k);
    group.points[k] =
        near_points().find(digits + 8 * k, x + 8 * k, weights + 8 * k, group.scale, group.levels_of(8 * k));
  }
  if (exact) return group;
  float xq = 0, qq = 0;
  add_fit(x, weights, group, 1, xq, qq);
  if (xq > 0 && qq > 0) group.scale = xq / qq;
  return group;
}

/// All groups of a block, and how much each element counts.
template <size_t parts>
struct Groups {
  static constexpr size_t kCount = kBlock / Group<parts>::kElements;

  std::array<Group<parts>, kCount> list;
  std::array<float, kBlock> weights;
  float top = 0;  ///< the largest scale

  Groups(const float* x, const float* importance, float smallest) {
    float sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += x[i] * x[i];
    const float spread = 2 * sum / kBlock;
    for (size_t i = 0; i < kBlock; ++i)
      weights[i] = importance ? importance[i] * std::sqrt(spread + x[i] * x[i]) : x[i] * x[i];
    for (size_t g = 0; g < kCount; ++g) {
      const size_t first = g * Group<parts>::kElements;
      list[g] = search_group<parts>(x + first, weights.data() + first, smallest);
      top = std::max(top, list[g].scale);
    }
  }
  /// The code of a group's scale, of 3 bits.
  int scale(size_t g) const {
    const float d = top / 15;
    return static_cast<int>(nearest(0.5f * (1 / d * list[g].scale - 1), 0, 7));
  }
};

}  // namespace

void pack_iq1_s(const float* x, const float* importance, uint8_t* b) {
  std::fill_n(b, 50, uint8_t{0});
  const Groups<1> groups(x, importance, 1e-12f);
  if (groups.top == 0) return;
  put_half(b, groups.top / 15 * 1.125f);  // the factor is ggml's, here and below
  for (size_t g = 0; g < 8; ++g) {
    const Group<1>& group = groups.list[g];
    int rest = groups.scale(g) << 12 | (group.down[0] ? 1 : 0) << 15;
    for (size_t k = 0; k < 4; ++k) {
      b[2 + 4 * g + k] = static_cast<uint8_t>(group.points[k]);
      rest |= group.points[k] >> 8 << 3 * k;
    }
    put_u16(b + 34 + 2 * g, static_cast<uint16_t>(rest));
  }
}

void pack_iq1_m(const float* x, const float* importance, uint8_t* b) {
  std::fill_n(b, 56, uint8_t{0});
  const Groups<2> groups(x, importance, 1e-7f);
  if (groups.top == 0) return;
  int words[4] = {};
  float xq = 0, qq = 0;
  for (size_t g = 0; g < 16; ++g) {
    const Group<2>& group = groups.list[g];
    for (size_t k = 0; k < 2; ++k) {
      b[2 * g + k] = static_cast<uint8_t>(group.points[k]);
      b[32 + g] |= static_cast<uint8_t>((group.points[k] >> 8 | (group.down[k] ? 8 : 0)) << 4 * k);
    }
    const int scale = groups.scale(g);
    words[g / 4] |= scale << 3 * (g % 4);
    add_fit(x + 16 * g, groups.weights.data() + 16 * g, group, static_cast<float>(2 * scale + 1), xq, qq);
  }
  uint8_t half[2];
  put_half(half, (qq > 0 ? xq / qq : groups.top / 15) * 1.1125f);
  for (size_t i = 0; i < 4; ++i)
    put_u16(b + 48 + 2 * i, static_cast<uint16_t>(words[i] | (u16_at(half) >> 4 * i & 15) << 12));
}

}  // namespace weft::quant
