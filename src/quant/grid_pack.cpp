#include <cmath>

#include "quant/codes.h"
#include "quant/near_points.h"
#include "quant/search.h"

/// Encoders of iq2 and iq3: magnitudes become points of a grid, signs are kept beside them. Scales are
/// searched as ggml does it, operation for operation.
namespace weft::quant {
namespace {

constexpr size_t kBlock = 256;
constexpr float kLevels[] = {1, 3, 5, 7, 9, 11, 13, 15};  // of digits

/// How a type looks for scales and points.
struct Rules {
  size_t elements;  ///< of a group, which has one scale
  float smallest;   ///< below it a group counts as zero
  int tries;        ///< scales on each side of the one that gives the largest magnitude the last level
  float step;       ///< between them
  /// After the best scale is known, points are chosen anew: all, all unless they were exact, or those that
  /// were not.
  enum class Again { all, all_or_none, inexact } again;
  float spread;     ///< of the mean square in the weights
  bool even_signs;  ///< an even number of minuses in 8 elements; the least important one changes for it
  float factor;     ///< of the block's scale
};

struct Group {
  float scale = 0;
  std::array<uint16_t, 8> points{};
  std::array<uint8_t, 4> signs{};  ///< of 8 elements each
};

float mean_square(const float* x) {
  float sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += x[i] * x[i];
  return sum / kBlock;
}

/// Magnitudes of 8 elements, and a bit for each minus. An odd number of minuses can be made even: then one
/// magnitude is negative.
uint8_t take_signs(const float* x, const float* weights, bool even, float* magnitudes) {
  int signs = 0, minuses = 0;
  for (int i = 0; i < 8; ++i) {
    const bool minus = !(x[i] >= 0);
    magnitudes[i] = minus ? -x[i] : x[i];
    signs |= (minus ? 1 : 0) << i;
    minuses += minus;
  }
  if (even && minuses % 2 == 1) {
    int least = 0;
    for (int i = 1; i < 8; ++i)
      if (weights[i] * x[i] * x[i] < weights[least] * x[least] * x[least]) least = i;
    magnitudes[least] = -magnitudes[least];
    signs ^= 1 << least;
  }
  return static_cast<uint8_t>(signs);
}

/// iq2_xxs: the scale of codes 0 to `most`, of which the search for points begins. A negative code counts as
/// 256 more here and there, as in ggml.
float first_scale(std::span<const float> x, const float* weights, int most) {
  const auto code = [&](float inverse, float value) {
    return std::min(most, static_cast<int>(std::lrint(inverse * value)));
  };
  const float max = std::max(*std::ranges::max_element(x), 0.0f), top = static_cast<float>(most);
  float inverse = top / max, least = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto wrapped = static_cast<uint8_t>(std::lrint(inverse * x[i]));
    const float difference = x[i] - 1 / inverse * static_cast<float>(wrapped);
    least += weights[i] * difference * difference;
  }
  const float start = top;
  for (int n = -4; n <= 4; ++n) {
    if (n == 0) continue;
    const float tried = (0.1f * static_cast<float>(n) + start) / max, scale = 1 / tried;
    float error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float difference = x[i] - scale * static_cast<float>(code(tried, x[i]));
      error += weights[i] * difference * difference;
    }
    if (error < least) least = error, inverse = tried;
  }
  std::array<uint8_t, 32> codes;
  float xl = 0, ll = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto l = static_cast<float>(code(inverse, x[i]));
    codes[i] = static_cast<uint8_t>(code(inverse, x[i]));
    xl += weights[i] * x[i] * l;
    ll += weights[i] * l * l;
  }
  bool changed = true;
  for (int round = 0; round < 5 && changed; ++round) {
    changed = false;
    for (size_t i = 0; i < x.size(); ++i) {
      const float w = weights[i], old = codes[i];
      float other_xl = xl - w * x[i] * old, other_ll = ll - w * old * old;
      if (!(other_xl > 0 && other_ll > 0)) continue;
      const int better = std::min(most, static_cast<int>(std::lrint(x[i] * other_ll / other_xl)));
      if (better == codes[i]) continue;
      const auto l = static_cast<float>(better);
      other_xl += w * x[i] * l;
      other_ll += w * l * l;
      if (other_xl * other_xl * ll > xl * xl * other_ll) {
        codes[i] = static_cast<uint8_t>(better);
        xl = other_xl, ll = other_ll;
        changed = true;
      }
    }
  }
  return ll > 0 ? xl / ll : 0;
}

template <size_t points, size_t n>
class Search {
 public:
  Search(const NearPoints<points, n>& near, const Rules& rules) : near_(near), rules_(rules) {}

