#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "array/layout.h"
#include "backend/backend.h"

namespace weft::webgpu {

/// A walk over one shape in several operands at once. Dims of size 1 are dropped and neighbours that are
/// evenly strided in every operand become one, so that kernels are made for few ranks and divide as little as
/// possible.
struct Walk {
  struct Dim {
    int64_t size = 1;
    std::vector<int64_t> strides;  ///< one per operand
    bool pinned = false;           ///< kept as it is: a kernel needs its coordinate
  };
  std::vector<int64_t> offsets;  ///< one per operand
  std::vector<Dim> dims;

  int64_t count() const;
  void add(int64_t size, std::vector<int64_t> strides,
           bool pinned = false);  ///< the next dim, inside of those so far
  /// Index of the k-th pinned dim.
  size_t pinned(size_t k = 0) const;
};

/// Dims `pins` of the shape keep their own.
Walk walk(const Shape& shape, std::span<const Layout* const> operands, std::span<const size_t> pins = {});

/// Throws ErrorKind::unsupported for i64 and for what 32-bit indices do not reach.
void check_operand(std::string_view op, const Operand& operand);

}  // namespace weft::webgpu
