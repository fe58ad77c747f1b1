#pragma once

#include <string>

namespace weft::cli {

struct TokenizeOptions {
  std::string model;
  bool jsonl = false;
  bool special = false;
  bool explain = false;
};

/// `weft tokenize`: standard input as one text, or with `jsonl` a JSON string per line; ids as JSON arrays,
/// without BOS and EOS. Exit status 0.
int tokenize(const TokenizeOptions& options);

}  // namespace weft::cli
