#include <unordered_map>

#include "backend/webgpu/builder.h"
#include "base/error.h"

namespace weft::webgpu {
namespace {

/// Every primitive op that is not elementwise.
const std::unordered_map<std::string_view, Record>& table() {
  static const std::unordered_map<std::string_view, Record> kernels = {
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
      {"dequantize", dequantize},

      {"scan_cumsum", scan},
      {"scan_cumprod", scan},
      {"scan_cummax", scan},
      {"scan_cummin", scan},
      {"scan_logcumsumexp", scan},

      {"index_gather", gather},
      {"index_pick", index_select},
      {"scatter_write", scatter},
      {"scatter_accumulate", scatter},
      {"index_accumulate", scatter},
      {"search_sorted", search_sorted},
      {"sort_pairs", sort},

      {"random_bits", random_bits},
  };
  return kernels;
}

}  // namespace

Record find_kernel(std::string_view name) {
  const auto found = table().find(name);
  if (found == table().end()) fail(ErrorKind::unsupported, "[webgpu] there is no kernel '{}'", name);
  return found->second;
}

}  // namespace weft::webgpu
