// Reductions. A rule folds elements into a State; who folds what depends on the shape:
//   thread:  one invocation per output          short rows, or columns that lie side by side
//   group:   one workgroup per output word      a tree in shared memory
//   pieces:  many workgroups per output         into states in scratch memory, which a second dispatch folds
#include <algorithm>
#include <bit>

#include "backend/fold_rows.h"
#include "backend/webgpu/builder.h"
#include "base/error.h"

namespace weft::webgpu {
namespace {

enum class Rule { sum, prod, max, min, any, all, argmax, argmin };

Rule rule_of(std::string_view kernel) {
  constexpr std::pair<std::string_view, Rule> kRules[] = {
      {"reduce_sum", Rule::sum},       {"reduce_prod", Rule::prod},     {"reduce_max", Rule::max},
      {"reduce_min", Rule::min},       {"reduce_any", Rule::any},       {"reduce_all", Rule::all},
      {"reduce_argmax", Rule::argmax}, {"reduce_argmin", Rule::argmin},
  };
  for (const auto& [name, rule] : kRules)
    if (name == kernel) return rule;
  fail(ErrorKind::unsupported, "[webgpu] there is no kernel '{}'", kernel);
}

/// One reduction: its rule, the outputs (kept) and the elements of each (reduced).
struct Plan {
  Rule rule;
  const Operand &x, &out;
  Walk kept, reduced;
  int64_t outputs, length;
  /// Of a workgroup. Where lanes are in step, one subgroup needs no barriers, which are slow on a CPU: the
  /// largest of 49,152 floats took 1 ms in workgroups of 256.
  int64_t threads = 256;
  bool lockstep = false;

  bool place() const { return rule == Rule::argmax || rule == Rule::argmin; }
  bool truth() const { return rule == Rule::any || rule == Rule::all; }
  /// What a state is made of; bool elements count as u32.
  std::string_view type() const {
    if (truth()) return "u32";
    return x.dtype == DType::boolean ? "u32" : lane_type(x.dtype);
  }
};

/// `State`, start(), state_of(x, position), join(a, b) and result(state) -> bits.
std::string rule_text(const Plan& plan) {
  const std::string_view t = plan.type();
  const bool real = t == "f32", largest = plan.rule == Rule::max || plan.rule == Rule::argmax;
  const std::string extreme = real         ? (largest ? "-weft_inf()" : "weft_inf()")
                              : t == "i32" ? (largest ? "-2147483647 - 1" : "2147483647")
                                           : (largest ? "0u" : "0xffffffffu");
  // Places are found by keys: numbers in the order of the values, the greater the better; of the same ones
  // the first place counts.
  if (plan.place()) {
    std::string key = "x";
    if (t == "i32") key = "bitcast<u32>(x) ^ 0x80000000u";
    if (real) key = "select(bits | 0x80000000u, ~bits, bits >= 0x80000000u)";
    if (!largest) key = "~(" + key + ")";
    if (real) key = fmt::format("select({}, 0xffffffffu, weft_isnan(x))", key);
    return fmt::format(
        "struct State {{ key: u32, place: u32 }}\n"
        "fn start() -> State {{ return State(0u, 0xffffffffu); }}\n"
        "fn state_of(x: {}, place: u32) -> State {{\n{}  return State({}, place);\n}}\n"
        "fn result(s: State) -> u32 {{ return s.place; }}\n"
        "fn join(a: State, b: State) -> State {{\n"
        "  let other = b.key > a.key || (b.key == a.key && b.place < a.place);\n"
        "  return State(select(a.key, b.key, other), select(a.place, b.place, other));\n}}\n",
        t, real ? "  let bits = select(bitcast<u32>(x), 0u, bitcast<u32>(x) << 1u == 0u);\n" : "", key);
  }
  std::string start, join;
  switch (plan.rule) {
    case Rule::sum:
      start = fmt::format("{}(0)", t), join = "a + b";
      break;
    case Rule::prod:
      start = fmt::format("{}(1)", t), join = "a * b";
      break;
    case Rule::any:
      start = "0u", join = "a | b";
      break;
    case Rule::all:
      start = "1u", join = "a & b";
      break;
    default:
      start = extreme, join = fmt::format("{}{}(a, b)", real ? "weft_" : "", largest ? "max" : "min");
  }
  std::string bits = encode(plan.out.dtype, "s");
  if (plan.out.dtype == DType::boolean) bits = "select(0u, 1u, s != 0u)";
  return fmt::format(
      "alias State = {0};\nfn start() -> State {{ return {1}; }}\nfn state_of(x: {0}, place: u32) -> State "
      "{{ return x; }}\n"
      "fn join(a: State, b: State) -> State {{ return {2}; }}\nfn result(s: State) -> u32 {{ return {3}; "
      "}}\n",
      t, start, join, bits);
}

std::string element_value(Builder& builder, const Plan& plan, std::string_view at) {
  const std::string x = builder.load(plan.x, at);
  if (plan.truth()) return "select(0u, 1u, " + convert(plan.x.dtype, DType::boolean, x) + ")";
  return plan.x.dtype == DType::boolean ? "select(0u, 1u, " + x + ")" : x;
}

/// fold(base, begin, end, stride): the state of elements begin, begin + stride ... of the output whose
/// elements start at `base`. In runs of 32, so that sums of floats lose little; of those several are loaded
/// before the first is needed, where invocations are no lanes of a CPU.
std::string fold_text(const Context& context, Builder& builder, const Plan& plan) {
  const int at_once = context.software ? 1 : 8;
  std::string loads, joins;
  for (int k = 0; k < at_once; ++k) {
    loads += fmt::format("      let s{0} = state_at(base, min(j + {0}u * stride, end - 1u));\n", k);
    joins += fmt::format("      if (j + {0}u * stride < end) {{ part = join(part, s{0}); }}\n", k);
  }
  return fmt::format(
      "fn state_at(base: u32, j: u32) -> State {{\n{0}  return state_of({1}, j);\n}}\n"
      "fn fold(base: u32, begin: u32, end: u32, stride: u32) -> State {{\n"
      "  var total = start();\n  var j = begin;\n"
      "  while (j < end) {{\n    var part = start();\n"
      "    for (var k = 0u; k < 32u && j < end; k += {2}u) {{\n{3}{4}      j += {2}u * stride;\n    }}\n"
      "    total = join(total, part);\n  }}\n  return total;\n}}\n",
      builder.unravel(plan.reduced, "j"), element_value(builder, plan, "base + at0"), at_once, loads, joins);
}

std::string base_text(Builder& builder, const Plan& plan) {
  return "fn base_of(i: u32) -> u32 {\n" + builder.unravel(plan.kept, "i") + "  return at0;\n}\n";
}

std::string tree_text(Builder& builder, const Plan& plan) {
  const auto used = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(plan.length)));
  return fmt::format(
      "var<workgroup> states: array<State, {0}>;\n"
      "fn tree(thread: u32, own: State) -> State {{\n"
      "  states[thread] = own;\n"
      "  for (var half = {1} / 2u; half > 0u; half /= 2u) {{\n    workgroupBarrier();\n"
      "    if (thread < half) {{ states[thread] = join(states[thread], states[thread + half]); }}\n  }}\n"
      "  workgroupBarrier();\n  let all = states[0];\n  workgroupBarrier();\n  return all;\n}}\n",
      plan.threads, builder.number(std::min(used, plan.threads)));
}

