#pragma once

#include "llm/pass.h"

namespace weft::llm {

/// Neighbours in a batch: sequences that have equally many tokens there, and so are computed together.
struct Run {
  int64_t first = 0;  ///< token of the batch
  int64_t sequences = 0, length = 0;
};
std::vector<Run> runs_of(const Batch& batch);

/// Rows of x (n, ..) as (sequences, length, ..).
Array part_of(const Array& x, const Run& run);

/// A layer's state number `which` of the sequences of a run: f32 (sequences, ..), zeros where one begins.
Array read_state(const Layer& layer, size_t which, const Run& run, const Shape& shape);
void write_state(const Layer& layer, size_t which, const Run& run, const Array& value);

/// x (n, channels): of each channel the sum of its last values, weighted with the rows of w (channels,
/// kernel). What earlier passes had is state number 0.
Array short_convolution(const Layer& layer, const Array& x, const Array& w);

/// The gated delta rule: a state (key, value) that fades by exp(fade) each token, and in which the value
/// under the token's key moves towards its value by the share `step`. q, k (sequences, heads, length, key
/// dim), v (.., value dim), fade, step (sequences, heads, length); state (sequences, heads, key dim, value
/// dim) becomes the last one. Returns what the queries read, as v.
Array gated_delta_rule(const Array& q, const Array& k, const Array& v, const Array& fade, const Array& step,
                       Array& state);

}  // namespace weft::llm
