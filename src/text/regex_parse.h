#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/code_set.h"

namespace weft::regex {

enum class Assertion {
  text_begin,
  text_end,
  text_end_or_newline,
  line_begin,
  line_end,
  word_edge,
  no_word_edge
};

/// A parsed pattern.
struct Node {
  enum class Kind { set, sequence, choice, repeat, atomic, ahead, behind, assertion };
  Kind kind = Kind::sequence;
  CodeSet set;
  std::vector<Node> parts;      ///< of repeat, atomic, ahead, behind: one
  int min = 0, max = kNoLimit;  ///< repeat
  bool lazy = false;            ///< repeat
  bool negative = false;        ///< ahead, behind
  Assertion assertion = {};

  static constexpr int kNoLimit = -1;
};

/// Throws ErrorKind::invalid, `[regex] PATTERN: ...`, for what is wrong, and ErrorKind::unsupported for what
/// this engine has not: back references, \K, \X, \G, conditions, subroutines.
Node parse(std::string_view pattern);

}  // namespace weft::regex