/// main of a kernel with one workgroup per word of the output: `fold` is an expression over `i` and `thread`.
std::string word_body(Builder& builder, const Plan& plan, std::string_view fold) {
  const auto per = static_cast<int64_t>(4 / size_of(plan.out.dtype));
  return fmt::format(
      "  var word = 0u;\n  for (var k = 0u; k < {0}u; k++) {{\n    let i = index * {0}u + k;\n"
      "    if (i < {1}) {{ word |= result(tree(thread, {2})) << (k * {3}u); }}\n  }}\n"
      "  if (thread == 0u) {{ {4}[index] = word; }}\n",
      per, builder.number(plan.outputs), fold, 32 / per, builder.write(buffer_of(plan.out)));
}

void by_thread(Context& context, const Plan& plan) {
  Builder builder("reduce_thread");
  builder.code =
      rule_text(plan) + fold_text(context, builder, plan) + base_text(builder, plan) +
      fmt::format("fn element(i: u32) -> Result {{ return Result(result(fold(base_of(i), 0u, {}, 1u))); }}\n",
                  builder.number(plan.length));
  builder.elements = plan.outputs * plan.length;
  builder.map(context, std::span(&plan.out, 1));
}

int64_t words(const Plan& plan) {
  const auto per = static_cast<int64_t>(4 / size_of(plan.out.dtype));
  return (plan.outputs + per - 1) / per;
}

void by_group(Context& context, const Plan& plan) {
  Builder builder("reduce_group");
  builder.code = rule_text(plan) + tree_text(builder, plan) + fold_text(context, builder, plan) +
                 base_text(builder, plan);
  const std::string fold =
      fmt::format("fold(base_of(i), thread, {}, {}u)", builder.number(plan.length), plan.threads);
  const std::string body = word_body(builder, plan, fold);
  builder.lockstep = plan.lockstep;
  builder.elements = plan.outputs * plan.length;
  builder.groups(context, words(plan), static_cast<int>(plan.threads), body);
}

