#include "array/layout.h"

#include <algorithm>

namespace weft {

Layout Layout::contiguous(const Shape& shape) {
  Layout layout{shape, std::vector<int64_t>(shape.size()), 0};
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    layout.strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return layout;
}

bool Layout::is_contiguous() const {
  if (offset != 0) return false;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != stride) return false;
    stride *= shape[i];
  }
  return true;
}

Layout Layout::permuted(const std::vector<int64_t>& dims) const {
  Layout result{{}, {}, offset};
  for (int64_t d : dims) {
    result.shape.push_back(shape[static_cast<size_t>(d)]);
    result.strides.push_back(strides[static_cast<size_t>(d)]);
  }
  return result;
}

Layout Layout::expanded(const Shape& to) const {
  Layout result{to, std::vector<int64_t>(to.size(), 0), offset};
  const size_t added = to.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == to[added + i] && shape[i] != 1) result.strides[added + i] = strides[i];
  return result;
}

Layout Layout::sliced(const std::vector<int64_t>& starts, const std::vector<int64_t>& steps,
                      const Shape& to) const {
  Layout result{to, strides, offset};
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] > 0) result.offset += starts[i] * strides[i];
    result.strides[i] *= steps[i];
  }
  return result;
}

std::optional<Layout> Layout::reshaped(const Shape& to) const {
  if (element_count(shape) <= 1) {
    Layout result = contiguous(to);
    result.offset = offset;
    return result;
  }
  // Runs of dims that are contiguous among themselves can be cut anew; a new dim must not cross a run's
  // border.
  Layout result{to, std::vector<int64_t>(to.size(), 0), offset};
  size_t from = 0, target = 0;
  std::vector<size_t> kept;  // dims of size 1 say nothing about memory
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1) kept.push_back(i);
  while (target < to.size()) {
    if (to[target] == 1) {
      ++target;
      continue;
    }
    if (from == kept.size()) return std::nullopt;
    int64_t have = shape[kept[from]], want = to[target];
    size_t from_end = from + 1, target_end = target + 1;
    while (have != want) {
      if (have < want) {
        if (from_end == kept.size()) return std::nullopt;
        have *= shape[kept[from_end++]];
      } else {
        if (target_end == to.size()) return std::nullopt;
        want *= to[target_end++];
      }
    }
    for (size_t i = from; i + 1 < from_end; ++i)
      if (strides[kept[i]] != strides[kept[i + 1]] * shape[kept[i + 1]]) return std::nullopt;
    int64_t stride = strides[kept[from_end - 1]];
    for (size_t i = target_end; i-- > target;) {
      result.strides[i] = stride;
      stride *= to[i];
    }
    from = from_end;
    target = target_end;
  }
  return result;
}

bool operator==(const Layout& a, const Layout& b) {
  return a.shape == b.shape && a.strides == b.strides && a.offset == b.offset;
}

}  // namespace weft
