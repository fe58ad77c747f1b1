#pragma once

#include <string>

namespace weft::quantize {

struct Options {
  std::string in, out, type;
  std::string importance;  ///< a file
  bool pure = false;
  bool requantize = false;
};

/// `weft quantize IN OUT TYPE`: a GGUF file with smaller weights, and a table of what became of them. Exit
/// status 0.
int run(const Options& options);

}  // namespace weft::quantize
