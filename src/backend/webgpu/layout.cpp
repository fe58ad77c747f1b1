#include "backend/webgpu/layout.h"

#include <algorithm>

#include "base/error.h"

namespace weft::webgpu {

int64_t Walk::count() const {
  int64_t n = 1;
  for (const Dim& dim : dims) n *= dim.size;
  return n;
}

void Walk::add(int64_t size, std::vector<int64_t> strides, bool pin) {
  if (!pin && size == 1) return;
  if (!pin && !dims.empty() && !dims.back().pinned) {
    Dim& outer = dims.back();
    bool even = true;
    for (size_t k = 0; k < strides.size(); ++k) even = even && outer.strides[k] == strides[k] * size;
    if (even) {
      outer.size *= size;
      outer.strides = std::move(strides);
      return;
    }
  }
  dims.push_back({size, std::move(strides), pin});
}

size_t Walk::pinned(size_t k) const {
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d].pinned && k-- == 0) return d;
  fail(ErrorKind::invalid, "[webgpu] a walk has too few pinned dims");
}

Walk walk(const Shape& shape, std::span<const Layout* const> operands, std::span<const size_t> pins) {
  Walk result;
  for (const Layout* layout : operands) result.offsets.push_back(layout->offset);
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> strides;
    for (const Layout* layout : operands) strides.push_back(layout->strides[d]);
    result.add(shape[d], std::move(strides), std::ranges::find(pins, d) != pins.end());
  }
  return result;
}

void check_operand(std::string_view op, const Operand& operand) {
  if (operand.dtype == DType::i64)
    fail(ErrorKind::unsupported, "[{}] the GPU has no i64; use i32, or run it on the CPU", op);
  int64_t last = operand.layout.offset;
  for (size_t d = 0; d < operand.layout.shape.size(); ++d)
    last += std::max<int64_t>(0, (operand.layout.shape[d] - 1) * operand.layout.strides[d]);
  if (std::max(last, element_count(operand.layout.shape)) >= int64_t{1} << 31)
    fail(ErrorKind::unsupported, "[{}] an array of {} passes the 2^31 elements that GPU kernels index", op,
         to_string(operand.layout.shape));
}

}  // namespace weft::webgpu
