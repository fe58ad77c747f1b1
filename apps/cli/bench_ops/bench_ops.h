#pragma once

#include <string>

namespace weft::bench_ops {

struct Options {
  std::string device;  ///< --device; empty = not given
  std::string filter;  ///< glob over the names of the cases; empty = all
  bool json = false;
};

/// `weft bench-ops`: times named ops on the chosen device and prints GB/s, GFLOP/s and the share of what the
/// device reaches in the same run with a plain copy and with its best matmul.
int run(const Options& options);

}  // namespace weft::bench_ops
