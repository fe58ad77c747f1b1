#include "llm/grammar/program.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "llm/grammar/utf8_ranges.h"

namespace weft {
namespace {

using Op = GrammarProgram::Op;
using gbnf::Node;

constexpr size_t kMaxSize = 2'000'000;  // places, steps and targets: 24 MB

class Compiler {
 public:
  explicit Compiler(std::span<const gbnf::Rule> rules) : rules_(rules) {}

  GrammarProgram compile() {
    for (size_t i = 0; i < rules_.size(); ++i) {
      const auto [found, added] = numbers_.emplace(rules_[i].name, static_cast<uint32_t>(i));
      if (!added)
        fail(ErrorKind::invalid, "[grammar] line {}: '{}' is already defined in line {}", rules_[i].line,
             rules_[i].name, rules_[found->second].line);
    }
    const auto root = numbers_.find("root");
    if (root == numbers_.end()) fail(ErrorKind::invalid, "[grammar] there is no rule 'root'");
    program_.root = root->second;
    for (const gbnf::Rule& rule : rules_) {
      line_ = rule.line;
      const uint32_t end = add({.op = Op::end, .first = static_cast<uint32_t>(program_.rules.size())});
      program_.rules.push_back({.start = place(rule.body, end)});
      owners_.resize(program_.places.size(), static_cast<uint32_t>(program_.rules.size() - 1));
    }
    find_first_calls();
    rank_rules();
    find_byte_classes();
    return std::move(program_);
  }

 private:
  uint32_t add(const GrammarProgram::Place& place) {
    if (program_.places.size() + program_.steps.size() + program_.targets.size() > kMaxSize)
      fail(ErrorKind::invalid, "[grammar] line {}: too large with its repetitions written out", line_);
    program_.places.push_back(place);
    return static_cast<uint32_t>(program_.places.size() - 1);
  }

  uint32_t add_split(std::span<const uint32_t> targets) {
    const auto first = static_cast<uint32_t>(program_.targets.size());
    program_.targets.insert(program_.targets.end(), targets.begin(), targets.end());
    return add({.op = Op::split, .first = first, .count = static_cast<uint32_t>(targets.size())});
  }

  uint32_t add_bytes(std::span<const GrammarProgram::Step> steps) {
    const auto first = static_cast<uint32_t>(program_.steps.size());
    program_.steps.insert(program_.steps.end(), steps.begin(), steps.end());
    return add({.op = Op::bytes, .first = first, .count = static_cast<uint32_t>(steps.size())});
  }

  /// Where `node` begins when `next` follows it.
  uint32_t place(const Node& node, uint32_t next) {
    switch (node.kind) {
      case Node::Kind::text:
        for (auto byte = node.text.rbegin(); byte != node.text.rend(); ++byte) {
          const auto value = static_cast<uint8_t>(*byte);
          next = add_bytes(std::array{GrammarProgram::Step{value, value, next}});
        }
        return next;
      case Node::Kind::set: {
        const std::vector<Utf8Range> ranges = utf8_ranges(node.set.ranges());
        std::map<std::string, uint32_t> shared;
        return set_place(ranges, 0, next, shared);
      }
      case Node::Kind::rule: {
        const auto rule = numbers_.find(node.text);
        if (rule == numbers_.end())
          fail(ErrorKind::invalid, "[grammar] line {}: there is no rule '{}'", node.line, node.text);
        return add({.op = Op::call, .first = rule->second, .next = next});
      }
      case Node::Kind::sequence:
        for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) next = place(*part, next);
        return next;
      case Node::Kind::choice: {
        std::vector<uint32_t> targets;
        for (const Node& part : node.parts) targets.push_back(place(part, next));
        return add_split(targets);
      }
      case Node::Kind::repeat:
        return repeat_place(node, next);
    }
    return next;
  }

  uint32_t repeat_place(const Node& node, uint32_t next) {
    line_ = node.line;
    const Node& part = node.parts.front();
    uint32_t begin = next;
    if (node.max == Node::kNoLimit) {
      begin = add_split(std::array{next, next});
      const uint32_t body = place(part, begin);
      program_.targets[program_.places[begin].first] = body;
    } else {
      for (uint32_t i = node.min; i < node.max; ++i) {
        const uint32_t body = place(part, begin);
        if (body == begin) break;  // an empty group
        begin = add_split(std::array{body, next});
      }
    }
    for (uint32_t i = 0; i < node.min; ++i) {
      const uint32_t body = place(part, begin);
      if (body == begin) break;
      begin = body;
    }
    return begin;
  }

