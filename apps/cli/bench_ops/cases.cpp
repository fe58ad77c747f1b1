#include "bench_ops/cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ops/shorthand.h"
#include "weft/compile.h"
#include "weft/grad.h"

namespace weft::bench_ops {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16};

double product(const Shape& shape) {
  return static_cast<double>(element_count(shape));
}

std::string named(std::string_view op, DType dtype, const Shape& shape, std::string_view more = "") {
  return fmt::format("{} {} {}{}{}", op, name_of(dtype), fmt::join(shape, "x"), more.empty() ? "" : " ",
                     more);
}

/// A case of one op on one array.
Case unary(const std::string& op, DType dtype, const Shape& shape, const Attrs& attrs = {},
           std::string_view more = "") {
  return {.name = named(op, dtype, shape, more),
          .inputs = {{shape, dtype}},
          .compute = [op, attrs](const std::vector<Array>& in) { return weft::apply(op, {in[0]}, attrs); }};
}

/// A view, written out in row-major order: what a reshape of it has to do.
Case moved(const std::string& name, const Shape& shape, DType dtype,
           const std::function<Array(const Array&)>& view) {
  return {.name = named(name, dtype, shape),
          .inputs = {{shape, dtype}},
          .compute = [view](const std::vector<Array>& in) -> std::vector<Array> {
            const Array x = view(in[0]);
            return {reshape(x, {x.size()})};
          }};
}

void add_elementwise(std::vector<Case>& out, int64_t n) {
  for (DType dtype : kFloats)
    out.push_back(
        {.name = named("add", dtype, {n}),
         .inputs = {{{n}, dtype}, {{n}, dtype}},
         .compute = [](const std::vector<Array>& in) -> std::vector<Array> { return {in[0] + in[1]}; }});
  for (const char* op : {"exp", "tanh", "gelu", "silu"}) out.push_back(unary(op, DType::f32, {n}));
  out.push_back(unary("gelu", DType::f16, {n}));
  out.push_back(
      {.name = named("add row", DType::f32, {n / 1024, 1024}),
       .inputs = {{{n / 1024, 1024}}, {{1024}}},
       .compute = [](const std::vector<Array>& in) -> std::vector<Array> { return {in[0] + in[1]}; }});
  out.push_back(unary("neg", DType::f32, {1024}));  // what an evaluation costs
}

void add_moves(std::vector<Case>& out, int64_t n, int64_t side) {
  out.push_back(moved("strided copy", {2, n / 2}, DType::f32,
                      [](const Array& x) { return slice_dim(x, 1, 0, x.shape(1) - 16); }));
  for (DType dtype : {DType::f32, DType::f16})
    out.push_back(moved("transpose", {side, side}, dtype, [](const Array& x) { return transpose(x, 0, 1); }));
  out.push_back(moved("heads first", {side / 64, 64, 16, side / 16},
                      DType::f32,  // (b, t, h, d) -> (b, h, t, d)
                      [](const Array& x) { return transpose(x, 1, 2); }));
}

void add_reductions(std::vector<Case>& out, int64_t n, int64_t side) {
  for (DType dtype : {DType::f32, DType::f16}) out.push_back(unary("sum", dtype, {n}));
  for (int64_t dim : {0, 1})
    out.push_back(unary("sum", DType::f32, {side, side}, {{"dims", Ints{dim}}}, fmt::format("dim {}", dim)));
  out.push_back(unary("max", DType::f32, {side, side}, {{"dims", Ints{1}}}, "dim 1"));
  out.push_back(unary("argmax", DType::f32, {side, side}, {{"dim", int64_t{1}}}, "dim 1"));
  for (DType dtype : {DType::f32, DType::f16})
    out.push_back(unary("softmax", dtype, {side, side}, {{"dim", int64_t{-1}}}));
  for (const char* op : {"layer_norm", "rms_norm"})
    out.push_back({.name = named(op, DType::f32, {side, side}),
                   .inputs = {{{side, side}}, {{side}}},
                   .compute = [op](const std::vector<Array>& in) { return weft::apply(op, in); }});
  out.push_back(unary("cumsum", DType::f32, {side, side}, {{"dim", int64_t{1}}}, "dim 1"));
  out.push_back(unary("sort", DType::f32, {side / 4, side}));
}

