#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "io/safetensors.h"
#include "llm/ahead.h"
#include "llm/grammar/json_schema.h"
#include "llm/grammar/token_trie.h"
#include "llm/model.h"
#include "llm/sampler.h"
#include "llm/speculative.h"
#include "llm/stop_finder.h"
#include "weft/llm.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What a device can do to us, and another one can go on from.
bool is_device_failure(const Error& e) {
  return e.kind() == ErrorKind::lost || e.kind() == ErrorKind::timeout || e.kind() == ErrorKind::memory;
}

constexpr int64_t kDefaultContext = 4096;
constexpr const char* kFingerprint = "fingerprint";  // in a saved cache: the model's

quant::Type cache_type_from(const std::string& name) {
  for (const quant::Type type : {quant::Type::f32, quant::Type::f16, quant::Type::q8_0, quant::Type::q4_0})
    if (quant::traits(type).name == name) return type;
  fail(ErrorKind::invalid, "[model] a cache is f32, f16, q8_0 or q4_0, not '{}'", name);
}

}  // namespace

/// A model, and the one text it is working on.
struct LanguageModel::Engine {
  Engine(std::filesystem::path p, ModelOptions o)
      : path(std::move(p)), options(std::move(o)), tokenizer(Tokenizer::open(path)) {
    load();
    if (!options.draft.model.empty() || options.draft.lookup) load_drafter();
  }

  std::filesystem::path path;
  ModelOptions options;
  Tokenizer tokenizer;
  std::optional<llm::Model> model;
  llm::Sequence sequence;
  std::optional<llm::Drafter> drafter;
  std::shared_ptr<const TokenTrie> trie;  ///< made when a grammar first needs it
  std::function<bool()> cancelled;        ///< of the prompt that is being read

  /// The model; opened once more where a device failed and the CPU could not take over.
  llm::Model& loaded() {
    if (!model) open(-1, {});
    return *model;
  }

  bool may_fall_back() const { return options.may_fall_back && options.device != Device(); }

  void load() {
    int64_t layers = options.gpu_layers.value_or(-1);
    for (;;) {
      uint64_t done = 0, total = 1;
      try {
        open(layers, [&](uint64_t bytes, uint64_t all) {
          done = bytes, total = std::max<uint64_t>(all, 1);
          if (options.progress) options.progress(bytes, all);
        });
        return;
      } catch (const Error& e) {
        if (!is_device_failure(e) || options.device == Device()) throw;
        const bool full = e.kind() == ErrorKind::memory;
        if (!full && !options.may_fall_back) throw;
        if (full && options.gpu_layers) throw;
        const int64_t fewer = full ? layers_that_fit(layers, done, total) : 0;
        if (fewer == 0 && !options.may_fall_back) throw;
        log(LogLevel::warn, "{}; {}", e.what(),
            fewer > 0
                ? fmt::format("{} layers stay on {}, the others go to the CPU", fewer, options.device.name())
                : "the CPU goes on");
        if (fewer == 0) options.device = Device();
        layers = fewer == 0 ? -1 : fewer;
      }
    }
  }

  /// Layers to try after a device took `done` of `total` bytes with `layers` (-1: all) and was full.
  int64_t layers_that_fit(int64_t layers, uint64_t done, uint64_t total) const {
    const int64_t all = llm::ModelFile::open(path).required("block_count"), tried = layers < 0 ? all : layers;
    const double share = 0.9 * static_cast<double>(done) / static_cast<double>(total);
    return std::clamp<int64_t>(static_cast<int64_t>(share * static_cast<double>(all)), 0, tried - 1);
  }

  void open(int64_t layers, std::function<void(uint64_t, uint64_t)> progress) {
    sequence = {};
    model.reset();
    llm::LoadOptions load{.device = options.device,
                          .gpu_layers = layers,
                          .exact = options.exact,
                          .progress = std::move(progress)};
    load.context = options.context;
    if (options.cache_type) load.cache_type = cache_type_from(*options.cache_type);
    load.adapters = options.adapters;
    load.cancelled = [this] { return cancelled && cancelled(); };
    if (load.context <= 0) load.default_context = kDefaultContext;
    model.emplace(path, load);
    if (!model->config().causal)
      fail(ErrorKind::unsupported, "[model] {}: this model writes no text; `weft embed` takes it",
           path.string());
  }

