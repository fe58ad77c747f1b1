#include "text/regex.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "io/safetensors.h"
#include "text/regex_parse.h"
#include "text/utf8.h"

namespace weft {

using regex::Assertion;
using regex::Node;

class RegexCompiler {
 public:
  RegexCompiler(Regex& regex, std::string_view pattern) : regex_(regex), pattern_(pattern) {}

  void compile(const Node& node) {
    add(node);
    emit({.op = Regex::Op::accept});
  }

 private:
  using Op = Regex::Op;

  // Patterns of real tokenizers have below 1000 instructions and 100 splits. Memory for a search is
  // splits x bytes of text / 8.
  static constexpr size_t kMaxInstructions = 50'000;
  static constexpr uint32_t kMaxSplits = 1000;
  static constexpr uint32_t kMaxAtomicSplits =
      64;                                         // real ones have below 20; each is 4 bytes per byte of text
  static constexpr size_t kMaxNodes = 1'000'000;  // with each repetition counted: many may emit nothing
  static constexpr size_t kMaxWidth = 255;        // of a look-behind

  uint32_t here() const { return static_cast<uint32_t>(regex_.program_.size()); }

  uint32_t emit(Regex::Instruction instruction) {
    if (instruction.op == Op::split) {
      instruction.memo = regex_.splits_++;
      regex_.atomic_.push_back(in_atomic_ ? regex_.atomic_splits_++ : Regex::kNoAtomic);
    }
    if (regex_.program_.size() == kMaxInstructions || regex_.splits_ > kMaxSplits ||
        regex_.atomic_splits_ > kMaxAtomicSplits)
      too_large();
    regex_.program_.push_back(instruction);
    return here() - 1;
  }

  Regex::Instruction& at(uint32_t index) { return regex_.program_[index]; }

  [[noreturn]] void too_large() const {
    fail(ErrorKind::unsupported, "[regex] '{}' is too large", one_line(pattern_));
  }

  void add(const Node& node) {
    if (++nodes_ > kMaxNodes) too_large();
    switch (node.kind) {
      case Node::Kind::set:
        emit({.op = Op::set, .x = set(node.set)});
        break;
      case Node::Kind::sequence:
        for (const Node& part : node.parts) add(part);
        break;
      case Node::Kind::choice:
        add_choice(node.parts, [&](const Node& part) { add(part); });
        break;
      case Node::Kind::repeat:
        add_repeat(node);
        break;
      case Node::Kind::atomic:
        add_body(node.parts[0], {.op = Op::atomic});
        break;
      case Node::Kind::ahead:
        add_body(node.parts[0], {.op = Op::ahead, .negative = node.negative});
        break;
      case Node::Kind::behind:
        add_behind(node);
        break;
      case Node::Kind::assertion:
        emit({.op = Op::assertion, .x = static_cast<uint32_t>(node.assertion)});
        break;
    }
  }

  uint32_t set(const CodeSet& wanted) {
    const auto found = std::ranges::find(regex_.sets_, wanted);
    const auto index = static_cast<uint32_t>(found - regex_.sets_.begin());
    if (found == regex_.sets_.end()) regex_.sets_.push_back(wanted);
    return index;
  }

  template <typename Add>
  void add_choice(const std::vector<Node>& parts, const Add& add_part) {
    std::vector<uint32_t> exits;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const uint32_t split = emit({.op = Op::split});
      at(split).x = here();
      add_part(parts[i]);
      exits.push_back(emit({.op = Op::jump}));
      at(split).y = here();
    }
    add_part(parts.back());
    for (uint32_t exit : exits) at(exit).x = here();
  }

