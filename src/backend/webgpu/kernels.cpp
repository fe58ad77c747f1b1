#include <unordered_map>

#include "backend/webgpu/builder.h"
#include "backend/webgpu/matmul.h"
#include "backend/webgpu/qmatmul.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::webgpu {
namespace {

/// Fused programs and every primitive op.
using Record = void (*)(Context& context, const Step& step);

const std::unordered_map<std::string_view, Record>& table() {
  static const std::unordered_map<std::string_view, Record> kernels = {
      {"elementwise", elementwise},
      {"rows", rows},

      {"copy", copy},
      {"pad_constant", pad_constant},
      {"cat", cat},
      {"tril", tril},
      {"triu", triu},

      {"reduce_sum", reduce},
      {"reduce_prod", reduce},
      {"reduce_max", reduce},
      {"reduce_min", reduce},
      {"reduce_any", reduce},
      {"reduce_all", reduce},
      {"reduce_argmax", reduce},
      {"reduce_argmin", reduce},

      {"matmul_batched", matmul},
      {"quantize", quantize},
      {"dequantize", dequantize},
      {"repack", repack},
      {"dequantize_packed", dequantize_packed},
      {"qmatmul_packed", qmatmul},
      {"qmatmul_codes", qmatmul},
      {"qmatmul_halves", qmatmul_halves},
      {"activation_codes", activation_codes},
      {"expert_matmul", expert_matmul},

      {"attention", attention},
      {"attention_backward", attention_backward},
      {"cached_attention", cached_attention},

      {"scan_cumsum", scan},
      {"scan_cumprod", scan},
      {"scan_cummax", scan},
      {"scan_cummin", scan},
      {"scan_logcumsumexp", scan},

      {"index_gather", gather},
      {"index_pick", index_select},
      {"scatter_write", scatter},
      {"put_rows", put_rows},
      {"scatter_accumulate", scatter},
      {"index_accumulate", scatter},
      {"search_sorted", search_sorted},
      {"sort_pairs", sort},

      {"random_bits", random_bits},
  };
  return kernels;
}

bool is_product(const Step& step) {
  return step.kernel == "matmul_batched" || step.kernel == "qmatmul_halves" ||
         ((step.kernel == "qmatmul_codes" || step.kernel == "qmatmul_packed") &&
          step.outputs[0].dtype == DType::f32);
}

}  // namespace

bool has_kernel(std::string_view name) {
  return table().contains(name);
}

void record(Context& context, const Step& step) {
  const auto found = table().find(step.kernel);
  if (found == table().end()) fail(ErrorKind::unsupported, "[webgpu] there is no kernel '{}'", step.kernel);
  for (const Operand& operand : step.inputs)
    if (operand.storage) check_operand(step.kernel, operand);
  for (const Operand& operand : step.outputs) check_operand(step.kernel, operand);
  if (!step.program || step.kernel == "elementwise" || step.kernel == "rows" ||
      (is_product(step) && takes_epilogue(step)))
    return found->second(context, step);

  // The kernel, then its epilogue on what it made.
  const size_t own = step.inputs.size() - (step.program->loads.size() - 1);
  const DType dtype = step.program->loads[0];
  const Shape& shape = step.outputs[0].layout.shape;
  const auto words = (element_count(shape) * static_cast<int64_t>(size_of(dtype)) + 3) / 4;
  const Operand made{std::make_shared<WebgpuStorage>(context.scratch(words, "product")), dtype,
                     Layout::contiguous(shape)};
  found->second(context, {.kernel = step.kernel,
                          .inputs = {step.inputs.begin(), step.inputs.begin() + static_cast<int64_t>(own)},
                          .outputs = {made},
                          .attrs = step.attrs});
  Step epilogue{.kernel = "elementwise", .inputs = {made}, .outputs = step.outputs, .program = step.program};
  epilogue.inputs.insert(epilogue.inputs.end(), step.inputs.begin() + static_cast<int64_t>(own),
                         step.inputs.end());
  elementwise(context, epilogue);
}

void record_steps(Context& context, std::span<const Step> steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    context.next_step();
    context.behind = steps.subspan(i + 1);
    record(context, steps[i]);
  }
}

}  // namespace weft::webgpu