  Group group(const float* x, const float* weights) const {
    Group result;
    float magnitudes[32] = {}, roots[32] = {};
    const size_t count = rules_.elements;
    for (size_t k = 0; k < count / 8; ++k)
      result.signs[k] = take_signs(x + 8 * k, weights + 8 * k, rules_.even_signs, magnitudes + 8 * k);
    for (size_t i = 0; i < count; ++i) roots[i] = std::sqrt(weights[i]);
    const std::span<const float> values(magnitudes, count);
    float max = *std::ranges::max_element(values);
    if (max < rules_.smallest) return {};
    constexpr auto kTop = static_cast<float>(2 * NearPoints<points, n>::kDigits - 1);
    result.scale = max / kTop;
    if (rules_.again == Rules::Again::all) {
      constexpr int kMost = NearPoints<points, n>::kDigits;
      result.scale = first_scale(values, weights, kMost + 1);
      max = result.scale * kMost;
      if (max <= 0) return {};
    }
    float gain = 0;
    std::array<bool, 8> exact;
    exact.fill(true);
    for (int t = -rules_.tries; t <= rules_.tries; ++t) {
      const float inverse = (kTop + static_cast<float>(t) * rules_.step) / max;
      std::array<uint16_t, 8> chosen{};
      std::array<bool, 8> hits;
      hits.fill(true);
      for (size_t k = 0; k < count / n; ++k)
        hits[k] = choose(magnitudes + n * k, roots + n * k, inverse, 1 / inverse, chosen[k]);
      const auto [xq, qq] = fit(values, weights, chosen);
      if (!(qq > 0 && xq * xq > gain * qq)) continue;
      result.scale = xq / qq;
      gain = result.scale * xq;
      result.points = chosen;
      exact = hits;
    }
    choose_again(values, weights, roots, exact, result);
    if (result.scale < 0) {
      result.scale = -result.scale;
      for (uint8_t& signs : result.signs) signs = static_cast<uint8_t>(~signs);
    }
    return result;
  }

 private:
  using Again = Rules::Again;

  /// The point for n magnitudes; true where it is their own.
  bool choose(const float* x, const float* roots, float inverse, float scale, uint16_t& point) const {
    constexpr auto kLast = static_cast<float>(NearPoints<points, n>::kDigits - 1);
    uint8_t digits[n];
    for (size_t i = 0; i < n; ++i)
      digits[i] = static_cast<uint8_t>(nearest(0.5f * (inverse * x[i] - 1), 0, kLast));
    point = near_.find(digits, x, roots, scale, kLevels);
    return near_.has(digits);
  }

  std::pair<float, float> fit(std::span<const float> x, const float* weights,
                              const std::array<uint16_t, 8>& chosen) const {
    float xq = 0, qq = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float q = kLevels[near_.grid()[chosen[i / n]][i % n]];
      xq += weights[i] * x[i] * q;
      qq += weights[i] * q * q;
    }
    return {xq, qq};
  }

  void choose_again(std::span<const float> x, const float* weights, const float* roots,
                    const std::array<bool, 8>& exact, Group& group) const {
    const bool any = std::ranges::count(exact, false) > 0;
    if (!(group.scale > 0) || !(any || rules_.again == Again::all)) return;
    for (size_t k = 0; k < x.size() / n; ++k)
      if (rules_.again != Again::inexact || !exact[k])
        choose(x.data() + n * k, roots + n * k, 1 / group.scale, group.scale, group.points[k]);
    const auto [xq, qq] = fit(x, weights, group.points);
    if (qq > 0) group.scale = xq / qq;
  }

  const NearPoints<points, n>& near_;
  const Rules& rules_;
};

/// Searches all groups of a block, stores its scale, and gives each group with the code of its own scale to
/// `put`. `weight` says how much an element counts where nobody knows its importance.
template <size_t points, size_t n, typename Weight, typename Put>
void pack_groups(const NearPoints<points, n>& near, const Rules& rules, const float* x,
                 const float* importance, const Weight& weight, uint8_t* b, const Put& put) {
  const Search<points, n> search(near, rules);
  const float spread = rules.spread * mean_square(x);
  std::array<Group, 16> groups;
  const size_t count = kBlock / rules.elements;
  float top = 0;
  for (size_t g = 0; g < count; ++g) {
    const size_t first = rules.elements * g;
    float weights[32];
    for (size_t i = 0; i < rules.elements; ++i) {
      const float value = x[first + i];
      weights[i] =
          importance ? importance[first + i] * std::sqrt(spread + value * value) : weight(spread, value);
    }
    groups[g] = search.group(x + first, weights);
    top = std::max(top, groups[g].scale);
  }
  if (top == 0) return;
  const float d = top / 31, inverse = 1 / d;
  put_half(b, d * rules.factor);
  for (size_t g = 0; g < count; ++g)
    put(g, groups[g], static_cast<uint32_t>(nearest(0.5f * (inverse * groups[g].scale - 1), 0, 15)));
}