void by_pieces(Context& context, const Plan& plan, int64_t pieces) {
  const int64_t size = (plan.length + pieces - 1) / pieces;
  const int words_of_state = plan.place() ? 2 : 1;
  const gpu::Buffer partial = context.scratch(plan.outputs * pieces * words_of_state, "partial");
  {
    Builder builder("reduce_pieces");
    builder.code = rule_text(plan) + tree_text(builder, plan) + fold_text(context, builder, plan) +
                   base_text(builder, plan);
    const std::string to = builder.write(partial), n = builder.number(pieces), chunk = builder.number(size);
    std::string body = fmt::format(
        "  let begin = index % {0} * {1};\n"
        "  let s = tree(thread, fold(base_of(index / {0}), begin + thread, min(begin + {1}, {2}), {3}u));\n",
        n, chunk, builder.number(plan.length), plan.threads);
    if (plan.place())
      body += fmt::format(
          "  if (thread == 0u) {{ {0}[2u * index] = s.key; {0}[2u * index + 1u] = s.place; "
          "}}\n",
          to);
    else
      body += fmt::format("  if (thread == 0u) {{ {}[index] = bitcast<u32>(s); }}\n", to);
    builder.lockstep = plan.lockstep;
    builder.groups(context, plan.outputs * pieces, static_cast<int>(plan.threads), body);
  }
  Builder builder("reduce_join");
  builder.code = rule_text(plan) + tree_text(builder, plan);
  const std::string source = builder.read(partial), n = builder.number(pieces);
  builder.code += plan.place()
                      ? fmt::format(
                            "fn piece(j: u32) -> State {{ return State({0}[2u * j], {0}[2u * j + 1u]); "
                            "}}\n",
                            source)
                      : fmt::format("fn piece(j: u32) -> State {{ return bitcast<{1}>({0}[j]); }}\n", source,
                                    plan.type());
  builder.code += fmt::format(
      "fn fold(i: u32, thread: u32) -> State {{\n  var total = start();\n"
      "  for (var j = thread; j < {0}; j += {1}u) {{ total = join(total, piece(i * {0} + j)); }}\n  return "
      "total;\n}}\n",
      n, plan.threads);
  const std::string body = word_body(builder, plan, "fold(i, thread)");
  builder.lockstep = plan.lockstep;
  builder.elements = plan.outputs * pieces;
  builder.groups(context, words(plan), static_cast<int>(plan.threads), body);
}

Fold fold_of(Rule rule) {
  switch (rule) {
    case Rule::sum:
      return Fold::sum;
    case Rule::prod:
      return Fold::prod;
    case Rule::max:
      return Fold::max;
    case Rule::min:
      return Fold::min;
    default:
      return Fold::none;
  }
}

/// A fold of floats as a program over rows, which has more forms.
void as_rows(Context& context, const Plan& plan, std::span<const int64_t> dims) {
  const FoldRows fold(plan.x.layout, plan.x.dtype, plan.out.dtype, fold_of(plan.rule), dims);
  rows(context, {.kernel = "rows",
                 .inputs = {{plan.x.storage, plan.x.dtype, fold.input}},
                 .outputs = {{plan.out.storage, plan.out.dtype, fold.output}},
                 .program = &fold.program});
}

}  // namespace

void reduce(Context& context, const Step& step) {
  const Operand &x = step.inputs[0], &out = step.outputs[0];
  const Shape& shape = x.layout.shape;
  Plan plan{rule_of(step.kernel), x, out, {}, {}, 1, 1};
  std::vector<int64_t> dims;
  if (!plan.place())
    dims = step.attrs->list("dims");
  else if (!shape.empty())
    dims = {step.attrs->integer("dim")};
  for (int64_t& d : dims) d = normalize_dim(step.kernel, d, shape.size());
  plan.kept.offsets = {x.layout.offset};
  plan.reduced.offsets = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool gone = std::ranges::find(dims, static_cast<int64_t>(d)) != dims.end();
    (gone ? plan.reduced : plan.kept).add(shape[d], {x.layout.strides[d]});
  }
  plan.outputs = element_count(out.layout.shape);
  plan.length = plan.reduced.count();
  if (plan.outputs == 0) return;
  if (plan.length == 0 && plan.rule != Rule::sum && plan.rule != Rule::prod && !plan.truth())
    fail(ErrorKind::invalid, "[{}] reduction over an empty dim", step.kernel.substr(7));

  const bool fold = is_float(x.dtype) && fold_of(plan.rule) != Fold::none;
  if (fold && !context.software && plan.length > 0) return as_rows(context, plan, dims);

  // Columns: neighbouring outputs read neighbouring elements, so threads of their own are fine.
  const bool columns =
      !plan.kept.dims.empty() && plan.kept.dims.back().strides[0] == 1 && plan.kept.dims.back().size >= 32;
  const bool small = context.is_small(plan.outputs * plan.length);
  plan.lockstep = context.software && !small && context.device.features().lockstep;
  if (plan.lockstep) plan.threads = context.device.features().subgroup_min;
  const int64_t most = plan.lockstep ? 32 : 512;  // workgroups that keep a device busy
  const int64_t pieces =
      std::min<int64_t>(plan.length / (4 * plan.threads), std::max<int64_t>(1, most / plan.outputs));
  if ((plan.length <= 64 && !context.leaves_idle(plan.outputs, plan.length)) ||
      (columns && plan.outputs >= 8192))
    by_thread(context, plan);
  else if (pieces > 1 && !small)
    by_pieces(context, plan, pieces);
  else
    by_group(context, plan);
}

}  // namespace weft::webgpu
