#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/sampler.h"
#include "weft/text.h"

namespace weft {

/// An adapter (LoRA) to add to a model: a GGUF file, or a folder of PEFT's.
struct AdapterOption {
  std::filesystem::path path;
  double scale = 1;
};

/// Speculative decoding: tokens are guessed and computed together, which changes the time and not the text.
/// llama.cpp's names and defaults.
struct DraftOptions {
  std::filesystem::path model = {};  ///< a smaller model of the same vocabulary
  bool lookup = false;               ///< guess what followed the same words earlier in the text
  int64_t max = 16, min = 0;         ///< tokens of a guess; a shorter one is not used
  float p_min = 0.75F;               ///< the probability that the smaller model has to give a token
};

struct ModelOptions {
  Device device = {};
  /// When the device fails, the CPU goes on from the same state, with a warning. Not where the user named it.
  bool may_fall_back = true;
  std::optional<int64_t> gpu_layers = {};  ///< layers on the device, the last ones; else as many as fit
  int64_t context = 0;                     ///< tokens of a text; 0 = what the model was made for, up to 4096
  /// Of keys and values: f32, f16, q8_0 or q4_0; f16 unless the weights are f32.
  std::optional<std::string> cache_type = {};
  std::optional<bool> exact = {};  ///< activations stay floats where weights are blocks
  std::vector<AdapterOption> adapters = {};
  DraftOptions draft = {};
  std::function<void(uint64_t bytes, uint64_t total)> progress = {};  ///< of loading
};

struct GenerateOptions {
  SamplerOptions sampler = {};
  int64_t max_tokens = -1;  ///< -1 = until the text ends
  /// Asked between parts of a prompt and after each token; true ends the work with what is done.
  std::function<bool()> cancelled = {};
  std::vector<std::string> stops = {};  ///< texts that end the answer; they are not part of it
  bool ignore_end = false;              ///< tokens that end a text do not end it here
  std::string grammar = {};             ///< the answer follows this grammar (GBNF); empty = none
  std::string json_schema = {};         ///< the answer is JSON of this schema; empty = none
  int64_t logprobs = -1;                ///< candidates to report with each token; -1 = nothing
  /// When the context is full: the first `keep` tokens (at most half of it; -1 = the prompt) and the later
  /// half of the others go on.
  bool shift = true;
  int64_t keep = 0;
  /// Tokens that a GPU makes per submit, up to 16, before the host has seen the last ones; 0 = more and more
  /// while nothing interrupts. No choice of tokens depends on it.
  int64_t ahead = 0;
};

/// A token as it was made, and what can be said of the text by now.
struct GeneratedToken {
  TokenId id = 0;
  std::string text;  ///< whole characters; may be empty, or belong to earlier tokens too
  std::optional<float> logprob = {};
  std::vector<TokenLogprob> top = {};  ///< the most likely first
};

enum class FinishReason { end, stop, length, cancelled };

struct GenerateResult {
  std::string text;
  std::vector<TokenId> tokens;  ///< without the one that ended it
  FinishReason reason = FinishReason::end;
  int64_t prompt_tokens = 0, cached_tokens = 0;   ///< read of the prompt; those that were there already
  int64_t guessed_tokens = 0, right_guesses = 0;  ///< of DraftOptions
  double prompt_seconds = 0, seconds = 0;         ///< of the prompt; of what came after it
};

/// A language model with its weights on a device. A value; copies share one model. For one thread at a time.
class LanguageModel {
 public:
  /// A GGUF file or a folder of Hugging Face's. Throws ErrorKind::io for damaged files,
  /// ErrorKind::unsupported for architectures that weft does not know.
  static LanguageModel open(const std::filesystem::path& path, const ModelOptions& options = {});

  const Tokenizer& tokenizer() const;
  std::string architecture() const;
  Device device() const;  ///< where it runs now
  int64_t context() const;
  int64_t vocabulary() const;

  /// Continues a text. What its beginning has in common with the last call is not computed again.
  /// `on_token` returns false to stop. Throws ErrorKind::invalid for a prompt longer than the context.
  using OnToken = std::function<bool(const GeneratedToken&)>;
  GenerateResult generate(std::span<const TokenId> prompt, const GenerateOptions& options = {},
                          const OnToken& on_token = {});

  /// Logits of every token of a text of its own, (tokens, vocabulary).
  std::vector<float> logits(std::span<const TokenId> tokens);

  /// What the next call has in common with, as a file; loading returns the number of tokens, 0 where there is
  /// no such file. A file of another model, or of other adapters, is ErrorKind::invalid.
  void save_cache(const std::filesystem::path& file) const;
  size_t load_cache(const std::filesystem::path& file);

 private:
  struct Engine;
  void check(std::span<const TokenId> prompt, const GenerateOptions& options) const;
  explicit LanguageModel(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<Engine> engine_;
};

}  // namespace weft