  void load_drafter() {
    if (model->is_recurrent())
      log(LogLevel::warn, "[draft] {}: a recurrent model cannot take tokens back; nothing is guessed",
          path.string());
    else
      drafter.emplace(options.draft, llm::LoadOptions{.device = model->device(), .context = model->context()},
                      tokenizer);
  }

  /// Appends tokens to the text: logits of the last, or of all. When the device fails, the CPU computes the
  /// whole text again.
  std::vector<float> run(std::span<const TokenId> tokens, bool all = false) {
    const std::vector<TokenId> before = sequence.tokens;
    try {
      return model->run(sequence, tokens, all);
    } catch (const Error& e) {
      if (!is_device_failure(e) || !may_fall_back()) throw;
      sequence.tokens = before;  // whatever the model has taken back
      return run_on_cpu(tokens, e, all);
    }
  }

  /// The same from the beginning of the text, because of what the device said.
  std::vector<float> run_on_cpu(std::span<const TokenId> tokens, const Error& why, bool all = false) {
    log(LogLevel::warn, "{}; the CPU goes on", why.what());
    const std::vector<TokenId> text = sequence.tokens;
    options.device = Device();
    open(-1, {});
    if (!text.empty() && model->run(sequence, text).empty()) return {};
    return model->run(sequence, tokens, all);
  }

  /// The rest of a prompt: logits of its last token, or none where it was cancelled.
  std::vector<float> read(std::span<const TokenId> tokens, const std::function<bool()>& asked) {
    struct Asked {
      std::function<bool()>& whom;
      ~Asked() { whom = nullptr; }
    } const meanwhile{cancelled = asked};
    return run(tokens);
  }

  /// Tokens made ahead, where the device can choose them without the host.
  std::unique_ptr<llm::Ahead> ahead(Sampler& sampler, const GenerateOptions& wanted) {
    const std::optional<llm::Choice> choice = llm::choice_of(wanted.sampler);
    const bool plain = wanted.grammar.empty() && wanted.json_schema.empty() && wanted.logprobs < 0;
    if (!choice || !plain || drafter || !llm::Ahead::possible(*model)) return nullptr;
    auto ahead = std::make_unique<llm::Ahead>(*model, wanted.ahead);
    ahead->join(sequence, sampler, *choice);
    return ahead;
  }

  /// The token behind `last`, of those made ahead; `wanted` with it. When the device fails there is none, and
  /// its logits come from the CPU.
  TokenId next_ahead(std::unique_ptr<llm::Ahead>& ahead, TokenId last, int64_t wanted,
                     std::vector<float>& logits) {
    try {
      return ahead->next(std::span(&last, 1), wanted)[0];
    } catch (const Error& e) {
      if (!is_device_failure(e) || !may_fall_back()) throw;
      ahead.reset();
      logits = run_on_cpu(std::span(&last, 1), e);
      return kNoToken;
    }
  }

  /// Logits behind the text and `id`. Up to `most` tokens that may follow are computed in the same pass.
  std::vector<float> next(TokenId id, llm::Guesses& guesses, int64_t most) {
    if (std::optional<std::vector<float>> known = guesses.take(id)) return std::move(*known);
    take_back(guesses);
    std::vector<TokenId> tokens = {id};
    // Guesses that are taken back must not have moved the text across the border of longrope.
    const int64_t length = std::ssize(sequence.tokens) + 1, border = model->config().rope_border(),
                  room = (length <= border ? std::min(border, model->context()) : model->context()) - length;
    most = std::min({most, options.draft.max, room, guesses.worth()});
    if (drafter && most > 0) {
      const std::vector<TokenId> guessed = guess(id, most);
      tokens.insert(tokens.end(), guessed.begin(), guessed.end());
    }
    if (tokens.size() == 1) return run(tokens);
    std::vector<float> logits = run(tokens, true);
    guesses.put(std::span(tokens).subspan(1), std::move(logits));
    return guesses.first();
  }

  std::vector<TokenId> guess(TokenId id, int64_t most) {
    std::vector<TokenId> text = sequence.tokens;
    text.push_back(id);
    try {
      return drafter->guess(text, static_cast<size_t>(most));
    } catch (const Error& e) {
      if (!is_device_failure(e) || !options.may_fall_back) throw;
      log(LogLevel::warn, "{}; the draft model is not used any more", e.what());
      drafter->forget_model();
      return {};
    }
  }

