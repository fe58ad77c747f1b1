#include <unordered_map>

#include "backend/cpu/gemm.h"
#include "backend/cpu/primitives.h"
#include "base/error.h"

namespace weft::cpu {

namespace {

/// scatter with its "mode".
template <bool kAdd>
void scatter_mode(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                  const Attrs& attrs) {
  Attrs with_mode = attrs;
  with_mode.set("mode", std::string(kAdd ? "add" : "set"));
  scatter(pool, inputs, outputs, with_mode);
}

/// Every primitive op that is not elementwise, by family.
const std::unordered_map<std::string_view, Kernel>& table() {
  static const std::unordered_map<std::string_view, Kernel> kernels = {
      {"reduce_sum", reduce_sum},
      {"reduce_prod", reduce_prod},
      {"reduce_max", reduce_max},
      {"reduce_min", reduce_min},
      {"reduce_any", reduce_any},
      {"reduce_all", reduce_all},
      {"reduce_argmax", argmax},
      {"reduce_argmin", argmin},

      {"scan_cumsum", cumsum},
      {"scan_cumprod", cumprod},
      {"scan_cummax", cummax},
      {"scan_cummin", cummin},
      {"scan_logcumsumexp", logcumsumexp},

      {"index_gather", gather},
      {"index_pick", index_select},
      {"scatter_write", scatter_mode<false>},
      {"scatter_accumulate", scatter_mode<true>},
      {"index_accumulate", index_add},
      {"put_rows", put_rows},
      {"sort_pairs", sort},
      {"search_sorted", searchsorted},

      {"copy", copy},
      {"pad_constant", pad_constant},
      {"cat", cat},
      {"tril", tril},
      {"triu", triu},

      {"convolve", convolve},
      {"convolve_input", convolve_input},
      {"convolve_weight", convolve_weight},

      {"matmul_batched", matmul},
      {"quantize", quantize},
      {"dequantize", dequantize},
      {"repack", repack},
      {"dequantize_packed", dequantize_packed},
      {"qmatmul_packed", qmatmul_packed},
      {"activation_codes", activation_codes},
      {"qmatmul_codes", qmatmul_codes},
      {"expert_matmul", expert_matmul},

      {"random_bits", random_bits},
      {"attention", attention},
      {"attention_backward", attention_backward},
      {"cached_attention", cached_attention},
  };
  return kernels;
}

}  // namespace

bool has_kernel(std::string_view name) {
  return table().contains(name);
}

Kernel find_kernel(std::string_view name) {
  const auto found = table().find(name);
  if (found == table().end()) fail(ErrorKind::unsupported, "[cpu] there is no kernel '{}'", name);
  return found->second;
}

}  // namespace weft::cpu
