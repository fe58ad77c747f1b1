// Every gradient against central differences, on the CPU; and no op without either.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "array/half.h"
#include "array/host_tensor.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "weft/error.h"
#include "weft/grad.h"
#include "weft/random.h"

using namespace weft;

namespace {

/// An input: f32 of a shape, its values spread evenly over a range (no two the same) in random order. Or a
/// fixed array, which gets no gradient.
struct Input {
  Shape shape;
  double low = -2, high = 2;
  bool wanted = true;  ///< has a gradient
  Array fixed = {};

  Input(Shape of, double from = -2, double to = 2) : shape(std::move(of)), low(from), high(to) {}
  Input(const Array& array) : wanted(false), fixed(array) {}
};

Input constant(Shape shape, double low, double high) {
  Input input(std::move(shape), low, high);
  input.wanted = false;
  return input;
}

struct Case {
  std::string op;
  std::vector<Input> inputs;
  Attrs attrs = {};
  std::vector<double> kinks = {};  ///< values that inputs keep away from
  double step = 1e-2;
};

Array ints(const std::vector<float>& values, const Shape& shape) {
  return as(Array::from_vector(values, shape), DType::i32);
}
Array bools(const std::vector<float>& values, const Shape& shape) {
  return as(Array::from_vector(values, shape), DType::boolean);
}

/// f16 weights as raw blocks.
Array f16_blocks(int64_t rows, int64_t columns) {
  HostTensor host{
      DType::u8, {rows, 2 * columns}, std::vector<std::byte>(static_cast<size_t>(4 * rows * columns / 2))};
  for (int64_t i = 0; i < rows * columns; ++i) {
    const uint16_t bits = float_to_half(static_cast<float>(i % 7) / 4 - 0.6f);
    std::memcpy(host.bytes.data() + 2 * i, &bits, 2);
  }
  return Array::from_host(host);
}

std::vector<Case> make_cases() {
  std::vector<Case> cases;
  // ---- Unary.
  for (const char* op :
       {"neg",   "square", "exp", "exp2", "expm1",   "sin",         "cos",  "atan",     "sinh", "cosh",
        "asinh", "tanh",   "erf", "silu", "sigmoid", "log_sigmoid", "mish", "softplus", "gelu", "alias"})
    cases.push_back({op, {{{3, 4}}}});
  for (const char* op : {"abs", "sign", "relu", "elu", "leaky_relu"})
    cases.push_back({op, {{{3, 4}}}, {}, {0}});
  for (const char* op : {"log", "log2", "sqrt", "rsqrt", "reciprocal"})
    cases.push_back({op, {{{3, 4}, 0.5, 3}}});
  cases.push_back({"reciprocal", {{{5}, -3, -0.5}}});
  cases.push_back({"log1p", {{{3, 4}, -0.5, 3}}});
  cases.push_back({"tan", {{{3, 4}, -1, 1}}});
  for (const char* op : {"asin", "acos", "atanh"}) cases.push_back({op, {{{3, 4}, -0.8, 0.8}}});
  cases.push_back({"acosh", {{{3, 4}, 1.5, 4}}});
  for (const char* op : {"floor", "ceil", "trunc"}) cases.push_back({op, {{{3, 4}}}, {}, {-2, -1, 0, 1, 2}});
  cases.push_back({"round", {{{3, 4}}}, {}, {-1.5, -0.5, 0.5, 1.5}});
  cases.push_back({"relu6", {{{3, 4}, -3, 9}}, {}, {0, 6}});
  cases.push_back({"hardswish", {{{3, 4}, -5, 5}}, {}, {-3, 3}});
  cases.push_back({"gelu", {{{3, 4}}}, {{"approximate", "tanh"}}});
  for (const char* op : {"gelu_erf", "gelu_tanh"}) cases.push_back({op, {{{3, 4}}}});
  cases.push_back({"elu", {{{3, 4}}}, {{"alpha", 0.5}}, {0}});
  cases.push_back({"leaky_relu", {{{3, 4}}}, {{"negative_slope", 0.2}}, {0}});
  cases.push_back({"clamp", {{{3, 4}}}, {{"min", -1.0}, {"max", 1.5}}, {-1, 1.5}});
  cases.push_back({"clamp", {{{3, 4}}}, {{"max", 0.5}}, {0.5}});
  cases.push_back({"affine", {{{3, 4}}}, {{"mul", 2.5}, {"add", -0.75}}});
  cases.push_back({"pow_scalar", {{{3, 4}, 0.5, 2}}, {{"exponent", 2.5}}});
  cases.push_back({"pow_scalar", {{{3, 4}, -2, -0.5}}, {{"exponent", 3.0}}});
  cases.push_back({"pow_scalar", {{{3, 4}}}, {{"exponent", 2.0}}});
  cases.push_back({"to_dtype", {{{3, 4}}}, {{"dtype", "f16"}}, {}, 0.25});
  cases.push_back({"to_dtype", {{{3, 4}}}, {{"dtype", "bf16"}}, {}, 2});

  // ---- Binary and ternary, with broadcasting.
  for (const char* op : {"add", "sub", "mul"}) {
    cases.push_back({op, {{{3, 4}}, {{3, 4}}}});
    cases.push_back({op, {{{3, 1}}, {{2, 1, 4}}}});
  }
  for (const char* op : {"div", "divide"}) cases.push_back({op, {{{3, 4}}, {{4}, 0.7, 2}}});
  cases.push_back({"pow", {{{3, 4}, 0.5, 2}, {{3, 1}}}});
  for (const char* op : {"maximum", "minimum"}) cases.push_back({op, {{{3, 4}}, {{4}, -1.03, 1.11}}});
  cases.push_back({"remainder", {{{2, 3}, 0.1, 0.9}, {{3}, 1.5, 2.5}}});
  cases.push_back({"remainder", {{{2, 3}, 4.3, 4.7}, {{3}, 1.6, 2.0}}});
  cases.push_back({"remainder", {{{2, 3}, -0.9, -0.1}, {{3}, 1.5, 2.5}}});
  cases.push_back({"atan2", {{{3, 4}, 0.5, 2}, {{4}, -2, 2}}});
  cases.push_back({"atan2", {{{3, 4}, -2, -0.5}, {{4}, -2, 2}}});
  cases.push_back({"where", {bools({1, 0, 1}, {3, 1}), {{3, 4}}, {{4}}}});
  cases.push_back({"addcmul", {{{3, 4}}, {{4}}, {{3, 1}}}, {{"value", 0.5}}});
  cases.push_back({"lerp", {{{3, 4}}, {{4}}, {{3, 1}}}});

  // ---- Reductions and scans.
  for (const char* op : {"sum", "mean", "prod", "max", "min", "var", "std", "logsumexp", "norm"}) {
    cases.push_back({op, {{{2, 3}}}});
    cases.push_back({op, {{{2, 3, 4}}}, {{"dims", Ints{0, 2}}, {"keepdim", true}}});
    cases.push_back({op, {{{2, 3, 4}}}, {{"dims", Ints{-2}}}});
  }
  cases.push_back({"prod", {{{2, 3}, 0.5, 1.5}}});
  for (const char* op : {"var", "std"})
    cases.push_back({op, {{{3, 4}}}, {{"dims", Ints{1}}, {"correction", 0}}});
  cases.push_back({"norm", {{{3, 4}}}, {{"p", 1}, {"dims", Ints{1}}}, {0}});
  cases.push_back(
      {"norm", {{{3, 4}, 0.2, 3}}, {{"p", std::numeric_limits<double>::infinity()}, {"dims", Ints{1}}}});
  for (const char* op : {"cumsum", "cumprod"})
    for (bool reverse : {false, true})
      for (bool exclusive : {false, true})
        cases.push_back({op, {{{2, 3, 2}}}, {{"dim", 1}, {"reverse", reverse}, {"exclusive", exclusive}}});
  for (const char* op : {"cummax", "cummin", "logcumsumexp"})
    for (bool reverse : {false, true}) cases.push_back({op, {{{2, 5}}}, {{"dim", -1}, {"reverse", reverse}}});
  cases.push_back({"trapezoid", {{{3, 4}}}, {{"dx", 0.5}}});
  cases.push_back({"trapezoid", {{{3, 4}}}, {{"dim", 0}}});
  cases.push_back({"cumulative_trapezoid", {{{3, 4}}}, {{"dx", 0.5}}});
  cases.push_back({"cumulative_trapezoid", {{{3, 4}}}, {{"dim", 0}}});

  // ---- Movement.
  cases.push_back({"reshape", {{{2, 3, 4}}}, {{"shape", Ints{4, -1}}}});
  cases.push_back({"permute", {{{2, 3, 4}}}, {{"dims", Ints{2, 0, 1}}}});
  cases.push_back({"transpose", {{{2, 3, 4}}}, {{"dim0", 0}, {"dim1", -1}}});
  cases.push_back(
      {"slice", {{{5, 6}}}, {{"starts", Ints{1, kNone}}, {"stops", Ints{5, kNone}}, {"steps", Ints{2, -2}}}});
  cases.push_back({"expand", {{{3, 1}}}, {{"shape", Ints{2, 3, 4}}}});
  cases.push_back({"squeeze", {{{3, 1, 2}}}, {{"dim", 1}}});
  cases.push_back({"unsqueeze", {{{3, 2}}}, {{"dim", 1}}});
  cases.push_back({"pad", {{{3, 4}}}, {{"pads", Ints{1, 2, -1, 3}}, {"value", 0.5}}});
  cases.push_back({"pad", {{{3, 4}}}, {{"pads", Ints{1, 2, 2, 3}}, {"mode", "reflect"}}});
  cases.push_back({"pad", {{{3, 4}}}, {{"pads", Ints{1, 2, 2, 3}}, {"mode", "replicate"}}});
  cases.push_back({"cat", {{{2, 3}}, {{2, 0}}, {{2, 2}}}, {{"dim", 1}}});
  cases.push_back({"stack", {{{2, 3}}, {{2, 3}}}, {{"dim", 1}}});
  cases.push_back({"split", {{{5, 2}}}, {{"sizes", Ints{1, 3, 1}}, {"dim", 0}}});
  cases.push_back({"flip", {{{2, 3}}}, {{"dims", Ints{0, 1}}}});
  cases.push_back({"roll", {{{3, 4}}}, {{"shifts", Ints{1, -2}}, {"dims", Ints{0, 1}}}});
  for (const char* op : {"tril", "triu"}) cases.push_back({op, {{{2, 3, 4}}}, {{"diagonal", 1}}});
  cases.push_back({"repeat", {{{2, 3}}}, {{"repeats", Ints{2, 1, 3}}}});
  cases.push_back({"repeat_interleave", {{{2, 3}}}, {{"repeats", 3}, {"dim", -1}}});
  cases.push_back({"unfold", {{{2, 7}}}, {{"dim", 1}, {"size", 3}, {"step", 2}}});
  cases.push_back({"unfold", {{{2, 7}}}, {{"dim", 1}, {"size", 2}, {"step", 3}}});
  cases.push_back({"diagonal", {{{3, 4}}}, {{"offset", -1}}});
  cases.push_back({"diagonal", {{{3, 2, 4}}}, {{"offset", 1}, {"dim1", 0}, {"dim2", 2}}});

  // ---- Indexing.
  const Array grid = ints({0, 2, 1, 3, 3, 0}, {2, 3});
  cases.push_back({"index_select", {{{4, 3}}, ints({1, 1, 3}, {3})}, {{"dim", 0}}});
  cases.push_back({"gather", {{{3, 4}}, grid}, {{"dim", 1}}});
  cases.push_back({"scatter", {{{3, 4}}, grid, {{2, 3}}}, {{"dim", 1}}});
  cases.back().inputs[1] = ints({0, 2, 1, 3, 1, 0}, {2, 3});
  cases.push_back({"scatter_add", {{{3, 4}}, grid, {{2, 4}}}, {{"dim", 1}}});
  cases.push_back({"index_add", {{{4, 3}}, ints({1, 1, 3}, {3}), {{3, 3}}}, {{"dim", 0}}});
  cases.push_back({"put_rows", {{{4, 3}}, ints({3, 0}, {2}), {{2, 3}}}});
  cases.push_back({"embedding", {{{4, 3}}, ints({1, 1, 3, 0}, {2, 2})}});
  cases.push_back({"masked_fill", {{{3, 4}}, bools({1, 0, 0, 1}, {4})}, {{"value", -3.0}}});
  cases.push_back({"dropout", {{{3, 4}}, random_key(1)}, {{"p", 0.4}}});
  cases.push_back({"topk", {{{3, 5}}}, {{"k", 2}}});
  cases.push_back({"topk", {{{5, 3}}}, {{"k", 2}, {"dim", 0}, {"largest", false}}});
  cases.push_back({"sort", {{{3, 5}}}});
  cases.push_back({"sort", {{{5, 3}}}, {{"dim", 0}, {"descending", true}}});

  // ---- Matmul family.
  cases.push_back({"matmul", {{{3, 4}}, {{4, 2}}}});
  cases.push_back({"matmul", {{{2, 1, 3, 4}}, {{3, 4, 2}}}});
  cases.push_back({"matmul", {{{4}}, {{2, 4, 3}}}});
  cases.push_back({"matmul", {{{3, 4}}, {{4}}}});
  cases.push_back({"matmul", {{{4}}, {{4}}}});
  cases.push_back({"linear", {{{2, 3, 4}}, {{5, 4}}, {{5}}}});
  cases.push_back({"linear", {{{3, 4}}, {{5, 4}}}});
  cases.push_back({"outer", {{{3}}, {{4}}}});
  cases.push_back({"einsum", {{{2, 3}}, {{3, 4}}}, {{"equation", "ij,jk->ik"}}});
  cases.push_back({"einsum", {{{3, 3}}, {{3}}}, {{"equation", "ii,i->i"}}});
  cases.push_back({"einsum", {{{2, 3, 2}}, {{2, 2, 4}}, {{4}}}, {{"equation", "...ij,...jk,k->...i"}}});
  cases.push_back({"qmatmul", {{{3, 8}}, f16_blocks(2, 8)}, {{"type", "f16"}, {"n", 2}, {"k", 8}}});
  // 17 halves are a block of q8_0: a scale and 32 bytes
  cases.push_back({"qmatmul", {{{3, 32}}, f16_blocks(2, 17)}, {{"type", "q8_0"}, {"n", 2}, {"k", 32}}});

  // ---- Convolution, pooling, resampling.
  cases.push_back({"conv1d", {{{2, 2, 7}}, {{3, 2, 3}}, {{3}}}, {{"stride", Ints{2}}, {"padding", Ints{1}}}});
  cases.push_back(
      {"conv2d", {{{1, 2, 5, 4}}, {{2, 2, 3, 2}}, {{2}}}, {{"padding", Ints{1, 0}}, {"stride", Ints{2, 1}}}});
  cases.push_back({"conv2d", {{{1, 4, 5, 5}}, {{4, 2, 2, 2}}}, {{"groups", 2}, {"dilation", Ints{2, 1}}}});
  const Attrs windows = {{"stride", Ints{2}}, {"padding", Ints{1}}, {"dilation", Ints{1}}};
  const auto with_size = [&](int64_t size) {
    Attrs attrs = windows;
    attrs.set("size", Ints{size});
    return attrs;
  };
  cases.push_back({"convolve", {{{2, 2, 7}}, {{3, 2, 3}}}, windows});
  cases.push_back({"convolve_input", {{{2, 3, 4}}, {{3, 2, 3}}}, with_size(8)});
  cases.push_back({"convolve_weight", {{{2, 2, 7}}, {{2, 3, 4}}}, with_size(3)});
  cases.push_back({"conv3d", {{{1, 2, 3, 3, 3}}, {{2, 2, 2, 2, 2}}, {{2}}}});
  cases.push_back({"conv_transpose1d",
                   {{{2, 2, 4}}, {{2, 3, 3}}, {{3}}},
                   {{"stride", Ints{2}}, {"padding", Ints{1}}, {"output_padding", Ints{1}}}});
  cases.push_back({"conv_transpose2d",
                   {{{1, 4, 3, 2}}, {{4, 1, 2, 3}}, {{2}}},
                   {{"groups", 2}, {"stride", Ints{2, 1}}, {"dilation", Ints{1, 2}}}});
  cases.push_back({"max_pool1d", {{{1, 2, 7}}}, {{"kernel", Ints{2}}}});
  cases.push_back({"max_pool2d",
                   {{{1, 2, 5, 4}}},
                   {{"kernel", Ints{3, 2}}, {"stride", Ints{2, 1}}, {"padding", Ints{1, 1}}}});
  cases.push_back(
      {"avg_pool1d", {{{1, 2, 7}}}, {{"kernel", Ints{3}}, {"stride", Ints{2}}, {"padding", Ints{1}}}});
  cases.push_back(
      {"avg_pool2d",
       {{{1, 2, 5, 4}}},
       {{"kernel", Ints{3, 2}}, {"padding", Ints{1, 1}}, {"ceil_mode", true}, {"count_include_pad", false}}});
  cases.push_back({"adaptive_avg_pool2d", {{{1, 2, 5, 4}}}, {{"output_size", Ints{2, 3}}}});
  cases.push_back({"upsample_nearest1d", {{{1, 2, 4}}}, {{"size", Ints{7}}}});
  cases.push_back({"upsample_nearest2d", {{{1, 2, 3, 4}}}, {{"size", Ints{5, 3}}}});
  cases.push_back({"upsample_nearest2d", {{{1, 2, 2, 2}}}, {{"size", Ints{9, 8}}}});
  for (bool corners : {false, true})
    cases.push_back(
        {"upsample_bilinear2d", {{{1, 2, 3, 4}}}, {{"size", Ints{5, 6}}, {"align_corners", corners}}});

  // ---- Normalisation, attention.
  for (const char* op : {"softmax", "log_softmax"}) {
    cases.push_back({op, {{{3, 4}}}, {{"dim", -1}}});
    cases.push_back({op, {{{3, 4}}}, {{"dim", 0}}});
  }
  cases.push_back({"layer_norm", {{{3, 5}}, {{5}}, {{5}}}});
  cases.push_back({"layer_norm", {{{2, 3, 4}}, {{3, 4}}}, {{"normalized_ndim", 2}}});
  cases.push_back({"rms_norm", {{{3, 5}}, {{5}}}});
  cases.push_back({"rms_norm", {{{2, 3, 2}}}, {{"normalized_ndim", 2}}});
  cases.push_back({"group_norm", {{{2, 4, 3}}, {{4}}, {{4}}}, {{"num_groups", 2}}});
  for (bool training : {false, true})
    cases.push_back({"batch_norm",
                     {{{4, 2, 3}}, constant({2}, -0.5, 0.5), constant({2}, 0.5, 1.5), {{2}}, {{2}}},
                     {{"training", training}}});
  cases.push_back({"sdpa", {{{1, 2, 3, 4}}, {{1, 2, 5, 4}}, {{1, 2, 5, 3}}}});
  cases.push_back({"sdpa",
                   {{{1, 2, 4, 2}}, {{1, 1, 4, 2}}, {{1, 1, 4, 2}}},
                   {{"causal", true}, {"enable_gqa", true}, {"scale", 0.6}}});
  cases.push_back(
      {"sdpa", {{{1, 1, 4, 2}}, {{1, 1, 4, 2}}, {{1, 1, 4, 2}}}, {{"softcap", 1.5}, {"window", 2}}});
  cases.push_back(
      {"sdpa", {{{1, 1, 2, 2}}, {{1, 1, 3, 2}}, {{1, 1, 3, 2}}, bools({1, 0, 1, 0, 0, 0}, {2, 3})}});
  const Attrs capped = {{"causal", true}, {"scale", 0.6}, {"softcap", 2.0}};
  cases.push_back({"attention", {{{2, 3, 2}}, {{1, 4, 2}}, {{1, 4, 3}}, {{3, 4}}}, capped});
  cases.push_back(
      {"attention_backward",
       {{{2, 3, 2}}, {{1, 4, 2}}, {{1, 4, 3}}, {{2, 3, 3}}, {{2, 3, 2}, 0.5, 2}, {{2, 3}}, {{3, 4}}},
       capped});
  cases.push_back({"rope", {{{1, 2, 3, 4}}}, {{"offset", 2}}});
  cases.push_back({"rope",
                   {{{1, 2, 3, 6}}, ints({4, 0, 2}, {3})},
                   {{"layout", "interleaved"}, {"rotary_dim", 4}, {"base", 100.0}}});

  // ---- Losses.
  const Array targets = ints({2, 0, -100}, {3});
  for (const char* reduction : {"none", "mean", "sum"}) {
    cases.push_back(
        {"cross_entropy", {{{3, 4}}, targets}, {{"reduction", reduction}, {"label_smoothing", 0.1}}});
    cases.push_back({"nll_loss", {{{3, 4}}, targets}, {{"reduction", reduction}}});
    cases.push_back({"mse_loss", {{{3, 4}}, {{3, 4}}}, {{"reduction", reduction}}});
    cases.push_back({"l1_loss", {{{3, 4}, 0, 2}, {{3, 4}, -3, -0.5}}, {{"reduction", reduction}}});
    cases.push_back(
        {"smooth_l1_loss", {{{3, 4}, 0, 0.5}, {{3, 4}, 0.55, 2}}, {{"reduction", reduction}, {"beta", 2.5}}});
    cases.push_back(
        {"smooth_l1_loss", {{{3, 4}, 0, 2}, {{3, 4}, -3, -0.5}}, {{"reduction", reduction}, {"beta", 0.3}}});
    cases.push_back({"bce", {{{3, 4}, 0.2, 0.8}, constant({3, 4}, 0, 1)}, {{"reduction", reduction}}});
    cases.push_back({"bce_with_logits",
                     {{{3, 4}}, constant({3, 4}, 0, 1), constant({4}, 0.5, 2)},
                     {{"reduction", reduction}}});
    cases.push_back({"kl_div", {{{3, 4}, -3, -0.5}, constant({3, 4}, 0.1, 0.9)}, {{"reduction", reduction}}});
    cases.push_back({"focal_bce", {{{3, 4}}, constant({3, 4}, 0, 1)}, {{"reduction", reduction}}});
  }
  cases.push_back({"kl_div", {{{3, 4}, -3, -0.5}, constant({3, 4}, 0.1, 0.9)}, {{"reduction", "batchmean"}}});
  cases.push_back({"focal_bce", {{{3, 4}}, constant({3, 4}, 0, 1)}, {{"gamma", 1.5}, {"alpha", -1.0}}});
  cases.push_back({"cosine_similarity", {{{3, 4}}, {{3, 4}}}});
  cases.push_back({"cosine_similarity", {{{3, 4}}, {{3, 4}}}, {{"dim", 0}}});
  return cases;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = make_cases();
  return all;
}

/// Ops that the table leaves out, and why.
const std::map<std::string, std::string>& without() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> reasons;
    const auto add = [&](const char* why, std::initializer_list<const char*> names) {
      for (const char* name : names) reasons[name] = why;
    };
    add("to bool", {"all", "any", "eq", "ne", "lt", "le", "gt", "ge", "isinf", "isnan", "logical_and",
                    "logical_not", "logical_or", "logical_xor", "reduce_all", "reduce_any"});
    add("integers in",
        {"bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", "one_hot", "dequantize",
         "qembedding", "repack", "dequantize_packed", "qmatmul_codes", "qmatmul_halves", "expert_matmul"});
    add("codes out", {"quantize", "activation_codes"});
    add("of passes that are not differentiated", {"cached_attention"});
    add("indices out",
        {"argmax", "argmin", "argsort", "reduce_argmax", "reduce_argmin", "searchsorted", "search_sorted"});
    add("drawn",
        {"bernoulli", "categorical", "gumbel", "normal", "permutation", "randint", "random_bits", "uniform"});
    add("no inputs", {"arange", "constant", "eye", "full", "linspace", "sinusoidal_encoding"});
    add("`-` in OPS.md", {"floor_divide", "optim"});
    add("zero on purpose", {"stop_gradient"});
    add("its nodes have their own, tests/plan/grad_test.cpp", {"custom_gradient"});
    add("tested through the ops that are made of it",
        {"index_accumulate", "index_gather", "index_pick", "matmul_batched", "pad_constant", "reduce_max",
         "reduce_min", "reduce_prod", "reduce_sum", "scan_cummax", "scan_cummin", "scan_cumprod",
         "scan_cumsum", "scan_logcumsumexp", "qmatmul_packed", "scatter_accumulate", "scatter_write",
         "sort_pairs"});
    return reasons;
  }();
  return all;
}

