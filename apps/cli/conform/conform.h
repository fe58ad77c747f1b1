#pragma once

#include <string>
#include <vector>

namespace weft::conform {

struct Options {
  std::vector<std::string> suites;  ///< files
  std::string device;               ///< --device; empty = not given
  std::string filter;               ///< glob over case names; empty = all
};

/// `weft conform`: runs the suites, prints one line per failure and per reason to skip, and closes with
/// `N passed, N failed, N skipped`. Exit status 0 when nothing failed.
int run(const Options& options);

}  // namespace weft::conform
