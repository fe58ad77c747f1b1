#include "op_table/op_table.h"

#include <algorithm>
#include <array>

#include "array/node.h"
#include "backend/webgpu/builder.h"
#include "base/error.h"
#include "op_table/samples.h"
#include "weft/create.h"
#include "weft/grad.h"

namespace weft::op_table {
namespace {

constexpr std::array kDTypes = {DType::f32, DType::f16, DType::bf16, DType::i32,    DType::u32,
                                DType::i64, DType::u8,  DType::i8,   DType::boolean};

template <typename F>
bool works(const F& f) {
  try {
    f();
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool takes_values(const Sample& sample) {
  return std::ranges::any_of(sample.inputs, [](const Slot& s) { return s.kind == Slot::Kind::value; });
}

std::string list(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

/// Dtypes that the op takes, by running it on the CPU.
std::vector<DType> taken(const Op& op, const Sample& sample) {
  std::vector<DType> dtypes;
  for (const DType dtype : kDTypes)
    if (works([&] { eval(call_sample(op, sample, dtype)); })) dtypes.push_back(dtype);
  if (dtypes.empty()) fail(ErrorKind::invalid, "[ops] the sample of {} does not work", op.name);
  return dtypes;
}

std::string names_of(const std::vector<DType>& dtypes) {
  if (dtypes.size() == kDTypes.size()) return "all";
  if (dtypes.size() + 1 == kDTypes.size() && dtypes.back() != DType::boolean) return "all but bool";
  std::vector<std::string> names;
  for (const DType dtype : dtypes) names.emplace_back(name_of(dtype));
  return list(names);
}

bool is_on_gpu(const Node& node) {
  if (!node.op) return true;
  if (node.op->kind == OpKind::primitive && !webgpu::has_kernel(node.op->name) && !node.op->compose)
    return false;
  return std::ranges::all_of(node.inputs, [](const Array& x) { return !x || is_on_gpu(*x.node()); });
}

std::string devices(const Op& op, const Sample& sample, DType dtype) {
  const std::vector<Array> outputs = call_sample(op, sample, dtype);
  return std::ranges::all_of(outputs, [](const Array& y) { return is_on_gpu(*y.node()); }) ? "cpu webgpu"
                                                                                           : "cpu";
}

/// Inputs that have a gradient, counted from 0.
std::string gradient(const Op& op, const Sample& sample, DType dtype) {
  std::vector<std::string> names;
  const std::vector<Array> inputs = inputs_of(sample, dtype);
  std::vector<Array> outputs, grads;
  for (const Array& y : apply(op, inputs, sample.attrs))
    if (is_float(y.dtype())) outputs.push_back(y), grads.push_back(ones_like(y));
  if (outputs.empty() || op.stops_gradient) return "";
  for (size_t i = 0; i < inputs.size(); ++i)
    if (works([&] { vjp(outputs, grads, {inputs[i]}); })) names.push_back(std::to_string(i));
  return list(names);
}

std::string text_of(const AttrValue& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool truth) const { return truth ? "true" : "false"; }
    std::string operator()(int64_t number) const { return fmt::to_string(number); }
    std::string operator()(double number) const { return fmt::format("{:g}", number); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const std::vector<int64_t>& numbers) const {
      return fmt::format("[{}]", fmt::join(numbers, ","));
    }
  };
  return std::visit(Visitor{}, value);
}

std::string attributes(const Op& op) {
  std::vector<std::string> words;
  for (const AttrSpec& attr : op.attrs)
    words.push_back(attr.required ? fmt::format("`{}`", attr.name)
                                  : fmt::format("`{}`={}", attr.name, text_of(attr.fallback)));
  return list(words);
}

std::string inputs(const Op& op) {
  if (op.max_inputs < 0) return fmt::format("{} or more", op.min_inputs);
  return op.min_inputs == op.max_inputs ? fmt::to_string(op.min_inputs)
                                        : fmt::format("{} to {}", op.min_inputs, op.max_inputs);
}

constexpr std::string_view kHead = R"(# Ops

Made by `weft ops --markdown` from the registry, by trying; a test compares. An attribute without a default is required. *dtypes* are
those of the inputs that may have any; indices are i32, masks bool, keys u32. i64 is computed by the CPU only.
*gradient* lists the inputs that have one, counted from 0. What ops with two arrays make of different dtypes is in
[dtypes.md](dtypes.md).

| op | inputs | attributes | dtypes | devices | gradient |
|---|---|---|---|---|---|
)";
constexpr std::string_view kKernels = R"(
## Kernels

What the ops above are made of; every backend has each of them.

| kernel | inputs | attributes | gradient |
|---|---|---|---|
)";

}  // namespace

std::string markdown() {
  std::string text(kHead), kernels(kKernels);
  for (const Op* op : all_ops()) {
    const std::string call = fmt::format("| `{}` | {} | {} |", op->name, inputs(*op), attributes(*op));
    if (const std::optional<Sample> sample = sample_of(*op)) {
      const std::vector<DType> dtypes = taken(*op, *sample);
      text += fmt::format("{} {} | {} | {} |\n", call, takes_values(*sample) ? names_of(dtypes) : "",
                          devices(*op, *sample, dtypes[0]), gradient(*op, *sample, dtypes[0]));
    } else {
      kernels += fmt::format("{} {} |\n", call, op->gradient ? "yes" : "");
    }
  }
  return text + kernels;
}

int run(bool as_markdown) {
  if (as_markdown) {
    fmt::print("{}", markdown());
  } else {
    for (const Op* op : all_ops()) fmt::print("{}\n", op->name);
  }
  return 0;
}

}  // namespace weft::op_table