/// Evenly spread, shuffled, away from kinks.
std::vector<float> spread(const Case& c, const Input& input, std::mt19937& random) {
  const auto count = static_cast<size_t>(element_count(input.shape));
  const double gap = (input.high - input.low) / static_cast<double>(std::max<size_t>(count, 1));
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    double v = input.low + (static_cast<double>(i) + 0.5) * gap;
    for (double kink : c.kinks)
      if (std::abs(v - kink) < 3 * c.step) v = kink + (v < kink ? -3 : 3) * c.step;
    values[i] = static_cast<float>(v);
  }
  std::ranges::shuffle(values, random);
  return values;
}

void check_case(const Case& c) {
  std::mt19937 random(7);
  std::vector<std::vector<float>> values;
  for (const Input& input : c.inputs)
    values.push_back(input.fixed ? std::vector<float>{} : spread(c, input, random));
  const auto arrays = [&] {
    std::vector<Array> made;
    for (size_t i = 0; i < c.inputs.size(); ++i)
      made.push_back(c.inputs[i].fixed ? c.inputs[i].fixed
                                       : Array::from_vector(values[i], c.inputs[i].shape));
    return made;
  };

  // <r, f(x)> over the float outputs.
  const std::vector<Array> inputs = arrays(), outputs = apply(c.op, inputs, c.attrs);
  std::vector<std::vector<float>> weights;
  std::vector<Array> output_grads;
  for (const Array& output : outputs) {
    std::vector<float> r(is_float(output.dtype()) ? static_cast<size_t>(output.size()) : 0);
    for (float& v : r) v = static_cast<float>(random() % 2001) / 1000 - 1;
    output_grads.push_back(
        is_float(output.dtype()) ? as(Array::from_vector(r, output.shape()), output.dtype()) : Array());
    weights.push_back(std::move(r));
  }
  const auto weighed = [&] {
    double total = 0;
    const std::vector<Array> results = apply(c.op, arrays(), c.attrs);
    for (size_t j = 0; j < results.size(); ++j) {
      if (weights[j].empty()) continue;
      const std::vector<float> y = as(results[j], DType::f32).to_vector();
      for (size_t i = 0; i < y.size(); ++i)
        total += static_cast<double>(weights[j][i]) * static_cast<double>(y[i]);
    }
    return total;
  };

  std::vector<Array> wanted;
  std::vector<size_t> places;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (c.inputs[i].wanted) wanted.push_back(inputs[i]), places.push_back(i);
  const std::vector<Array> grads = vjp(outputs, output_grads, wanted);
  for (size_t k = 0; k < wanted.size(); ++k) {
    CAPTURE(places[k]);
    REQUIRE(grads[k].shape() == wanted[k].shape());
    REQUIRE(grads[k].dtype() == DType::f32);
    const std::vector<float> got = grads[k].to_vector();
    std::vector<float>& x = values[places[k]];
    // Ranks must not change within a step: max, sort, median ...
    const Input& input = c.inputs[places[k]];
    const double step = c.step > 0.1
                            ? c.step
                            : std::min(c.step, (input.high - input.low) /
                                                   (4 * static_cast<double>(std::max<size_t>(x.size(), 1))));
    for (size_t i = 0; i < x.size(); ++i) {
      CAPTURE(i);
      const float at = x[i], above = at + static_cast<float>(step), below = at - static_cast<float>(step);
      x[i] = above;
      const double high = weighed();
      x[i] = below;
      const double low = weighed();
      x[i] = at;
      const double want = (high - low) / (static_cast<double>(above) - static_cast<double>(below));
      CAPTURE(at);
      CAPTURE(got[i]);
      CAPTURE(want);
      CHECK(std::abs(got[i] - want) <= 2e-3 + 2e-2 * std::abs(want));
    }
  }
}

