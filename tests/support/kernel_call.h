#pragma once

#include <algorithm>

#include "array/node.h"
#include "backend/backend.h"
#include "ops/op.h"

namespace weft::test {

/// A call as a step: apply() would give a software adapter the composed form.
struct KernelCall {
  Step step;
  std::vector<Array> results;

  explicit KernelCall(const OpCall& call) : step{.kernel = call.op.name, .attrs = &call.attrs} {
    for (const Array& input : call.inputs) {
      if (input) eval(input);
      step.inputs.push_back(input ? Operand{value_of(input).storage, input.dtype(), value_of(input).layout}
                                  : Operand{});
    }
    const auto node = std::make_shared<Node>(nullptr, Attrs(), std::vector<Array>(), call.device);
    for (const OutputSpec& spec : call.op.infer(call)) {
      const auto bytes = static_cast<uint64_t>(element_count(spec.shape)) * size_of(spec.dtype);
      const Layout layout = Layout::contiguous(spec.shape);
      node->outputs.push_back(
          {spec.shape, spec.dtype, call.device.backend().alloc(bytes, call.op.name), layout});
      step.outputs.push_back({node->outputs.back().storage, spec.dtype, layout});
      results.emplace_back(node, results.size());
    }
  }

  std::vector<StoragePtr> storages() const {
    std::vector<StoragePtr> all;
    for (const auto* operands : {&step.inputs, &step.outputs})
      for (const Operand& operand : *operands)
        if (operand.storage && std::ranges::find(all, operand.storage) == all.end())
          all.push_back(operand.storage);
    return all;
  }
};

}  // namespace weft::test