  /// Tokens of the text that were chosen: without guesses.
  int64_t length(const llm::Guesses& guesses) const {
    return std::ssize(sequence.tokens) - static_cast<int64_t>(guesses.waiting());
  }
  void take_back(llm::Guesses& guesses) {
    llm::truncate(sequence, sequence.tokens.size() - guesses.drop(), model->pages());
  }

  void reset() { llm::truncate(sequence, 0, model->pages()); }

  HostTensor fingerprint() const {
    const std::string text = model->fingerprint();
    const auto bytes = std::as_bytes(std::span(text));
    return {DType::u8, {std::ssize(bytes)}, {bytes.begin(), bytes.end()}};
  }

  std::optional<GrammarState> grammar_of(const GenerateOptions& wanted) {
    if (wanted.grammar.empty() && wanted.json_schema.empty()) return std::nullopt;
    if (!wanted.grammar.empty() && !wanted.json_schema.empty())
      fail(ErrorKind::invalid, "[generate] a grammar and a JSON schema were given; one is possible");
    if (!trie) trie = std::make_shared<TokenTrie>(tokenizer);
    const Grammar grammar(wanted.grammar.empty() ? json_schema_to_gbnf(wanted.json_schema) : wanted.grammar);
    return GrammarState(grammar, trie);
  }

  /// Brings the text to what `prompt` begins with, and returns how much of it that is.
  size_t reuse(std::span<const TokenId> prompt) {
    const auto differs = std::ranges::mismatch(sequence.tokens, prompt).in1;
    auto common = static_cast<size_t>(differs - sequence.tokens.begin());
    common = std::min(common, prompt.size() - 1);  // the last token's logits are wanted
    if (model->is_recurrent() && common < sequence.tokens.size()) common = 0;
    llm::truncate(sequence, common, model->pages());
    return common;
  }

  /// Drops the first half of the tokens behind the first `keep`, and computes the rest again.
  void shift(int64_t keep) {
    std::vector<TokenId> tokens = sequence.tokens;
    const auto first = std::min<int64_t>(keep, model->context() / 2);
    tokens.erase(tokens.begin() + first, tokens.begin() + first + (std::ssize(tokens) - first + 1) / 2);
    reset();
    run(tokens);
  }
};

LanguageModel LanguageModel::open(const std::filesystem::path& path, const ModelOptions& options) {
  return LanguageModel(std::make_shared<Engine>(path, options));
}

const Tokenizer& LanguageModel::tokenizer() const {
  return engine_->tokenizer;
}
std::string LanguageModel::architecture() const {
  return engine_->loaded().config().architecture;
}
Device LanguageModel::device() const {
  return engine_->loaded().device();
}
int64_t LanguageModel::context() const {
  return engine_->loaded().context();
}
int64_t LanguageModel::vocabulary() const {
  return engine_->loaded().config().vocabulary;
}

void LanguageModel::check(std::span<const TokenId> prompt, const GenerateOptions& options) const {
  if (prompt.empty()) fail(ErrorKind::invalid, "[generate] the prompt has no tokens");
  if (std::ssize(prompt) > context())
    fail(ErrorKind::invalid, "[generate] the prompt has {} tokens, the context {}; -c makes it larger",
         prompt.size(), context());
  for (const auto& [name, value] :
       {std::pair{"max_tokens", options.max_tokens}, {"keep", options.keep}, {"logprobs", options.logprobs}})
    if (value < -1) fail(ErrorKind::invalid, "[generate] {} is {}: -1 is the least", name, value);
  for (const auto& [id, bias] : options.sampler.logit_bias)
    if (id >= vocabulary())
      fail(ErrorKind::invalid, "[generate] logit_bias of token {}: the model has {}", id, vocabulary());
}