/// Halves are computed in f32 and rounded once: outputs and gradients are those of the same values in f32.
void check_halves(const Case& c, DType half) {
  std::mt19937 random(7);
  std::vector<Array> halves, wide, wanted_halves, wanted_wide;
  for (const Input& input : c.inputs) {
    const Array x = input.fixed ? input.fixed : Array::from_vector(spread(c, input, random), input.shape);
    halves.push_back(x && x.dtype() == DType::f32 ? as(x, half) : x);
    wide.push_back(x && x.dtype() == DType::f32 ? as(halves.back(), DType::f32) : x);
    if (input.wanted) wanted_halves.push_back(halves.back()), wanted_wide.push_back(wide.back());
  }
  for (std::vector<Array>* list : {&halves, &wide})
    for (const Array& x : *list)
      if (x) x.to_host();  // leaves, whose gradients are asked for
  const std::vector<Array> got = apply(c.op, halves, c.attrs), want = apply(c.op, wide, c.attrs);
  std::vector<Array> got_grads, want_grads;
  for (size_t j = 0; j < got.size(); ++j) {
    std::vector<float> r(static_cast<size_t>(got[j].size()));
    for (float& v : r) v = static_cast<float>(random() % 2001) / 1000 - 1;
    const bool is_output = is_float(got[j].dtype());
    const Array g = is_output ? as(Array::from_vector(r, got[j].shape()), got[j].dtype()) : Array();
    got_grads.push_back(g), want_grads.push_back(is_output ? as(g, DType::f32) : g);
  }
  std::vector<Array> all_got = vjp(got, got_grads, wanted_halves),
                     all_want = vjp(want, want_grads, wanted_wide);
  all_got.insert(all_got.end(), got.begin(), got.end());
  all_want.insert(all_want.end(), want.begin(), want.end());

  for (size_t j = 0; j < all_got.size(); ++j) {
    CAPTURE(j);
    const std::vector<float> x = as(all_got[j], DType::f32).to_vector(),
                             y = as(as(all_want[j], half), DType::f32).to_vector();
    REQUIRE(x.size() == y.size());
    for (size_t i = 0; i < x.size(); ++i) {  // the next half at most, where f32 was on the border
      CAPTURE(x[i]);
      CAPTURE(y[i]);
      CHECK(std::abs(x[i] - y[i]) <= 1e-6 + std::abs(y[i]) * (half == DType::f16 ? 1.0 / 1024 : 1.0 / 128));
    }
  }
}

}  // namespace

