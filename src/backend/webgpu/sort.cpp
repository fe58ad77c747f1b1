// Bitonic sort of (key, index) pairs: keys are unsigned numbers in the order wanted, ties go by index, which
// makes it stable both ways. Lines are padded to a power of two with pairs that come last.
#include <algorithm>
#include <bit>

#include "backend/webgpu/builder.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::webgpu {
namespace {

constexpr int64_t kLocal = 1024;  // pairs that a workgroup sorts in shared memory

std::string key_text(DType dtype) {
  const std::string_view t = lane_type(dtype);
  if (t == "f32")
    return "fn key(x: f32) -> u32 {\n  if (weft_isnan(x)) { return 0xffffffffu; }\n  var bits = "
           "bitcast<u32>(x);\n"
           "  if (bits == 0x80000000u) { bits = 0u; }\n"  // -0 and 0 are equal
           "  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);\n}\n";
  if (t == "i32") return "fn key(x: i32) -> u32 { return bitcast<u32>(x) ^ 0x80000000u; }\n";
  if (t == "bool") return "fn key(x: bool) -> u32 { return select(0u, 1u, x); }\n";
  return "fn key(x: u32) -> u32 { return x; }\n";
}

constexpr std::string_view kAfter =
    "fn after(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x > b.x || (a.x == b.x && a.y > b.y); }\n";

/// Compares pairs `distance` apart, within blocks of `block` that alternate in direction; 0 = all upwards,
/// which the last pass over a line is.
void pass(Context& context, const gpu::Buffer& pairs, int64_t count, int64_t block, int64_t distance) {
  Builder builder("sort_pass");
  const std::string p = builder.write(pairs), d = builder.number(distance), b = builder.number(block);
  builder.code = std::string(kAfter);
  builder.groups(context, (count / 2 + 255) / 256, 256,
                 fmt::format("  let t = index * 256u + thread;\n  if (t >= {3}) {{ return; }}\n"
                             "  let i = (t / {1}) * 2u * {1} + t % {1};\n  let j = i + {1};\n"
                             "  let x = vec2<u32>({0}[2u * i], {0}[2u * i + 1u]);\n  let y = "
                             "vec2<u32>({0}[2u * j], {0}[2u * j + 1u]);\n"
                             "  if (after(x, y) == ((i & {2}) == 0u)) {{\n"
                             "    {0}[2u * i] = y.x; {0}[2u * i + 1u] = y.y;\n    {0}[2u * j] = x.x; {0}[2u "
                             "* j + 1u] = x.y;\n  }}\n",
                             p, d, b, builder.number(count / 2)));
}

/// All passes from `first` (block size) to `last` whose distances fit into shared memory, for every run of
/// kLocal pairs.
void local_passes(Context& context, const gpu::Buffer& pairs, int64_t count, int64_t first, int64_t last,
                  int64_t line) {
  Builder builder("sort_local");
  const std::string p = builder.write(pairs), from = builder.number(first), to = builder.number(last),
                    n = builder.number(count), size = builder.number(line);
  builder.code = std::string(kAfter) + "var<workgroup> run: array<vec2<u32>, 1024>;\n";
  builder.groups(
      context, (count + kLocal - 1) / kLocal, 256,
      fmt::format(
          "  let begin = index * 1024u;\n"
          "  for (var q = thread; q < 1024u; q += 256u) {{\n    run[q] = vec2<u32>(0xffffffffu, "
          "0xffffffffu);\n"
          "    if (begin + q < {3}) {{ run[q] = vec2<u32>({0}[2u * (begin + q)], {0}[2u * (begin + q) + "
          "1u]); }}\n  }}\n"
          "  for (var block = {1}; block <= {2}; block *= 2u) {{\n    let mask = select(block, 0u, block == "
          "{4});\n"
          "    for (var d = min(block / 2u, 512u); d > 0u; d /= 2u) {{\n      workgroupBarrier();\n"
          "      for (var t = thread; t < 512u; t += 256u) {{\n"
          "        let i = (t / d) * 2u * d + t % d;\n        let x = run[i];\n        let y = run[i + d];\n"
          "        if (after(x, y) == (((begin + i) & mask) == 0u)) {{ run[i] = y; run[i + d] = x; }}\n      "
          "}}\n    }}\n  }}\n"
          "  workgroupBarrier();\n"
          "  for (var q = thread; q < 1024u; q += 256u) {{\n"
          "    if (begin + q < {3}) {{ {0}[2u * (begin + q)] = run[q].x; {0}[2u * (begin + q) + 1u] = "
          "run[q].y; }}\n  }}\n",
          p, from, to, n, size));
}

}  // namespace

