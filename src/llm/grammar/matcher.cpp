#include "llm/grammar/matcher.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace weft {
namespace {

// What one call may cost: an item 1, a state its row of steps, a frame kFrameWork. The worst of the grammars
// that were made to be slow took 0.9 s for a set of 152,000 tokens, and 73 MB.
constexpr size_t kMaxWork = 10'000'000;
constexpr size_t kFrameWork = 20;
constexpr size_t kMaxBytes = 64 << 20;  // remembered

uint64_t item(uint32_t place, uint32_t frame) {
  return static_cast<uint64_t>(place) << 32 | frame;
}
uint32_t place_of(uint64_t item) {
  return static_cast<uint32_t>(item >> 32);
}
uint32_t frame_of(uint64_t item) {
  return static_cast<uint32_t>(item);
}

}  // namespace

size_t ListStore::Hash::operator()(const List& list) const {
  uint64_t hash = list.size();
  for (uint64_t x : list) hash = (hash ^ x ^ x >> 29) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 32;
}

uint32_t ListStore::id_of(List list) {
  const auto [at, added] = ids_.try_emplace(std::move(list), static_cast<uint32_t>(lists_.size()));
  if (added) {
    lists_.push_back(&at->first);
    bytes_ += 100 + at->first.size() * sizeof(uint64_t);
  }
  return at->second;
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<const GrammarProgram> program,
                               std::shared_ptr<const TokenTrie> tokens)
    : program_(std::move(program)), tokens_(std::move(tokens)), calls_(program_->rules.size()) {
  frames_.id_of({});  // kBottom
  add_state({});      // kDead
  start_ = make_state(std::array{item(program_->rules[program_->root].start, kBottom)});
}

std::unique_lock<std::mutex> GrammarMatcher::lock() {
  std::unique_lock<std::mutex> held(mutex_);
  spent_ = 0;
  return held;
}

void GrammarMatcher::spend(size_t work) {
  spent_ += work;
  if (spent_ > kMaxWork)
    fail(ErrorKind::invalid, "[grammar] too ambiguous: there are too many ways to read a text");
}

void GrammarMatcher::push(uint32_t place, uint32_t frame) {
  if (seen_.insert(item(place, frame)).second) todo_.push_back(item(place, frame));
}

void GrammarMatcher::add_call(uint32_t rule, uint32_t next, uint32_t frame) {
  std::vector<Item>& behind = calls_[rule];
  if (behind.empty()) {
    called_.push_back(rule);
    std::ranges::push_heap(called_, std::greater(), [&](uint32_t r) { return program_->rules[r].rank; });
  }
  // A call at the end of a rule returns to where the rule would: a list written as right recursion does not
  // grow the stack.
  if (program_->places[next].op == GrammarProgram::Op::end && frame != kBottom) {
    const ListStore::List& outer = frames_[frame];
    spend(outer.size());
    behind.insert(behind.end(), outer.begin(), outer.end());
  } else {
    behind.push_back(item(next, frame));
  }
}

/// From the items in todo_ to all that can be reached without a byte. `called_here`: their rules began at
/// this byte. Such a rule ends here only where it is empty, and then its call has been stepped over already.
void GrammarMatcher::follow(bool called_here) {
  while (!todo_.empty()) {
    const Item at = todo_.back();
    todo_.pop_back();
    spend(1);
    const uint32_t frame = frame_of(at);
    const GrammarProgram::Place& place = program_->places[place_of(at)];
    switch (place.op) {
      case GrammarProgram::Op::bytes:
        if (place.count > 0) items_.push_back(at);
        break;
      case GrammarProgram::Op::split:
        for (uint32_t target : program_->targets_of(place)) push(target, frame);
        break;
      case GrammarProgram::Op::call:
        add_call(place.first, place.next, frame);
        if (program_->rules[place.first].nullable) push(place.next, frame);
        break;
      case GrammarProgram::Op::end:
        if (called_here) break;
        if (frame == kBottom) items_.push_back(at);
        for (Item outer : frames_[frame]) push(place_of(outer), frame_of(outer));
        break;
    }
  }
}

