#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "llm/grammar/gbnf.h"

namespace weft {

/// A grammar as places between bytes. A set of characters has become steps over the bytes of their UTF-8, so
/// that a token may end inside a character.
struct GrammarProgram {
  enum class Op : uint8_t { bytes, call, split, end };
  struct Place {
    Op op;
    uint32_t first = 0;  ///< bytes: of steps; call: the rule; split: of targets
    uint32_t count = 0;  ///< bytes, split
    uint32_t next = 0;   ///< call
  };
  struct Step {
    uint8_t low, high;
    uint32_t next;
  };
  struct Rule {
    uint32_t start = 0;
    uint32_t rank = 0;      ///< above that of every rule that may begin with this one
    bool nullable = false;  ///< may be empty
  };

  std::vector<Place> places;
  std::vector<Step> steps;  ///< those of one place have no byte in common
  std::vector<uint32_t> targets;
  std::vector<Rule> rules;
  uint32_t root = 0;
  std::array<uint8_t, 256> byte_class = {};  ///< bytes that every place treats alike
  size_t byte_classes = 0;

  std::span<const Step> steps_of(const Place& place) const {
    return std::span(steps).subspan(place.first, place.count);
  }
  std::span<const uint32_t> targets_of(const Place& place) const {
    return std::span(targets).subspan(place.first, place.count);
  }
};

/// Throws ErrorKind::invalid for rules that are not defined or defined twice, left recursion, and grammars
/// that are too large with their repetitions written out.
GrammarProgram compile_grammar(std::span<const gbnf::Rule> rules);

}  // namespace weft
