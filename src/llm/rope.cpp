#include "llm/rope.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/shorthand.h"

namespace weft::llm {
namespace {

/// The index of the frequency that turns `turns` times within the original context.
double border(const RopeConfig& rope, double turns) {
  return static_cast<double>(rope.dims) * std::log(rope.original_context / (turns * 2 * M_PI)) /
         (2 * std::log(rope.base));
}

/// YaRN: fast frequencies stay, slow ones are divided by the factor, between two borders a mixture.
double yarn(const RopeConfig& rope, int64_t i, double frequency) {
  double low = border(rope, rope.beta_fast), high = border(rope, rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(rope.dims - 1));
  const double slow = std::clamp((static_cast<double>(i) - low) / std::max(high - low, 0.001), 0.0, 1.0);
  return frequency * (1 - slow) + frequency / rope.factor * slow;
}

std::vector<double> frequencies(const RopeConfig& rope, int64_t context) {
  double base = rope.base;
  const auto length = static_cast<double>(context), dims = static_cast<double>(rope.dims);
  if (rope.scaling == "dynamic" && rope.original_context > 0 && length > rope.original_context)
    base *= std::pow(rope.factor * length / rope.original_context - (rope.factor - 1), dims / (dims - 2));
  const bool is_long = !rope.long_divisors.empty() && length > rope.original_context;
  const std::vector<double>& divisors = is_long ? rope.long_divisors : rope.divisors;
  std::vector<double> result;
  for (int64_t i = 0; i < rope.dims / 2; ++i) {
    double frequency = std::pow(base, -2 * static_cast<double>(i) / dims);
    if (!divisors.empty()) frequency /= divisors[static_cast<size_t>(i)];
    if (rope.scaling == "linear") frequency /= rope.factor;
    if (rope.scaling == "yarn") frequency = yarn(rope, i, frequency);
    result.push_back(frequency);
  }
  return result;
}

}  // namespace

RopeTable rope_table(const RopeConfig& rope, int64_t context, bool is_long, const Device& device) {
  std::vector<int32_t> positions(static_cast<size_t>(context));
  std::iota(positions.begin(), positions.end(), 0);
  return rope_table(rope, positions, std::vector<int64_t>(positions.size(), is_long ? context : 0), device);
}

RopeTable rope_table(const RopeConfig& rope, std::span<const int32_t> positions,
                     std::span<const int64_t> lengths, const Device& device) {
  double magnitude = rope.magnitude;
  if (rope.scaling == "yarn" && !rope.has_own_magnitude) magnitude *= 1 + 0.1 * std::log(rope.factor);
  std::vector<double> turns;
  const auto half = static_cast<size_t>(rope.dims / 2), dims = 2 * half;
  std::vector<float> table(positions.size() * 2 * dims);
  for (size_t row = 0; row < positions.size(); ++row) {
    if (row == 0 || lengths[row] != lengths[row - 1]) turns = frequencies(rope, lengths[row]);
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(positions[row]) * turns[i];
      const size_t first = rope.neighbours ? 2 * i : i, second = first + (rope.neighbours ? 1 : half);
      float *cosines = table.data() + row * 2 * dims, *sines = cosines + dims;
      cosines[first] = cosines[second] = static_cast<float>(std::cos(angle) * magnitude);
      sines[second] = static_cast<float>(std::sin(angle) * magnitude);
      sines[first] = -sines[second];
    }
  }
  const Shape shape = {static_cast<int64_t>(positions.size()), 2 * rope.dims};
  return {rope.dims, rope.neighbours, Array::from_vector(table, shape, device)};
}

Array RopeTable::cos() const {
  return slice_dim(turns, 1, 0, dims);
}
Array RopeTable::sin() const {
  return slice_dim(turns, 1, dims, 2 * dims);
}

Array rotate(const Array& x, const RopeTable& rows) {
  const int64_t dims = rows.dims, dim = x.shape(-1), n = x.shape(0), heads = x.shape(1);
  if (dims == 0) return x;
  const Array part = dims < dim ? slice_dim(x, -1, 0, dims) : x;
  Array turned;
  if (rows.neighbours && n > 1 && x.device() == Device()) {
    // Runs of two elements are slow to walk for a CPU: 14 % of a prompt's time. Here pairs are taken apart.
    const auto every_second = [&](const Array& y, int64_t first) { return slice_dim(y, -1, first, dims, 2); };
    const Array u = every_second(part, 0), v = every_second(part, 1);
    const Array cos = unsqueeze(every_second(rows.cos(), 0), 1),
                sin = unsqueeze(every_second(rows.sin(), 1), 1);
    turned = reshape(stack({u * cos - v * sin, v * cos + u * sin}, -1), {n, heads, dims});
  } else {
    // One kernel: (n, heads, pairs, 2) or (n, heads, 2, pairs), where the other one of a pair is a view.
    const Ints pairs = rows.neighbours ? Ints{dims / 2, 2} : Ints{2, dims / 2};
    const auto paired = [&](const Array& y, int64_t of) { return reshape(y, {n, of, pairs[0], pairs[1]}); };
    const Array own = paired(part, heads), other = flip(own, {rows.neighbours ? -1 : -2});
    turned = reshape(own * paired(rows.cos(), 1) + other * paired(rows.sin(), 1), {n, heads, dims});
  }
  return dims < dim ? cat({turned, slice_dim(x, -1, dims, dim)}, -1) : turned;
}

}  // namespace weft::llm
