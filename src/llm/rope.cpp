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

RopeTable rope_table(const RopeConfig& rope, int64_t context, const Device& device) {
  std::vector<int32_t> positions(static_cast<size_t>(context));
  std::iota(positions.begin(), positions.end(), 0);
  return rope_table(rope, positions, std::vector<int64_t>(positions.size(), context), device);
}

RopeTable rope_table(const RopeConfig& rope, std::span<const int32_t> positions,
                     std::span<const int64_t> lengths, const Device& device) {
  double magnitude = rope.magnitude;
  if (rope.scaling == "yarn" && !rope.has_own_magnitude) magnitude *= 1 + 0.1 * std::log(rope.factor);
  std::vector<double> turns;
  std::vector<float> cosines, sines;
  cosines.reserve(positions.size() * static_cast<size_t>(rope.dims / 2));
  sines.reserve(cosines.capacity());
  for (size_t i = 0; i < positions.size(); ++i) {
    if (i == 0 || lengths[i] != lengths[i - 1]) turns = frequencies(rope, lengths[i]);
    for (double frequency : turns) {
      const double angle = static_cast<double>(positions[i]) * frequency;
      cosines.push_back(static_cast<float>(std::cos(angle) * magnitude));
      sines.push_back(static_cast<float>(std::sin(angle) * magnitude));
    }
  }
  const Shape shape = {static_cast<int64_t>(positions.size()), rope.dims / 2};
  return {rope.dims, rope.neighbours, Array::from_vector(cosines, shape, device),
          Array::from_vector(sines, shape, device)};
}

Array rotate(const Array& x, const RopeTable& rows) {
  const int64_t dims = rows.dims, dim = x.shape(-1);
  if (dims == 0) return x;
  const Array cos = unsqueeze(rows.cos, 1), sin = unsqueeze(rows.sin, 1);
  const Array u = rows.neighbours ? slice_dim(x, -1, 0, dims, 2) : slice_dim(x, -1, 0, dims / 2);
  const Array v = rows.neighbours ? slice_dim(x, -1, 1, dims, 2) : slice_dim(x, -1, dims / 2, dims);
  std::vector<Array> parts = {u * cos - v * sin, v * cos + u * sin};
  if (rows.neighbours) parts = {reshape(stack(parts, -1), {x.shape(0), x.shape(1), dims})};
  if (dims < dim) parts.push_back(slice_dim(x, -1, dims, dim));
  return parts.size() == 1 ? parts[0] : cat(parts, -1);
}

}  // namespace weft::llm