void add_indexing(std::vector<Case>& out, int64_t rows) {
  constexpr int64_t kTable = 32'000, kWidth = 512;
  const double moved_bytes = 2.0 * static_cast<double>(rows * kWidth) * sizeof(float);
  out.push_back({.name = named("embedding", DType::f32, {kTable, kWidth}, fmt::format("{} rows", rows)),
                 .inputs = {{{kTable, kWidth}}, {{rows}, DType::i32, kTable}},
                 .compute = [](const std::vector<Array>& in) { return weft::apply("embedding", in); },
                 .bytes = moved_bytes});
  out.push_back({.name = named("index_add", DType::f32, {kTable, kWidth}, fmt::format("{} rows", rows)),
                 .inputs = {{{kTable, kWidth}}, {{rows}, DType::i32, kTable}, {{rows, kWidth}}},
                 .compute = [](const std::vector<Array>& in) {
                   return weft::apply("index_add", in, {{"dim", int64_t{0}}});
                 }});
}

/// `b_transposed`: b is stored as (n, k), the weights of a linear layer.
Case matmul_case(DType dtype, int64_t m, int64_t n, int64_t k, bool b_transposed) {
  return {.name = named(m <= 8 ? "matvec" : "matmul", dtype, {m, n, k}, b_transposed ? "nt" : "nn"),
          .inputs = {{{m, k}, dtype}, {b_transposed ? Shape{n, k} : Shape{k, n}, dtype}},
          .compute = [b_transposed](const std::vector<Array>& in) -> std::vector<Array> {
            return {matmul(in[0], b_transposed ? transpose(in[1], 0, 1) : in[1])};
          },
          .flops = 2.0 * product({m, n, k})};
}

void add_matmuls(std::vector<Case>& out, bool large) {
  const std::vector<int64_t> sides =
      large ? std::vector<int64_t>{512, 1024, 2048, 4096} : std::vector<int64_t>{64, 256, 512, 1024, 2048};
  for (DType dtype : kFloats)
    for (int64_t side : sides)
      if (dtype == DType::f32 || side >= 1024) out.push_back(matmul_case(dtype, side, side, side, false));
  for (DType dtype : kFloats)
    out.push_back(matmul_case(dtype, sides.back(), sides.back(), sides.back(), true));
  const int64_t wide = large ? 16'384 : 4096;
  for (DType dtype : kFloats) out.push_back(matmul_case(dtype, 1, wide, 4096, true));
  out.push_back(matmul_case(DType::f32, 1, wide, 4096, false));
  for (int64_t rows : {4, 8, 32}) out.push_back(matmul_case(DType::f32, rows, wide, 4096, true));
}

struct Conv {
  const char* name;
  Shape x, w;
  int64_t stride, padding, groups;
};

void add_convolutions(std::vector<Case>& out, int64_t batch) {
  const Conv convolutions[] = {
      {"conv2d 3x3", {batch, 64, 56, 56}, {64, 64, 3, 3}, 1, 1, 1},
      {"conv2d 3x3 deep", {batch, 256, 14, 14}, {256, 256, 3, 3}, 1, 1, 1},
      {"conv2d 1x1", {batch, 256, 28, 28}, {256, 256, 1, 1}, 1, 0, 1},
      {"conv2d 7x7 stride 2", {batch, 3, 224, 224}, {64, 3, 7, 7}, 2, 3, 1},
      {"conv2d depthwise", {batch, 128, 56, 56}, {128, 1, 3, 3}, 1, 1, 128},
  };
  for (const Conv& conv : convolutions) {
    const Attrs attrs = {
        {"stride", Ints(2, conv.stride)}, {"padding", Ints(2, conv.padding)}, {"groups", conv.groups}};
    const auto size = [&](size_t dim) {
      return (conv.x[dim] + 2 * conv.padding - conv.w[dim]) / conv.stride + 1;
    };
    const double flops = 2.0 * product(conv.w) * product({batch, size(2), size(3)});
    const std::vector<Input> inputs = {{conv.x}, {conv.w}};
    out.push_back(
        {.name = named(conv.name, DType::f32, conv.x),
         .inputs = inputs,
         .compute = [attrs](const std::vector<Array>& in) { return weft::apply("conv2d", in, attrs); },
         .flops = flops});
    out.push_back({.name = named(conv.name, DType::f32, conv.x, "backward"),
                   .inputs = {inputs[0], inputs[1], {{batch, conv.w[0], size(2), size(3)}}},
                   .compute =
                       [attrs](const std::vector<Array>& in) {
                         return vjp(apply("conv2d", {in[0], in[1]}, attrs), {in[2]}, {in[0], in[1]});
                       },
                   .flops = 2 * flops});
  }
}