GrammarMatcher::State GrammarMatcher::make_state(std::span<const Item> begin) {
  todo_.clear(), items_.clear(), seen_.clear();
  for (uint32_t rule : called_) calls_[rule].clear();  // of a call that was given up
  called_.clear();

  for (Item at : begin) push(place_of(at), frame_of(at));
  follow(false);
  // All calls of a rule come before its frame is made: only rules of lower rank may begin with it.
  const auto rank = [&](uint32_t rule) { return program_->rules[rule].rank; };
  while (!called_.empty()) {
    std::ranges::pop_heap(called_, std::greater(), rank);
    const uint32_t rule = called_.back();
    std::vector<Item>& behind = calls_[rule];
    std::ranges::sort(behind);
    const auto doubles = std::ranges::unique(behind);
    spend(kFrameWork);
    const uint32_t frame = frames_.id_of({behind.begin(), doubles.begin()});
    behind.clear();
    called_.pop_back();
    push(program_->rules[rule].start, frame);
    follow(true);
  }
  std::ranges::sort(items_);
  return add_state(items_);
}

GrammarMatcher::State GrammarMatcher::add_state(ListStore::List items) {
  const State state = states_.id_of(std::move(items));
  if (state < facts_.size()) return state;
  const bool may_end = std::ranges::any_of(
      states_[state], [&](Item at) { return program_->places[place_of(at)].op == GrammarProgram::Op::end; });
  facts_.push_back({.may_end = may_end});
  steps_.resize(facts_.size() * program_->byte_classes, kUnknown);
  return state;
}

GrammarMatcher::State GrammarMatcher::make_step(State state, uint8_t byte) {
  std::vector<Item> reached;
  for (Item at : states_[state]) {
    const GrammarProgram::Place& place = program_->places[place_of(at)];
    if (place.op != GrammarProgram::Op::bytes) continue;
    for (const GrammarProgram::Step& step : program_->steps_of(place))
      if (byte >= step.low && byte <= step.high) reached.push_back(item(step.next, frame_of(at)));
  }
  spend(program_->byte_classes + states_[state].size());
  const State next = reached.empty() ? kDead : make_state(reached);
  steps_[state * program_->byte_classes + program_->byte_class[byte]] = next;
  return next;
}

GrammarMatcher::State GrammarMatcher::walk(State state, std::string_view bytes) {
  for (char byte : bytes) state = step(state, static_cast<uint8_t>(byte));
  return state;
}

std::shared_ptr<const TokenMask> GrammarMatcher::allowed(State state) {
  if (facts_[state].mask) return facts_[state].mask;
  auto mask = std::make_shared<TokenMask>(tokens_->size());
  std::vector<State> path(tokens_->max_depth() + 1);  // by depth
  path[0] = state;
  const std::vector<TokenTrie::Node>& nodes = tokens_->nodes();
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const State next = step(path[node.depth - 1U], node.byte);
    if (next == kDead) {
      i = node.end;
      continue;
    }
    path[node.depth] = next;
    for (TokenId id = node.token; id != kNoToken; id = tokens_->twin(id)) mask->set(id);
    ++i;
  }
  if (may_end(state))
    for (TokenId id : tokens_->ends()) mask->set(id);
  ++masks_;
  return facts_[state].mask = mask;
}

bool GrammarMatcher::is_full() const {
  return frames_.bytes() + states_.bytes() + steps_.size() * sizeof(State) + masks_ * tokens_->size() / 8 >
         kMaxBytes;
}

std::pair<std::shared_ptr<GrammarMatcher>, GrammarMatcher::State> GrammarMatcher::restarted(
    State state) const {
  auto fresh = std::make_shared<GrammarMatcher>(program_, tokens_);
  // A frame refers to older ones only: from the newest to the oldest all that are needed are found, and then
  // made anew the other way round.
  std::vector<uint32_t> numbers(frames_.size());
  std::vector<bool> needed(frames_.size());
  for (Item at : states_[state]) needed[frame_of(at)] = true;
  for (size_t frame = frames_.size(); frame-- > 0;)
    if (needed[frame])
      for (Item at : frames_[static_cast<uint32_t>(frame)]) needed[frame_of(at)] = true;
  const auto renumbered = [&](const ListStore::List& list) {
    ListStore::List result;
    for (Item at : list) result.push_back(item(place_of(at), numbers[frame_of(at)]));
    std::ranges::sort(result);
    return result;
  };
  for (size_t frame = 0; frame < frames_.size(); ++frame)
    if (needed[frame])
      numbers[frame] = fresh->frames_.id_of(renumbered(frames_[static_cast<uint32_t>(frame)]));
  const State same = fresh->add_state(renumbered(states_[state]));
  return {std::move(fresh), same};
}

}  // namespace weft
