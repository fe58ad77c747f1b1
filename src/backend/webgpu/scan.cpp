// Running sums and the like. A line is one invocation's, or a workgroup's: each invocation folds a chunk, the
// states of the chunks are scanned, and each chunk is walked again from the state before it.
#include "backend/webgpu/builder.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::webgpu {
namespace {

/// State, start, state_of, join, value.
std::string rule_text(std::string_view kernel, std::string_view t) {
  const bool real = t == "f32";
  if (kernel == "scan_logcumsumexp")
    return "alias State = vec2<f32>;\n"  // the largest so far, and the sum of e^(x - largest)
           "fn start() -> State { return State(-weft_inf(), 0.0); }\n"
           "fn state_of(x: f32) -> State {\n  if (weft_isnan(x)) { return State(-weft_inf(), x); }\n  return "
           "State(x, 1.0);\n}\n"
           "fn weight(x: f32, largest: f32) -> f32 {\n  if (x == largest) { return 1.0; }\n  return "
           "weft_exp(x - largest);\n}\n"
           "fn join(a: State, b: State) -> State {\n  let m = max(a.x, b.x);\n"
           "  return State(m, a.y * weight(a.x, m) + b.y * weight(b.x, m));\n}\n"
           "fn value(s: State) -> f32 { return s.x + weft_log(s.y); }\n";
  const bool largest = kernel == "scan_cummax";
  std::string start, join;
  if (kernel == "scan_cumsum") {
    start = fmt::format("{}(0)", t), join = "a + b";
  } else if (kernel == "scan_cumprod") {
    start = fmt::format("{}(1)", t), join = "a * b";
  } else {
    start = real         ? (largest ? "-weft_inf()" : "weft_inf()")
            : t == "i32" ? (largest ? "-2147483647 - 1" : "2147483647")
                         : (largest ? "0u" : "0xffffffffu");
    join = fmt::format("{}{}(a, b)", real ? "weft_" : "", largest ? "max" : "min");
  }
  return fmt::format(
      "alias State = {0};\nfn start() -> State {{ return {1}; }}\nfn state_of(x: {0}) -> State {{ return x; "
      "}}\n"
      "fn join(a: State, b: State) -> State {{ return {2}; }}\nfn value(s: State) -> {0} {{ return s; }}\n",
      t, start, join);
}

bool flag(const Step& step, std::string_view name) {
  return step.attrs->has(name) && step.attrs->flag(name);
}

/// scan(in, out, state, begin, end): walks part of a line; main calls it.
void scan_words(Context& context, const Step& step, const Operand& x, const Operand& out) {
  const Shape& shape = x.layout.shape;
  const auto dim = static_cast<size_t>(
      shape.empty() ? 0 : normalize_dim(step.kernel, step.attrs->integer("dim"), shape.size()));
  Walk lines;
  lines.offsets = {x.layout.offset, 0};
  int64_t size = 1, in_stride = 0, out_stride = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d != dim) {
      lines.add(shape[d], {x.layout.strides[d], out.layout.strides[d]});
      continue;
    }
    size = shape[d], in_stride = x.layout.strides[d], out_stride = out.layout.strides[d];
  }
  if (flag(step, "reverse")) {
    lines.offsets[0] += (size - 1) * in_stride;
    lines.offsets[1] += (size - 1) * out_stride;
    in_stride = -in_stride;
    out_stride = -out_stride;
  }
  const std::string_view t = x.dtype == DType::boolean ? "u32" : lane_type(x.dtype);
  Builder builder("scan");
  builder.code = rule_text(step.kernel, t);
  const std::string in = builder.number(in_stride), to = builder.number(out_stride), n = builder.number(size);
  const std::string loaded = builder.load(x, fmt::format("at + j * {}", in));
  builder.code += fmt::format("fn state_at(at: u32, j: u32) -> State {{ return state_of({}); }}\n",
                              x.dtype == DType::boolean ? "select(0u, 1u, " + loaded + ")" : loaded);
  builder.code +=
      "fn line(i: u32) -> vec2<u32> {\n" + builder.unravel(lines, "i") + "  return vec2<u32>(at0, at1);\n}\n";
  builder.code += fmt::format(
      "fn scan(at: vec2<u32>, before: State, begin: u32, end: u32) {{\n  var s = before;\n"
      "  for (var j = begin; j < end; j++) {{\n    let next = join(s, state_at(at.x, j));\n"
      "    {}[at.y + j * {}] = bitcast<u32>(value({}));\n    s = next;\n  }}\n}}\n",
      builder.write(buffer_of(out)), to, flag(step, "exclusive") ? "s" : "next");
  const int64_t count = lines.count();
  if (size <= 64 || count >= 4096) {
    builder.groups(
        context, (count + 63) / 64, 64,
        fmt::format("  let i = index * 64u + thread;\n  if (i < {}) {{ scan(line(i), start(), 0u, {}); }}\n",
                    builder.number(count), n));
    return;
  }
  builder.code += "var<workgroup> states: array<State, 256>;\n";
  const std::string chunk = builder.number((size + 255) / 256);
  builder.groups(
      context, count, 256,
      fmt::format(
          "  let at = line(index);\n  let begin = min(thread * {0}, {1});\n  let end = min(begin + {0}, "
          "{1});\n"
          "  var own = start();\n  for (var j = begin; j < end; j++) {{ own = join(own, state_at(at.x, j)); "
          "}}\n"
          "  states[thread] = own;\n"
          "  for (var by = 1u; by < 256u; by *= 2u) {{\n    workgroupBarrier();\n"
          "    var s = states[thread];\n    if (thread >= by) {{ s = join(states[thread - by], s); }}\n"
          "    workgroupBarrier();\n    states[thread] = s;\n  }}\n  workgroupBarrier();\n"
          "  var before = start();\n  if (thread > 0u) {{ before = states[thread - 1u]; }}\n"
          "  scan(at, before, begin, end);\n",
          chunk, n));
}

}  // namespace

void scan(Context& context, const Step& step) {
  const Operand &x = step.inputs[0], &out = step.outputs[0];
  if (element_count(out.layout.shape) == 0) return;
  if (step.kernel == "scan_logcumsumexp" && !is_float(x.dtype))
    fail(ErrorKind::unsupported, "[logcumsumexp] needs floats, got {}", name_of(x.dtype));
  if (size_of(out.dtype) == 4) return scan_words(context, step, x, out);
  // Narrow elements share words: through a wide result.
  const DType wide = is_float(out.dtype) ? DType::f32 : out.dtype == DType::i8 ? DType::i32 : DType::u32;
  const Operand results{
      std::make_shared<WebgpuStorage>(context.scratch(element_count(out.layout.shape), "scan")), wide,
      out.layout};
  scan_words(context, step, x, results);
  convert_all(context, results, out.dtype, buffer_of(out));
}

}  // namespace weft::webgpu
