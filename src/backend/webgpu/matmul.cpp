#include <algorithm>

#include "backend/webgpu/builder.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

/// a (batch, m, k), b (batch, k, n): sizes and strides.
struct Problem {
  Walk batch;  // operands a, b
  int64_t m, n, k, a_row, a_k, b_k, b_column;
};

Problem problem_of(const Operand& a, const Operand& b) {
  const size_t rank = a.layout.shape.size();
  const Layout &x = a.layout, &y = b.layout;
  Problem p{.m = x.shape[rank - 2],
            .n = y.shape[rank - 1],
            .k = x.shape[rank - 1],
            .a_row = x.strides[rank - 2],
            .a_k = x.strides[rank - 1],
            .b_k = y.strides[rank - 2],
            .b_column = y.strides[rank - 1]};
  // The same b for all (weights): the rows of a's matrices become one tall matrix if they are evenly spaced.
  size_t batch_rank = rank - 2;
  for (; batch_rank > 0; --batch_rank) {
    const size_t d = batch_rank - 1;
    const int64_t size = x.shape[d];
    if (size != 1 && (y.strides[d] != 0 || (p.m != 1 && x.strides[d] != p.m * p.a_row))) break;
    if (size != 1 && p.m == 1) p.a_row = x.strides[d];
    p.m *= size;
  }
  p.batch.offsets = {x.offset, y.offset};
  for (size_t d = 0; d < batch_rank; ++d) p.batch.add(x.shape[d], {x.strides[d], y.strides[d]});
  return p;
}

std::string constant_function(std::string_view name, const std::string& value) {
  return fmt::format("fn {}() -> u32 {{ return {}; }}\n", name, value);
}

/// What every form of the kernel needs: T, load_a, load_b, bases, sizes and strides.
void declare(Builder& builder, const Problem& p, const Operand& a, const Operand& b) {
  builder.code = fmt::format("alias T = {};\n", lane_type(a.dtype));
  builder.code += fmt::format("fn load_a(i: u32) -> T {{ return {}; }}\n", builder.load(a, "i"));
  builder.code += fmt::format("fn load_b(i: u32) -> T {{ return {}; }}\n", builder.load(b, "i"));
  builder.code += "fn bases(i: u32) -> vec2<u32> {\n" + builder.unravel(p.batch, "i") +
                  "  return vec2<u32>(at0, at1);\n}\n";
  const std::pair<std::string_view, int64_t> numbers[] = {{"size_m", p.m},
                                                          {"size_n", p.n},
                                                          {"size_k", p.k},
                                                          {"a_stride_row", p.a_row},
                                                          {"a_stride_k", p.a_k},
                                                          {"b_stride_k", p.b_k},
                                                          {"b_stride_column", p.b_column}};
  for (const auto& [name, value] : numbers) builder.code += constant_function(name, builder.number(value));
}

/// One invocation per element, for products with a side that is a sliver of a tile.
void by_element(Context& context, const Problem& p, const Operand& a, const Operand& b, const Operand& out) {
  Builder builder("matmul_element");
  declare(builder, p, a, b);
  builder.code +=
      "fn element(i: u32) -> Result {\n"
      "  let column = i % size_n();\n  let row = i / size_n() % size_m();\n  let start = bases(i / (size_n() "
      "* size_m()));\n"
      "  var a = start.x + row * a_stride_row();\n  var b = start.y + column * b_stride_column();\n"
      "  var total = T(0);\n"
      "  for (var k = 0u; k < size_k(); ) {\n    var part = T(0);\n"
      "    let stop = min(k + 32u, size_k());\n"
      "    for (; k < stop; k++) {\n      part += load_a(a) * load_b(b);\n      a += a_stride_k();\n      b "
      "+= b_stride_k();\n    }\n"
      "    total += part;\n  }\n";
  builder.code += "  return Result(" + encode(out.dtype, "total") + ");\n}\n";
  builder.map(context, std::span(&out, 1));
}

void by_tile(Context& context, const Problem& p, const Operand& a, const Operand& b, const Operand& out) {
  Builder builder("matmul");
  declare(builder, p, a, b);
  const std::string c = builder.write(buffer_of(out));
  const std::string x = encode(out.dtype, "v.x"), y = encode(out.dtype, "v.y");
  builder.code += "fn store(at: u32, v: vec2<T>, both: bool) {\n";
  if (size_of(out.dtype) == 4)
    builder.code += fmt::format("  {0}[at] = {1};\n  if (both) {{ {0}[at + 1u] = {2}; }}\n}}\n", c, x, y);
  else
    builder.code += fmt::format("  {}[at / 2u] = {} | ({} << 16u);\n}}\n", c, x, y);
  builder.code += embedded::webgpu_kernels("matmul");
  const int64_t tiles = (p.m + 63) / 64 * ((p.n + 63) / 64);
  builder.groups(context, tiles * p.batch.count(), 256, "  multiply(index, thread);\n");
}

}  // namespace

void matmul(Context& context, const Step& step) {
  const Operand &a = step.inputs[0], &b = step.inputs[1], &out = step.outputs[0];
  if (element_count(out.layout.shape) == 0) return;
  const auto is_word = [](DType d) { return d == DType::i32 || d == DType::u32; };
  const bool floats = is_float(a.dtype) && is_float(b.dtype) && is_float(out.dtype);
  if (!floats && !(is_word(a.dtype) && a.dtype == b.dtype && a.dtype == out.dtype))
    fail(ErrorKind::unsupported, "[matmul] no kernel for {} x {} -> {} on the GPU", name_of(a.dtype),
         name_of(b.dtype), name_of(out.dtype));
  const Problem p = problem_of(a, b);
  if (p.m < 8 || p.n < 8) return by_element(context, p, a, b, out);
  if (size_of(out.dtype) == 4 || p.n % 2 == 0) return by_tile(context, p, a, b, out);
  // Rows of 16-bit elements that end within a word: through f32.
  const Operand sums{
      std::make_shared<WebgpuStorage>(context.scratch(element_count(out.layout.shape), "matmul")), DType::f32,
      out.layout};
  by_tile(context, p, a, b, sums);
  convert_all(context, sums, out.dtype, buffer_of(out));
}

}  // namespace weft::webgpu