TEST_SUITE("base: gradients") {
  TEST_CASE("halves are rounded once, at the end") {
    for (size_t i = 0; i < cases().size(); ++i) {
      const Case& c = cases()[i];
      if (c.op == "to_dtype" || c.op == "put_rows" || c.op.starts_with("convolve")) continue;  // f32 only
      CAPTURE(i);
      CAPTURE(c.op);
      try {
        for (DType half : {DType::f16, DType::bf16}) check_halves(c, half);
      } catch (const Error& e) {
        FAIL_CHECK(e.what());
      }
    }
  }

  TEST_CASE("every gradient is what central differences say") {
    for (size_t i = 0; i < cases().size(); ++i) {
      CAPTURE(i);
      CAPTURE(cases()[i].op);
      try {
        check_case(cases()[i]);
      } catch (const Error& e) {
        FAIL_CHECK(e.what());
      }
    }
  }

  TEST_CASE("every op has its gradient tested, or a reason why not") {
    std::map<std::string, int> tested;
    for (const Case& c : cases()) ++tested[c.op];
    for (const Op* op : all_ops()) {
      CAPTURE(op->name);
      CHECK(tested.contains(op->name) != without().contains(op->name));
    }
    for (const auto& [name, reason] : without()) CHECK_NOTHROW(find_op(name));
  }

  TEST_CASE("an op without a gradient says so") {
    int checked = 0;
    for (const Op* op : all_ops()) {
      if (op->kind == OpKind::composed || op->gradient || op->stops_gradient) continue;
      if (op->name == "dequantize") continue;  // of integers, which are refused before
      if (std::ranges::any_of(op->attrs, [](const AttrSpec& a) { return a.name == "k"; }))
        continue;                                    // packed weights
      if (op->name == "cached_attention") continue;  // in tests/backend/cached_attention_test.cpp
      CAPTURE(op->name);
      const bool whole = op->name.starts_with("bitwise_") || op->name.starts_with("shift_");
      const Array x = op->name == "random_bits" ? random_key(1)
                                                : as(Array::from_vector(std::vector<float>(32, 2), {32}),
                                                     whole ? DType::i32 : DType::f32);
      Attrs attrs;
      for (const AttrSpec& attr : op->attrs) {
        if (attr.name == "dim") attrs.set("dim", 0);
        if (attr.name == "dims") attrs.set("dims", Ints{0});
        if (attr.name == "shape") attrs.set("shape", Ints{1, 4});
        if (attr.name == "type") attrs.set("type", std::string("q8_0"));
      }
      const Array y = call(op->name, std::vector<Array>(static_cast<size_t>(op->min_inputs), x), attrs);
      CHECK(test::error_of([&] { vjp({y}, {y}, {x}); }).message == "[grad] " + op->name + " has no gradient");
      ++checked;
    }
    CHECK(checked >= 15);
  }
}
