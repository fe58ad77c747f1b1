#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/code_set.h"

namespace weft::gbnf {

struct Node {
  enum class Kind { text, set, rule, sequence, choice, repeat };
  static constexpr uint32_t kNoLimit = static_cast<uint32_t>(-1);

  Kind kind = Kind::sequence;
  int line = 0;
  std::string text;                  ///< text: UTF-8; rule: its name
  CodeSet set;                       ///< one character of it
  std::vector<Node> parts;           ///< repeat: one
  uint32_t min = 0, max = kNoLimit;  ///< repeat
};

struct Rule {
  std::string name;
  int line = 0;
  Node body;
};

/// A grammar in llama.cpp's notation (GBNF). Throws ErrorKind::invalid, `[grammar] line 3: ...`.
std::vector<Rule> parse(std::string_view grammar);

}  // namespace weft::gbnf
