#include "llm/ahead.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace weft::llm {
namespace {

constexpr int64_t kMostSteps = 16;  // a submit is then a small part of their cost on any driver
constexpr size_t kInFlight = 3;     // one runs, one waits, one is being recorded
constexpr double kSeconds = 0.05;   // of a submit: nobody sees tokens come in groups

}  // namespace

bool Ahead::possible(const Model& model) {
  return model.steps().possible() && model.device() != Device();
}

Ahead::Ahead(Model& model, int64_t steps)
    : model_(model), grows_(steps <= 0), steps_(grows_ ? 1 : std::min(steps, kMostSteps)) {}

Ahead::~Ahead() {
  for (Member& member : members_) forget(member);
}

bool Ahead::takes(const Sequence& sequence, const Choice& choice) const {
  return members_.empty() || ((members_.front().choice.top_k == 0) == (choice.top_k == 0) &&
                              members_.front().sequence.is_long == sequence.is_long);
}

void Ahead::join(Sequence& sequence, Sampler& sampler, const Choice& choice) {
  size_t place = 0;  // the first that is nobody's
  while (std::ranges::find(members_, place, &Member::place) != members_.end()) ++place;
  members_.push_back({sequence, sampler, choice, place});
  changed_ = true;
}

void Ahead::leave(const Sequence& sequence) {
  const auto member =
      std::ranges::find_if(members_, [&](const Member& m) { return &m.sequence == &sequence; });
  for (Sent& sent : sent_) std::ranges::replace(sent.members, &*member, nullptr);
  forget(*member);
  members_.erase(member);
  changed_ = true;
}

/// What was made and not taken.
void Ahead::forget(Member& member) {
  truncate(member.sequence, member.sequence.tokens.size(), model_.pages());
}

int64_t Ahead::room() const {
  if (!possible(model_)) return 0;
  int64_t room = model_.context();
  for (const Member& member : members_) {
    const Sequence& sequence = member.sequence;
    const int64_t border = sequence.is_long ? model_.context() : model_.config().rope_border();
    room = std::min(room, std::min(border, model_.context()) - std::ssize(sequence.tokens));
  }
  return room;
}

int64_t Ahead::fewest_open() const {
  return std::ranges::min_element(members_, {}, &Member::open)->open;
}

std::vector<TokenId> Ahead::next(std::span<const TokenId> last, int64_t wanted) {
  wanted = std::min(wanted, room());
  const auto is_ready = [](const Member& member) { return !member.ready.empty(); };
  for (;;) {
    while (sent_.size() < kInFlight && fewest_open() < wanted) submit(last, wanted);
    if (std::ranges::all_of(members_, is_ready)) break;
    receive();
  }
  std::vector<TokenId> ids;
  for (Member& member : members_) {
    ids.push_back(member.ready.front());
    member.ready.pop_front();
    --member.open;
    if (ids.back() < 0) fail(ErrorKind::invalid, "[sampler] the model's logits are not all numbers");
    member.sequence.tokens.push_back(last[ids.size() - 1]);
    member.sampler.drawn();
  }
  return ids;
}

/// Gives everybody a place in the steps that come next. Who has one keeps it, and goes on with the token that
/// is there; with another number of places, or when somebody else made steps, tokens come from the host.
void Ahead::place(std::span<const TokenId> last) {
  const size_t needed = std::bit_ceil(members_.size());
  if (needed != places_ || started_ != model_.steps().started()) {
    while (!sent_.empty()) receive();
    size_t place = 0;
    for (Member& member : members_) member.place = place++;
    places_ = needed;
  }
  std::vector<Steps::Place> places(places_);
  auto next = last.begin();
  for (Member& member : members_) {
    const Sequence& sequence = member.sequence;
    const TokenId token = member.open == 0 ? *next : sent_.empty() ? member.ready.back() : kNoToken;
    places[member.place] = {
        .sequence = &member.sequence,
        .position = std::ssize(sequence.tokens) + member.open,
        .token = token,
        .choice = member.choice,
        .share = [&sequence, &sampler = member.sampler](int64_t position) {
          return sampler.share(static_cast<uint32_t>(position - std::ssize(sequence.tokens)));
        }};
    ++next;
  }
  model_.steps().start(std::move(places));
  started_ = model_.steps().started();
  changed_ = false;
}

void Ahead::submit(std::span<const TokenId> last, int64_t wanted) {
  const bool none_open = std::ranges::all_of(members_, [](const Member& m) { return m.open == 0; });
  if (changed_ || none_open || started_ != model_.steps().started()) place(last);
  Sent sent{model_.steps().run(std::min(steps_, wanted - fewest_open())), {}};
  sent.members.resize(static_cast<size_t>(sent.chosen.places));
  for (Member& member : members_) {
    member.open += sent.chosen.count;
    sent.members[member.place] = &member;
  }
  sent_.push_back(std::move(sent));
}

void Ahead::receive() {
  const Sent sent = std::move(sent_.front());
  sent_.pop_front();
  const std::span<const std::byte> bytes = sent.chosen.ids->wait();
  std::vector<TokenId> ids(bytes.size() / sizeof(TokenId));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < ids.size(); ++i)
    if (Member* member = sent.members[i % sent.members.size()]) member->ready.push_back(ids[i]);
  const double seconds = std::chrono::duration<double>(Clock::now() - received_).count();
  received_ = Clock::now();
  if (grows_) {
    const double fit = kSeconds / seconds * static_cast<double>(sent.chosen.count);
    steps_ = std::clamp(static_cast<int64_t>(std::min<double>(fit, kMostSteps)), int64_t{1}, 2 * steps_);
  }
}

}  // namespace weft::llm