Case attention(DType dtype, const Shape& q, int64_t keys) {
  Shape kv = q;
  kv[2] = keys;
  return {.name = named("attention", dtype, q, fmt::format("{} keys", keys)),
          .inputs = {{q, dtype}, {kv, dtype}, {kv, dtype}},
          .compute = [](const std::vector<Array>& in) { return weft::apply("sdpa", in); },
          .flops = 4.0 * product(q) * static_cast<double>(keys)};
}

/// One new token over `keys` keys of a cache, layer after layer: each has a cache of its own, as in a model,
/// and its queries are what the one before it gave.
Case attention_decode(int64_t heads, int64_t key_heads, int64_t dim, int64_t keys, int64_t layers) {
  const Shape cache = {keys, key_heads * dim};
  Case c{.name = named("attention decode", DType::f16, {heads, key_heads, dim},
                       fmt::format("{} keys {} layers", keys, layers)),
         .inputs = {{{1, heads, dim}},
                    {{keys}, DType::i32, keys},
                    {{keys}, DType::i32, 1},
                    {{1}, DType::i32, 1}},
         .compute = compile([layers](const std::vector<Array>& in) -> std::vector<Array> {
           const Attrs attrs = {{"scale", 0.125}, {"causal", false}};
           Array x = in[0];
           for (size_t i = 4; i < 4 + 2 * static_cast<size_t>(layers); i += 2)
             x = reshape(
                 call("cached_attention", {x, in[i], in[i + 1], in[1], in[2], in[2], in[3], in[3]}, attrs),
                 in[0].shape());
           return {x};
         }),
         .bytes = 2.0 * static_cast<double>(layers) * product(cache) * sizeof(uint16_t)};
  c.inputs.insert(c.inputs.end(), 2 * static_cast<size_t>(layers), {cache, DType::f16});
  return c;
}

void add_attention(std::vector<Case>& out, bool large) {
  const int64_t heads = large ? 32 : 8, length = large ? 2048 : 512;
  for (DType dtype : {DType::f32, DType::f16}) {
    out.push_back(attention(dtype, {1, heads, length, 64}, length));
    out.push_back(attention(dtype, {1, heads, 1, 64}, 4 * length));  // decoding
  }
  for (int64_t keys : {512, 4096, 32'768}) {
    const int64_t layers = large ? std::min<int64_t>(65'536 / keys, 16) : 2;
    out.push_back(attention_decode(32, 8, 128, keys, layers));  // of Llama-8B
    out.push_back(attention_decode(9, 3, 64, keys, layers));    // of SmolLM2-135M
  }
}

}  // namespace

std::vector<Case> cases(bool large) {
  const int64_t n = large ? 1 << 26 : 1 << 24;  // 256 or 64 MiB of f32: beyond the caches
  const int64_t side = large ? 8192 : 4096;
  std::vector<Case> out;
  add_elementwise(out, n);
  add_moves(out, n, side);
  add_reductions(out, n, side);
  add_indexing(out, large ? 65'536 : 8192);
  add_matmuls(out, large);
  add_convolutions(out, large ? 32 : 4);
  add_attention(out, large);
  return out;
}

}  // namespace weft::bench_ops