float square(float /*spread*/, float value) {
  return value * value;
}

/// 4 x 7 signs and a scale of 4 bits.
uint32_t signs_and_scale(const Group& group, uint32_t scale) {
  uint32_t word = scale << 28;
  for (size_t k = 0; k < 4; ++k) word |= static_cast<uint32_t>(group.signs[k] & 127) << 7 * k;
  return word;
}

}  // namespace

void pack_iq2_xxs(const float* x, const float* importance, uint8_t* b) {
  static const NearPoints near(kGridIq2Xxs, 2);
  constexpr Rules kRules{32, kSmallestPeak, 6, 0.1f, Rules::Again::all, 1, true, 1};
  std::fill_n(b, 66, uint8_t{0});
  pack_groups(near, kRules, x, importance, square, b, [&](size_t g, const Group& group, uint32_t scale) {
    for (size_t k = 0; k < 4; ++k) b[2 + 8 * g + k] = static_cast<uint8_t>(group.points[k]);
    put_u32(b + 6 + 8 * g, signs_and_scale(group, scale));
  });
}

void pack_iq2_xs(const float* x, const float* importance, uint8_t* b) {
  static const NearPoints near(kGridIq2Xs, 2);
  constexpr Rules kRules{16, kSmallestPeak, 9, 0.1f, Rules::Again::inexact, 1, true, 1};
  std::fill_n(b, 74, uint8_t{0});
  pack_groups(near, kRules, x, importance, square, b, [&](size_t g, const Group& group, uint32_t scale) {
    for (size_t k = 0; k < 2; ++k)
      put_u16(b + 2 + 4 * g + 2 * k, static_cast<uint16_t>(group.points[k] | (group.signs[k] & 127) << 9));
    b[66 + g / 2] |= static_cast<uint8_t>(scale << g % 2 * 4);
  });
}

void pack_iq2_s(const float* x, const float* importance, uint8_t* b) {
  static const NearPoints near(kGridIq2S, 1);
  constexpr Rules kRules{16, 1e-8f, 9, 0.1f, Rules::Again::inexact, 2, false, 0.9875f};
  std::fill_n(b, 82, uint8_t{0});
  const auto weight = [](float spread, float value) { return 0.25f * spread + value * value; };
  pack_groups(near, kRules, x, importance, weight, b, [&](size_t g, const Group& group, uint32_t scale) {
    for (size_t k = 0; k < 2; ++k) {
      const size_t at = 2 * g + k;
      b[2 + at] = static_cast<uint8_t>(group.points[k]);
      b[34 + at] = group.signs[k];
      b[66 + at / 4] |= static_cast<uint8_t>(group.points[k] >> 8 << at % 4 * 2);
    }
    b[74 + g / 2] |= static_cast<uint8_t>(scale << g % 2 * 4);
  });
}

void pack_iq3_xxs(const float* x, const float* importance, uint8_t* b) {
  static const NearPoints near(kGridIq3Xxs, 2);
  constexpr Rules kRules{32, 1e-8f, 15, 0.2f, Rules::Again::inexact, 2, true, 1.0125f};
  std::fill_n(b, 98, uint8_t{0});
  pack_groups(near, kRules, x, importance, square, b, [&](size_t g, const Group& group, uint32_t scale) {
    for (size_t k = 0; k < 8; ++k) b[2 + 8 * g + k] = static_cast<uint8_t>(group.points[k]);
    put_u32(b + 66 + 4 * g, signs_and_scale(group, scale));
  });
}

// As ggml, but for groups behind one of zeros, which ggml writes in the wrong place.
void pack_iq3_s(const float* x, uint8_t* b) {
  static const NearPoints near(kGridIq3S, 3);
  constexpr Rules kRules{
      32, std::numeric_limits<float>::denorm_min(), 9, 0.2f, Rules::Again::all_or_none, 2, false, 1.033f};
  std::fill_n(b, 110, uint8_t{0});
  pack_groups(near, kRules, x, nullptr, square, b, [&](size_t g, const Group& group, uint32_t scale) {
    for (size_t k = 0; k < 8; ++k) {
      b[2 + 8 * g + k] = static_cast<uint8_t>(group.points[k]);
      b[66 + g] |= static_cast<uint8_t>(group.points[k] >> 8 << k);
    }
    for (size_t k = 0; k < 4; ++k) b[74 + 4 * g + k] = group.signs[k];
    b[106 + g / 2] |= static_cast<uint8_t>(scale << g % 2 * 4);
  });
}

}  // namespace weft::quant