  void add_repeat(const Node& node) {
    const Node& body = node.parts[0];
    for (int i = 0; i < node.min; ++i) add(body);
    std::vector<uint32_t> splits;  // each may leave the loop
    const auto begin_pass = [&] {
      splits.push_back(emit({.op = Op::split}));
      (node.lazy ? at(splits.back()).y : at(splits.back()).x) = here();
      add(body);
    };
    if (node.max == Node::kNoLimit) {
      begin_pass();
      emit({.op = Op::jump, .x = splits.back()});
    } else {
      for (int i = node.min; i < node.max; ++i) begin_pass();
    }
    for (uint32_t split : splits) (node.lazy ? at(split).x : at(split).y) = here();
  }

  void add_body(const Node& body, const Regex::Instruction& instruction) {
    const uint32_t index = emit(instruction);
    at(index).x = here();
    const bool outer = std::exchange(in_atomic_, instruction.op == Op::atomic);
    add(body);
    in_atomic_ = outer;
    emit({.op = Op::accept});
    at(index).y = here();
  }

  /// Look-behind steps back and looks ahead, so each alternative must have one width.
  void add_behind(const Node& node) {
    const bool choice = node.parts[0].kind == Node::Kind::choice;
    const std::vector<Node>& alternatives = choice ? node.parts[0].parts : node.parts;
    const auto add_look = [&](const Node& body) {
      add_body(body,
               {.op = Op::ahead, .negative = node.negative, .back = static_cast<uint32_t>(width(body))});
    };
    if (node.negative)
      std::ranges::for_each(alternatives, add_look);  // none of them may be there
    else
      add_choice(alternatives, add_look);
  }

  size_t width(const Node& node) const {
    size_t result = 0;
    switch (node.kind) {
      case Node::Kind::set:
        return 1;
      case Node::Kind::sequence:
        for (const Node& part : node.parts) result += width(part);
        break;
      case Node::Kind::choice:
        result = width(node.parts[0]);
        for (size_t i = 1; i < node.parts.size(); ++i)
          if (width(node.parts[i]) != result) no_width();
        break;
      case Node::Kind::repeat:
        if (node.min != node.max) no_width();
        result = static_cast<size_t>(node.min) * width(node.parts[0]);
        break;
      case Node::Kind::atomic:
        return width(node.parts[0]);
      default:
        return 0;
    }
    if (result > kMaxWidth) no_width();
    return result;
  }

  [[noreturn]] void no_width() const {
    fail(ErrorKind::unsupported, "[regex] '{}': a look-behind whose length varies is not supported",
         one_line(pattern_));
  }

  Regex& regex_;
  std::string_view pattern_;
  size_t nodes_ = 0;
  bool in_atomic_ = false;  // the innermost body around is an atomic group's
};

Regex::Regex(std::string_view pattern) {
  RegexCompiler(*this, pattern).compile(regex::parse(pattern));
}

void RegexSearch::start(std::string_view text) {
  text_ = text;
  from_ = 0;
  last_end_ = kNone;
  tried_.assign((text.size() + 1) * regex_.splits_, false);
  proven_.clear();
  ends_.clear();
}

std::optional<Regex::Match> RegexSearch::next() {
  while (from_ <= text_.size()) {
    const size_t begin = from_;
    const size_t end = run(0, begin, Keep::nothing);
    if (end == kNone || (end == begin && begin == last_end_)) {
      from_ = begin < text_.size() ? utf8::next_position(text_, begin) : begin + 1;
      continue;
    }
    from_ = last_end_ = end;
    // A state that failed because it came back to one on the path at the same place may succeed next time.
    const auto here = tried_.begin() + static_cast<ptrdiff_t>(end * regex_.splits_);
    std::fill(here, here + regex_.splits_, false);
    return Regex::Match{begin, end};
  }
  return std::nullopt;
}

size_t RegexSearch::end_index(size_t state) const {
  return state / regex_.splits_ * regex_.atomic_splits_ + regex_.atomic_[state % regex_.splits_];
}

