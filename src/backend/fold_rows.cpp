#include "backend/fold_rows.h"

#include <algorithm>

namespace weft {

FoldRows::FoldRows(const Layout& x, DType from, DType to, Fold fold, std::span<const int64_t> dims)
    : program{.loads = {from},
              .instructions = {{.dtype = to, .fold = fold}},
              .stores = {1},
              .row_dims = dims.size()} {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < std::ssize(x.shape); ++d)
    if (std::ranges::find(dims, d) == dims.end()) order.push_back(d);
  const auto kept = static_cast<int64_t>(order.size());
  order.insert(order.end(), dims.begin(), dims.end());
  input = x.permuted(order);
  output = Layout::contiguous(Shape(input.shape.begin(), input.shape.begin() + kept));
  output.shape = input.shape;
  output.strides.resize(input.shape.size(), 0);
}

}  // namespace weft
