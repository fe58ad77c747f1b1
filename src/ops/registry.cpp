#include <algorithm>
#include <map>

#include "array/node.h"
#include "backend/backend.h"
#include "base/error.h"
#include "ops/op.h"
#include "weft/ops.h"

namespace weft {
namespace {

const std::map<std::string, Op, std::less<>>& registry() {
  static const auto rows = [] {
    std::map<std::string, Op, std::less<>> all;
    for (auto family : {elementwise_ops, movement_ops, reduction_ops, indexing_ops, matmul_ops, quant_ops,
                        creation_ops, nn_ops, attention_ops, conv_ops, loss_ops, random_ops})
      for (Op& op : family()) {
        std::string name = op.name;
        all.emplace(std::move(name), std::move(op));
      }
    return all;
  }();
  return rows;
}

Attrs complete(const Op& op, Attrs attrs) {
  for (const auto& [name, value] : attrs.values())
    if (std::ranges::none_of(op.attrs, [&](const AttrSpec& spec) { return spec.name == name; }))
      fail(ErrorKind::invalid, "[{}] there is no attribute '{}'", op.name, name);
  for (const AttrSpec& spec : op.attrs) {
    if (attrs.has(spec.name)) continue;
    if (spec.required) fail(ErrorKind::invalid, "[{}] attribute '{}' is missing", op.name, spec.name);
    attrs.set(spec.name, spec.fallback);
  }
  return attrs;
}

Device common_device(const Op& op, const std::vector<Array>& inputs, const Device& otherwise) {
  const Array* first = nullptr;
  for (const Array& input : inputs) {
    if (!input) continue;
    if (!first) first = &input;
    if (!(input.device() == first->device()))
      fail(ErrorKind::invalid, "[{}] inputs live on {} and on {}; use to_device", op.name,
           first->device().name(), input.device().name());
  }
  return first ? first->device() : otherwise;
}

/// The op that the user called, while the ops that it is made of are recorded.
thread_local const Op* asked = nullptr;

struct Asked {
  bool outermost = !asked;
  explicit Asked(const Op& op) {
    if (outermost) asked = &op;
  }
  ~Asked() {
    if (outermost) asked = nullptr;
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
};

/// Converts inputs to the dtype that holds all of them.
void promote_inputs(std::span<Array> inputs) {
  DType common = inputs[0].dtype();
  for (const Array& input : inputs) common = promote(common, input.dtype());
  for (Array& input : inputs) input = as(input, common);
}

}  // namespace

const Op& find_op(std::string_view name) {
  const auto found = registry().find(name);
  if (found == registry().end()) fail(ErrorKind::invalid, "[ops] there is no op '{}'", name);
  return found->second;
}

std::vector<const Op*> all_ops() {
  std::vector<const Op*> ops;
  for (const auto& [name, op] : registry()) ops.push_back(&op);
  return ops;
}

std::vector<Array> apply(const Op& op, std::vector<Array> inputs, Attrs given, const Device& on) {
  const Asked scope(op);
  const auto count = static_cast<int>(inputs.size());
  if (count < op.min_inputs || (op.max_inputs >= 0 && count > op.max_inputs))
    fail(ErrorKind::invalid, "[{}] takes {}{} inputs, {} were given", op.name, op.min_inputs,
         op.max_inputs < 0               ? " or more"
         : op.max_inputs > op.min_inputs ? fmt::format(" to {}", op.max_inputs)
                                         : "",
         count);
  for (int i = 0; i < (op.max_inputs < 0 ? count : op.min_inputs); ++i)
    if (!inputs[static_cast<size_t>(i)]) fail(ErrorKind::invalid, "[{}] input {} is missing", op.name, i);
  const Attrs attrs = complete(op, std::move(given));
  if (op.promotes_from >= 0) promote_inputs(std::span(inputs).subspan(static_cast<size_t>(op.promotes_from)));
  const Device device = common_device(op, inputs, on);
  if (op.kind == OpKind::composed) return op.compose({op, inputs, attrs, device});

  const std::vector<OutputSpec> specs = op.infer({op, inputs, attrs, device});
  for (const OutputSpec& spec : specs) check_dtype(asked->name, spec.dtype, device);
  if (op.compose && !device.backend().has_kernel(op.name)) return op.compose({op, inputs, attrs, device});
  auto node = std::make_shared<Node>(&op, attrs, std::move(inputs), device);
  node->asked = asked;
  std::vector<Array> outputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    node->outputs.push_back({specs[i].shape, specs[i].dtype});
    outputs.emplace_back(node, i);
  }
  return outputs;
}

std::vector<Array> apply(std::string_view op, std::vector<Array> inputs, Attrs attrs, const Device& on) {
  return apply(find_op(op), std::move(inputs), std::move(attrs), on);
}

Array call(std::string_view op, std::vector<Array> inputs, Attrs attrs, const Device& on) {
  return apply(op, std::move(inputs), std::move(attrs), on).at(0);
}

}  // namespace weft