/// The end of the match at `pos` of the program at `at`; kNone when there is none.
size_t RegexSearch::run(uint32_t at, size_t pos, Keep keep) {
  constexpr size_t kLongestEnd = std::numeric_limits<uint32_t>::max();
  const size_t first_alternative = alternatives_.size(), first_path = path_.size();
  const auto finish = [&](size_t end) {
    for (size_t i = first_path; i < path_.size() && end != kNone; ++i) {
      tried_[path_[i]] = false;
      if (keep == Keep::fact) proven_[path_[i]] = true;
      if (keep == Keep::end && end < kLongestEnd) ends_[end_index(path_[i])] = static_cast<uint32_t>(end + 1);
    }
    alternatives_.resize(first_alternative);
    path_.resize(first_path);
    return end;
  };
  for (;;) {
    const Regex::Instruction& instruction = regex_.program_[at];
    bool fits = true;
    switch (instruction.op) {
      case Regex::Op::set: {
        size_t behind = pos;
        fits = pos < text_.size() && regex_.sets_[instruction.x].contains(utf8::next(text_, behind));
        if (fits) pos = behind;
        ++at;
        break;
      }
      case Regex::Op::split: {
        const size_t state = pos * regex_.splits_ + instruction.memo;
        if (keep == Keep::fact) {
          if (proven_.empty()) proven_.resize(tried_.size());
          if (proven_[state]) return finish(pos);
        } else if (keep == Keep::end) {
          if (ends_.empty()) ends_.resize((text_.size() + 1) * regex_.atomic_splits_);
          if (const uint32_t known = ends_[end_index(state)]; known > 0) return finish(known - 1);
        }
        fits = !tried_[state];
        if (!fits) break;
        tried_[state] = true;
        path_.push_back(state);
        alternatives_.push_back({instruction.y, pos, path_.size()});
        at = instruction.x;
        break;
      }
      case Regex::Op::jump:
        at = instruction.x;
        break;
      case Regex::Op::ahead:
        fits = looks_right(instruction, pos) != instruction.negative;
        at = instruction.y;
        break;
      case Regex::Op::atomic: {
        const size_t end = run(instruction.x, pos, Keep::end);
        fits = end != kNone;
        pos = end;
        at = instruction.y;
        break;
      }
      case Regex::Op::assertion:
        fits = holds(instruction, pos);
        ++at;
        break;
      case Regex::Op::accept:
        return finish(pos);
    }
    if (fits) continue;
    if (alternatives_.size() == first_alternative) return finish(kNone);
    at = alternatives_.back().at;
    pos = alternatives_.back().pos;
    path_.resize(alternatives_.back().path);  // what was tried since then has failed and stays marked
    alternatives_.pop_back();
  }
}

bool RegexSearch::looks_right(const Regex::Instruction& instruction, size_t pos) {
  for (uint32_t i = 0; i < instruction.back; ++i) {
    if (pos == 0) return false;
    utf8::previous(text_, pos);
  }
  return run(instruction.x, pos, Keep::fact) != kNone;
}

bool RegexSearch::holds(const Regex::Instruction& instruction, size_t pos) const {
  static const CodeSet words = CodeSet::words_alone();
  const size_t size = text_.size();
  const auto word_edge = [&] {
    size_t before = pos, behind = pos;
    const bool left = pos > 0 && words.contains(utf8::previous(text_, before));
    const bool right = pos < size && words.contains(utf8::next(text_, behind));
    return left != right;
  };
  switch (static_cast<Assertion>(instruction.x)) {
    case Assertion::text_begin:
      return pos == 0;
    case Assertion::text_end:
      return pos == size;
    case Assertion::text_end_or_newline:
      return pos == size || (pos + 1 == size && text_[pos] == '\n');
    case Assertion::line_begin:
      return pos == 0 || (pos < size && text_[pos - 1] == '\n');
    case Assertion::line_end:
      return pos == size || text_[pos] == '\n';
    case Assertion::word_edge:
      return word_edge();
    case Assertion::no_word_edge:
      return !word_edge();
  }
  return false;
}

}  // namespace weft
