// The functions of weft/ops.h: each is a call of the op that has its name.
#include "ops/shorthand.h"

namespace weft {
namespace {

Array binary(std::string_view op, const Term& a, const Term& b) {
  return call(op, {a.beside(b), b.beside(a)});
}

Array along(std::string_view op, std::vector<Array> inputs, int64_t dim) {
  return call(op, std::move(inputs), {{"dim", dim}});
}

Array reduction(std::string_view op, const Array& x, const Dims& dims, bool keepdim) {
  return call(op, {x}, {{"dims", dims}, {"keepdim", keepdim}});
}

}  // namespace

Array as(const Array& x, DType dtype) {
  return x.dtype() == dtype ? x : call("to_dtype", {x}, {{"dtype", std::string(name_of(dtype))}});
}

Array abs(const Array& x) {
  return call("abs", {x});
}
Array sign(const Array& x) {
  return call("sign", {x});
}
Array square(const Array& x) {
  return call("square", {x});
}
Array sqrt(const Array& x) {
  return call("sqrt", {x});
}
Array rsqrt(const Array& x) {
  return call("rsqrt", {x});
}
Array exp(const Array& x) {
  return call("exp", {x});
}
Array expm1(const Array& x) {
  return call("expm1", {x});
}
Array log(const Array& x) {
  return call("log", {x});
}
Array log1p(const Array& x) {
  return call("log1p", {x});
}
Array sin(const Array& x) {
  return call("sin", {x});
}
Array cos(const Array& x) {
  return call("cos", {x});
}
Array tanh(const Array& x) {
  return call("tanh", {x});
}
Array erf(const Array& x) {
  return call("erf", {x});
}
Array floor(const Array& x) {
  return call("floor", {x});
}
Array ceil(const Array& x) {
  return call("ceil", {x});
}
Array round(const Array& x) {
  return call("round", {x});
}
Array sigmoid(const Array& x) {
  return call("sigmoid", {x});
}
Array relu(const Array& x) {
  return call("relu", {x});
}
Array gelu(const Array& x) {
  return call("gelu", {x});
}
Array silu(const Array& x) {
  return call("silu", {x});
}
Array softplus(const Array& x) {
  return call("softplus", {x});
}
Array isnan(const Array& x) {
  return call("isnan", {x});
}
Array isinf(const Array& x) {
  return call("isinf", {x});
}
Array clamp(const Array& x, double low, double high) {
  return call("clamp", {x}, {{"min", low}, {"max", high}});
}

Array pow(const Term& a, const Term& b) {
  return binary("pow", a, b);
}
Array maximum(const Term& a, const Term& b) {
  return binary("maximum", a, b);
}
Array minimum(const Term& a, const Term& b) {
  return binary("minimum", a, b);
}
Array floor_divide(const Term& a, const Term& b) {
  return binary("floor_divide", a, b);
}
Array where(const Array& condition, const Term& a, const Term& b) {
  return call("where", {condition, a.beside(b), b.beside(a)});
}

Array sum(const Array& x) {
  return call("sum", {x});
}
Array sum(const Array& x, const Dims& dims, bool keepdim) {
  return reduction("sum", x, dims, keepdim);
}
Array mean(const Array& x) {
  return call("mean", {x});
}
Array mean(const Array& x, const Dims& dims, bool keepdim) {
  return reduction("mean", x, dims, keepdim);
}
Array max(const Array& x) {
  return call("max", {x});
}
Array max(const Array& x, const Dims& dims, bool keepdim) {
  return reduction("max", x, dims, keepdim);
}
Array min(const Array& x) {
  return call("min", {x});
}
Array min(const Array& x, const Dims& dims, bool keepdim) {
  return reduction("min", x, dims, keepdim);
}
Array all(const Array& x) {
  return call("all", {x});
}
Array any(const Array& x) {
  return call("any", {x});
}
Array logsumexp(const Array& x, const Dims& dims, bool keepdim) {
  return reduction("logsumexp", x, dims, keepdim);
}
Array argmax(const Array& x, int64_t dim, bool keepdim) {
  return call("argmax", {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Array argmin(const Array& x, int64_t dim, bool keepdim) {
  return call("argmin", {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Array cumsum(const Array& x, int64_t dim) {
  return along("cumsum", {x}, dim);
}

Array reshape(const Array& x, const Shape& shape) {
  return x.shape() == shape ? x : call("reshape", {x}, {{"shape", shape}});
}
Array permute(const Array& x, const Dims& dims) {
  return call("permute", {x}, {{"dims", dims}});
}
Array transpose(const Array& x, int64_t dim0, int64_t dim1) {
  return call("transpose", {x}, {{"dim0", dim0}, {"dim1", dim1}});
}
Array expand(const Array& x, const Shape& shape) {
  return x.shape() == shape ? x : call("expand", {x}, {{"shape", shape}});
}
Array squeeze(const Array& x, int64_t dim) {
  return along("squeeze", {x}, dim);
}
Array unsqueeze(const Array& x, int64_t dim) {
  return along("unsqueeze", {x}, dim);
}
Array flip(const Array& x, const Dims& dims) {
  return call("flip", {x}, {{"dims", dims}});
}
Array cat(std::vector<Array> parts, int64_t dim) {
  return along("cat", std::move(parts), dim);
}
Array stack(std::vector<Array> parts, int64_t dim) {
  return along("stack", std::move(parts), dim);
}
std::vector<Array> split(const Array& x, const std::vector<int64_t>& sizes, int64_t dim) {
  return apply("split", {x}, {{"sizes", sizes}, {"dim", dim}});
}
Array tril(const Array& x, int64_t diagonal) {
  return call("tril", {x}, {{"diagonal", diagonal}});
}
Array triu(const Array& x, int64_t diagonal) {
  return call("triu", {x}, {{"diagonal", diagonal}});
}

Array slice(const Array& x, const std::vector<Range>& ranges) {
  Ints starts, stops, steps;
  for (const Range& range : ranges) {
    starts.push_back(range.start.value_or(kNone));
    stops.push_back(range.stop.value_or(kNone));
    steps.push_back(range.step);
  }
  return call("slice", {x}, {{"starts", starts}, {"stops", stops}, {"steps", steps}});
}

Array index_select(const Array& x, const Array& indices, int64_t dim) {
  return along("index_select", {x, indices}, dim);
}
Array gather(const Array& x, const Array& indices, int64_t dim) {
  return along("gather", {x, indices}, dim);
}
Array scatter_add(const Array& x, const Array& indices, const Array& values, int64_t dim) {
  return along("scatter_add", {x, indices, values}, dim);
}
Array embedding(const Array& table, const Array& indices) {
  return call("embedding", {table, indices});
}
Sorted sort(const Array& x, int64_t dim, bool descending) {
  const std::vector<Array> both = apply("sort", {x}, {{"dim", dim}, {"descending", descending}});
  return {both[0], both[1]};
}
Sorted topk(const Array& x, int64_t k, int64_t dim, bool largest) {
  const std::vector<Array> both = apply("topk", {x}, {{"k", k}, {"dim", dim}, {"largest", largest}});
  return {both[0], both[1]};
}
Array argsort(const Array& x, int64_t dim, bool descending) {
  return call("argsort", {x}, {{"dim", dim}, {"descending", descending}});
}

Array matmul(const Array& a, const Array& b) {
  return call("matmul", {a, b});
}
Array linear(const Array& x, const Array& weight, const Array& bias) {
  return call("linear", {x, weight, bias});
}
Array einsum(const std::string& equation, std::vector<Array> inputs) {
  return call("einsum", std::move(inputs), {{"equation", equation}});
}
Array softmax(const Array& x, int64_t dim) {
  return along("softmax", {x}, dim);
}
Array log_softmax(const Array& x, int64_t dim) {
  return along("log_softmax", {x}, dim);
}
Array layer_norm(const Array& x, const Array& weight, const Array& bias, double eps) {
  return call("layer_norm", {x, weight, bias}, {{"eps", eps}});
}
Array rms_norm(const Array& x, const Array& weight, double eps) {
  return call("rms_norm", {x, weight}, {{"eps", eps}});
}
Array cross_entropy(const Array& logits, const Array& targets) {
  return call("cross_entropy", {logits, targets});
}
Array mse_loss(const Array& x, const Array& target) {
  return call("mse_loss", {x, target});
}

}  // namespace weft
