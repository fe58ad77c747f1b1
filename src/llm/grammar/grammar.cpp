#include "llm/grammar/grammar.h"

#include "base/error.h"
#include "llm/grammar/matcher.h"

namespace weft {

Grammar::Grammar(std::string_view gbnf)
    : program_(std::make_shared<const GrammarProgram>(compile_grammar(gbnf::parse(gbnf)))) {}

GrammarState::GrammarState(const Grammar& grammar, std::shared_ptr<const TokenTrie> tokens)
    : matcher_(std::make_shared<GrammarMatcher>(grammar.program_, std::move(tokens))),
      state_(matcher_->start()) {}

std::shared_ptr<const TokenMask> GrammarState::allowed() {
  const auto held = matcher_->lock();
  return matcher_->allowed(ended_ ? GrammarMatcher::kDead : state_);
}

bool GrammarState::allows(TokenId id) {
  const TokenTrie& tokens = matcher_->tokens();
  if (ended_ || id < 0 || static_cast<size_t>(id) >= tokens.size()) return false;
  const auto held = matcher_->lock();
  if (tokens.is_end(id)) return matcher_->may_end(state_);
  const std::string& bytes = tokens.bytes(id);
  return !bytes.empty() && matcher_->walk(state_, bytes) != GrammarMatcher::kDead;
}

void GrammarState::accept(TokenId id) {
  if (!allows(id)) fail(ErrorKind::invalid, "[grammar] token {} is not allowed here", id);
  const TokenTrie& tokens = matcher_->tokens();
  ended_ = tokens.is_end(id);
  if (ended_) return;
  auto held = matcher_->lock();
  state_ = matcher_->walk(state_, tokens.bytes(id));
  if (!matcher_->is_full()) return;
  auto [matcher, state] = matcher_->restarted(state_);
  held.unlock();
  matcher_ = std::move(matcher);
  state_ = state;
}

bool GrammarState::may_end() const {
  const auto held = matcher_->lock();
  return ended_ || matcher_->may_end(state_);
}

bool GrammarState::finished() const {
  const auto held = matcher_->lock();
  return ended_ || matcher_->must_end(state_);
}

}  // namespace weft
