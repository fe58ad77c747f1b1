#pragma once

#include <string>

namespace weft::cli {

struct EmbedOptions {
  std::string model;
  std::string device;
  bool jsonl = false;
};

/// `weft embed`: standard input as one text, or with `jsonl` a JSON string per line; vectors as JSON arrays.
/// Exit status 0.
int embed(const EmbedOptions& options);

}  // namespace weft::cli
