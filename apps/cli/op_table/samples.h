#pragma once

#include <optional>
#include <vector>

#include "ops/op.h"

namespace weft::op_table {

/// An input of a sample call.
struct Slot {
  enum class Kind { value, real, index, truth, key, blocks };
  Kind kind = Kind::value;  ///< value: of the dtype that is tried; the others have their own
  Shape shape = {2, 3};
};

/// A small right call of an op.
struct Sample {
  std::vector<Slot> inputs;
  Attrs attrs = {};
};

/// Nothing for a kernel that only other ops call.
std::optional<Sample> sample_of(const Op& op);

/// The call, with values of `dtype` on `device`. Throws what the op throws.
std::vector<Array> call_sample(const Op& op, const Sample& sample, DType dtype, const Device& device = {});
/// Its inputs.
std::vector<Array> inputs_of(const Sample& sample, DType dtype, const Device& device = {});

}  // namespace weft::op_table