void sort(Context& context, const Step& step) {
  const Operand &x = step.inputs[0], &values = step.outputs[0], &indices = step.outputs[1];
  const Shape& shape = x.layout.shape;
  if (element_count(shape) == 0) return;
  const bool descending = step.attrs->has("descending") && step.attrs->flag("descending");
  const size_t dim =
      shape.empty() ? 0
                    : static_cast<size_t>(normalize_dim("sort", step.attrs->integer("dim"), shape.size()));
  const int64_t size = shape.empty() ? 1 : shape[dim], stride = shape.empty() ? 0 : x.layout.strides[dim];
  // Every line takes `padded` pairs; blocks of a line end with it, and then all lines are sorted upwards.
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
  Walk lines;
  lines.offsets = {x.layout.offset};
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != dim) lines.add(shape[d], {x.layout.strides[d]});
  const int64_t count = lines.count() * padded;
  if (count * 2 >= int64_t{1} << 31)
    fail(ErrorKind::unsupported, "[sort] {} is too large for the GPU", to_string(shape));
  const gpu::Buffer pairs = context.scratch(2 * count, "sort");
  {
    Builder builder("sort_keys");
    builder.code = key_text(x.dtype) + "fn base_of(i: u32) -> u32 {\n" + builder.unravel(lines, "i") +
                   "  return at0;\n}\n";
    const std::string to = builder.write(pairs), line = builder.number(padded), n = builder.number(size);
    builder.groups(
        context, (count + 255) / 256, 256,
        fmt::format("  let t = index * 256u + thread;\n  if (t >= {0}) {{ return; }}\n  let j = t % {1};\n  "
                    "var k = 0xffffffffu;\n"
                    "  if (j < {2}) {{ k = key({3}) ^ {4}; }}\n  {5}[2u * t] = k;\n  {5}[2u * t + 1u] = j;\n",
                    builder.number(count), line, n,
                    builder.load(x, fmt::format("base_of(t / {}) + j * {}", line, builder.number(stride))),
                    builder.number(descending ? -1 : 0), to));
  }
  local_passes(context, pairs, count, 2, std::min(padded, kLocal), padded);
  for (int64_t block = 2 * kLocal; block <= padded; block *= 2) {
    for (int64_t d = block / 2; d >= kLocal; d /= 2)
      pass(context, pairs, count, block == padded ? 0 : block, d);
    local_passes(context, pairs, count, block, block, padded);
  }
  Builder builder("sort_pick");
  Walk out;  // coordinates of the output: its place along dim, and its line
  out.offsets = {0, x.layout.offset};
  int64_t inner_lines = 1;
  std::vector<int64_t> line_strides(shape.size(), 0);
  for (size_t d = shape.size(); d-- > 0;)
    if (d != dim) {
      line_strides[d] = inner_lines * padded;
      inner_lines *= shape[d];
    }
  if (!shape.empty()) line_strides[dim] = 1;
  for (size_t d = 0; d < shape.size(); ++d)
    out.add(shape[d], {line_strides[d], d == dim ? 0 : x.layout.strides[d]});
  std::string body = "fn element(i: u32) -> Result {\n" + builder.unravel(out, "i");
  body += fmt::format("  let place = {}[2u * at0 + 1u];\n", builder.read(pairs));
  builder.code = body + "  return Result(" + builder.bits(x, "at1 + place * " + builder.number(stride)) +
                 ", place);\n}\n";
  const Operand both[] = {values, indices};
  builder.map(context, both);
}

}  // namespace weft::webgpu
