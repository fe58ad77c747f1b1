#include "llm/ahead.h"

#include <algorithm>
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

Ahead::Ahead(Model& model, Sequence& sequence, Sampler& sampler, const Choice& choice, int64_t steps)
    : model_(model),
      sequence_(sequence),
      sampler_(sampler),
      choice_(choice),
      grows_(steps <= 0),
      steps_(grows_ ? 1 : std::min(steps, kMostSteps)) {}

Ahead::~Ahead() {
  truncate(sequence_, sequence_.tokens.size(), model_.pages());
}

int64_t Ahead::room() const {
  if (!possible(model_)) return 0;
  const int64_t border = sequence_.is_long ? model_.context() : model_.config().rope_border();
  return std::min(border, model_.context()) - std::ssize(sequence_.tokens);
}

TokenId Ahead::next(TokenId last, int64_t wanted) {
  wanted = std::min(wanted, room());
  while (sent_.size() < kInFlight && open_ < wanted) submit(last, wanted);
  if (ready_.empty()) receive();
  const TokenId id = ready_.front();
  ready_.pop_front();
  --open_;
  if (id < 0) fail(ErrorKind::invalid, "[sampler] the model's logits are not all numbers");
  sequence_.tokens.push_back(last);
  sampler_.drawn();
  return id;
}

void Ahead::submit(TokenId last, int64_t wanted) {
  if (open_ == 0)
    model_.steps().start(sequence_, last, choice_, [this](int64_t position) {
      return sampler_.share(static_cast<uint32_t>(position - std::ssize(sequence_.tokens)));
    });
  sent_.push_back(model_.steps().run(std::min(steps_, wanted - open_)));
  open_ += sent_.back().count;
}

void Ahead::receive() {
  const Steps::Chosen chosen = std::move(sent_.front());
  sent_.pop_front();
  const std::span<const std::byte> bytes = chosen.ids->wait();
  std::vector<TokenId> ids(static_cast<size_t>(chosen.count));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  ready_.insert(ready_.end(), ids.begin(), ids.end());
  const double seconds = std::chrono::duration<double>(Clock::now() - received_).count();
  received_ = Clock::now();
  if (grows_) {
    const double fit = kSeconds / seconds * static_cast<double>(chosen.count);
    steps_ = std::clamp(static_cast<int64_t>(std::min<double>(fit, kMostSteps)), int64_t{1}, 2 * steps_);
  }
}

}  // namespace weft::llm