GenerateResult LanguageModel::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                       const OnToken& on_token) {
  Engine& engine = *engine_;
  check(prompt, options);
  GenerateResult result{.prompt_tokens = std::ssize(prompt)};
  Sampler sampler(options.sampler, &engine.tokenizer, engine.grammar_of(options));
  for (TokenId id : prompt) sampler.accept_prompt(id);
  Detokenizer detokenizer(engine.tokenizer, {.continues = true});
  llm::StopFinder stops(options.stops);

  llm::Guesses guesses;

  auto start = Clock::now();
  const size_t cached = engine.reuse(prompt);
  result.cached_tokens = static_cast<int64_t>(cached);
  std::vector<float> logits = engine.read(prompt.subspan(cached), options.cancelled);
  result.prompt_seconds = seconds_since(start);
  if (logits.empty()) {
    result.prompt_tokens = std::ssize(engine.sequence.tokens);
    result.reason = FinishReason::cancelled;
    return result;
  }
  start = Clock::now();
  result.reason = FinishReason::length;
  const auto left = [&] {
    return options.max_tokens < 0 ? context() : options.max_tokens - std::ssize(result.tokens);
  };
  std::unique_ptr<llm::Ahead> ahead = engine.ahead(sampler, options);
  TokenId made = kNoToken;  // ahead
  while (left() > 0 && !sampler.finished()) {
    const TokenId id = made == kNoToken ? sampler.sample(logits) : made;
    sampler.accept(id);
    // A grammar has nothing behind its end, whoever ignores that.
    if (engine.tokenizer.ends_generation(id) && (!options.ignore_end || sampler.finished())) {
      result.reason = FinishReason::end;
      break;
    }
    result.tokens.push_back(id);
    GeneratedToken token{.id = id, .text = stops.push(detokenizer.push(id))};
    if (options.logprobs >= 0) {
      Logprobs of = logprobs_of(logits, id, static_cast<size_t>(options.logprobs));
      token.logprob = of.chosen;
      token.top = std::move(of.top);
    }
    result.text += token.text;
    const bool wanted = !on_token || on_token(token);
    const bool go_on = wanted && !(options.cancelled && options.cancelled());
    if (stops.found() || !go_on) {
      result.reason = stops.found() ? FinishReason::stop : FinishReason::cancelled;
      break;
    }
    if (left() == 0 || sampler.finished()) break;
    if (engine.length(guesses) == context()) {
      if (!options.shift) break;
      engine.shift(options.keep < 0 ? std::ssize(prompt) : options.keep);
    }
    made = kNoToken;
    if (ahead && ahead->room() > 0)
      made = engine.next_ahead(ahead, id, left(), logits);
    else
      logits = engine.next(id, guesses, left() - 1);
  }
  if (result.reason == FinishReason::length && sampler.finished()) result.reason = FinishReason::end;
  ahead.reset();
  engine.take_back(guesses);
  result.guessed_tokens = guesses.made();
  result.right_guesses = guesses.right();
  result.seconds = seconds_since(start);
  if (!stops.found()) {
    const std::string rest = stops.push(detokenizer.finish()) + stops.finish();
    result.text += rest;
    if (!rest.empty() && on_token && result.reason != FinishReason::cancelled)
      on_token({.id = kNoToken, .text = rest});
  }
  return result;
}

std::vector<float> LanguageModel::logits(std::span<const TokenId> tokens) {
  llm::Model& model = engine_->loaded();
  engine_->reset();
  return model.run(engine_->sequence, tokens, true);
}

void LanguageModel::save_cache(const std::filesystem::path& file) const {
  std::map<std::string, HostTensor> tensors = engine_->loaded().cached(engine_->sequence);
  const std::vector<TokenId>& tokens = engine_->sequence.tokens;
  const auto bytes = std::as_bytes(std::span(tokens));
  tensors["tokens"] = {DType::i32, {std::ssize(tokens)}, {bytes.begin(), bytes.end()}};
  tensors[kFingerprint] = engine_->fingerprint();
  write_safetensors(file, tensors);
}

size_t LanguageModel::load_cache(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return 0;
  const Safetensors saved = Safetensors::open(file);
  std::map<std::string, HostTensor> tensors;
  for (const std::string& name : saved.names()) tensors[name] = saved.load(name);
  if (tensors[kFingerprint].bytes != engine_->fingerprint().bytes)
    fail(ErrorKind::invalid, "[model] {}: this cache is of another model, or of other adapters",
         file.string());
  const HostTensor& ids = tensors["tokens"];
  std::vector<TokenId> tokens(ids.bytes.size() / sizeof(TokenId));
  std::memcpy(tokens.data(), ids.bytes.data(), tokens.size() * sizeof(TokenId));
  const bool known = std::ranges::all_of(tokens, [&](TokenId id) { return id >= 0 && id < vocabulary(); });
  if (ids.dtype != DType::i32 || !known || std::ssize(tokens) > context())
    fail(ErrorKind::invalid,
         "[model] {}: this cache does not belong to the model, or is longer than its context", file.string());
  engine_->reset();
  engine_->sequence = engine_->model->restore(tokens, tensors);
  return tokens.size();
}

}  // namespace weft
