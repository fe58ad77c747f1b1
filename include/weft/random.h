#pragma once

#include <optional>

#include "weft/array.h"

/// Random numbers of a counter-based generator (Threefry-2x32): a key and an index give a number, so that the
/// same key gives the same bits on every device. A key is an array, u32 (2): graphs that differ only in it
/// are the same work.
namespace weft {

/// Starts the process's stream of keys anew. At the start its seed is 0.
void set_seed(uint64_t seed);

Array random_key(uint64_t seed, const Device& device = {});
/// New keys that are independent of each other. `key` is used up: whoever draws with it as well gets numbers
/// that depend on the new ones.
std::vector<Array> split_key(const Array& key, int64_t count = 2);

struct RandomOptions {
  std::optional<DType> dtype = {};  ///< f32 (whole numbers: i32, truths: bool) unless it is given
  Device device = {};
  Array key = {};  ///< the next one of the process's stream unless it is given; then its device is used
};

Array random_bits(const Shape& shape, const RandomOptions& options = {});  ///< u32, all 32 bits
Array rand(const Shape& shape, const RandomOptions& options = {});         ///< uniform in [0, 1)
Array uniform(const Shape& shape, double low, double high, const RandomOptions& options = {});
Array randn(const Shape& shape, const RandomOptions& options = {});  ///< normal: mean 0, deviation 1
/// Whole numbers in [low, high). Numbers are at most (high-low) / 2^32 more likely than others.
Array randint(int64_t low, int64_t high, const Shape& shape, const RandomOptions& options = {});
Array bernoulli(double p, const Shape& shape, const RandomOptions& options = {});  ///< true with p
Array permutation(int64_t count, const RandomOptions& options = {});  ///< 0 .. count-1 in random order, i32
/// One index along `dim` for each line of logits, i32: index k with probability softmax(logits)[k].
Array categorical(const Array& logits, int64_t dim = -1, const Array& key = {});
/// Zeros elements with probability p and scales the others by 1 / (1 - p).
Array dropout(const Array& x, double p, const Array& key = {});

}  // namespace weft
