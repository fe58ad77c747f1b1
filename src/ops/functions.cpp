#include "ops/op.h"
#include "weft/ops.h"

namespace weft {

Array matmul(const Array& a, const Array& b) {
  return call("matmul", {a, b});
}
Array softmax(const Array& x, int64_t dim) {
  return call("softmax", {x}, {{"dim", dim}});
}
Array tanh(const Array& x) {
  return call("tanh", {x});
}
Array square(const Array& x) {
  return call("square", {x});
}
Array sum(const Array& x) {
  return call("sum", {x});
}
Array mean(const Array& x) {
  return call("mean", {x});
}

}  // namespace weft