  /// Characters whose bytes before `depth` have been read. Equal rests become one place.
  uint32_t set_place(std::span<const Utf8Range> ranges, size_t depth, uint32_t next,
                     std::map<std::string, uint32_t>& shared) {
    std::string key;
    for (const Utf8Range& range : ranges)
      for (size_t i = depth; i < range.size; ++i)
        key += {static_cast<char>(range.size - i), static_cast<char>(range.bytes[i].low),
                static_cast<char>(range.bytes[i].high)};
    if (const auto found = shared.find(key); found != shared.end()) return found->second;

    std::vector<GrammarProgram::Step> steps;
    while (!ranges.empty()) {
      const ByteRange lead = ranges.front().bytes[depth];
      size_t count = 1;
      while (count < ranges.size() && ranges[count].bytes[depth] == lead) ++count;
      const bool last = ranges.front().size == depth + 1;
      steps.push_back(
          {lead.low, lead.high, last ? next : set_place(ranges.first(count), depth + 1, next, shared)});
      ranges = ranges.subspan(count);
    }
    return shared[key] = add_bytes(steps);
  }

  /// Which rules may be empty, and which calls may come first in their rule.
  void find_first_calls() {
    std::vector<bool> reached(program_.places.size());
    std::vector<std::vector<uint32_t>> waiting(program_.rules.size());  // calls, for their rule to be empty
    std::vector<uint32_t> todo;
    for (const GrammarProgram::Rule& rule : program_.rules) todo.push_back(rule.start);
    while (!todo.empty()) {
      const uint32_t at = todo.back();
      todo.pop_back();
      if (reached[at]) continue;
      reached[at] = true;
      const GrammarProgram::Place& place = program_.places[at];
      if (place.op == Op::split) {
        const auto targets = program_.targets_of(place);
        todo.insert(todo.end(), targets.begin(), targets.end());
      } else if (place.op == Op::call) {
        first_calls_.emplace_back(owners_[at], place.first);
        if (program_.rules[place.first].nullable)
          todo.push_back(place.next);
        else
          waiting[place.first].push_back(place.next);
      } else if (place.op == Op::end) {
        program_.rules[place.first].nullable = true;
        todo.insert(todo.end(), waiting[place.first].begin(), waiting[place.first].end());
        waiting[place.first].clear();
      }
    }
  }

  void rank_rules() {
    std::vector<std::vector<uint32_t>> called(rules_.size()), callers(rules_.size());
    std::vector<uint32_t> open(rules_.size());  // callers without a rank
    for (const auto& [caller, rule] : first_calls_) {
      called[caller].push_back(rule);
      callers[rule].push_back(caller);
      ++open[rule];
    }
    std::vector<uint32_t> order;
    for (uint32_t rule = 0; rule < open.size(); ++rule)
      if (open[rule] == 0) order.push_back(rule);
    for (size_t i = 0; i < order.size(); ++i) {
      program_.rules[order[i]].rank = static_cast<uint32_t>(i);
      for (uint32_t rule : called[order[i]])
        if (--open[rule] == 0) order.push_back(rule);
    }
    if (order.size() == rules_.size()) return;
    // From a rule that is left over, back from caller to caller, leads into the circle.
    uint32_t rule = 0;
    while (open[rule] == 0) ++rule;
    for (std::vector<bool> seen(rules_.size()); !seen[rule];) {
      seen[rule] = true;
      rule = *std::ranges::find_if(callers[rule], [&](uint32_t caller) { return open[caller] > 0; });
    }
    fail(ErrorKind::invalid, "[grammar] line {}: left recursion: '{}' may begin with itself",
         rules_[rule].line, rules_[rule].name);
  }

  void find_byte_classes() {
    std::array<bool, 257> begins = {};
    for (const GrammarProgram::Step& step : program_.steps)
      begins[step.low] = begins[static_cast<size_t>(step.high) + 1] = true;
    size_t number = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && begins[byte]) ++number;
      program_.byte_class[byte] = static_cast<uint8_t>(number);
    }
    program_.byte_classes = number + 1;
  }

  std::span<const gbnf::Rule> rules_;
  std::unordered_map<std::string_view, uint32_t> numbers_;
  GrammarProgram program_;
  std::vector<uint32_t> owners_;                            // of places: their rules
  std::vector<std::pair<uint32_t, uint32_t>> first_calls_;  // caller, called
  int line_ = 0;
};

}  // namespace

GrammarProgram compile_grammar(std::span<const gbnf::Rule> rules) {
  return Compiler(rules).compile();
}

}  // namespace weft
