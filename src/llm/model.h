#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "array/host_tensor.h"
#include "llm/architecture.h"
#include "llm/pass.h"
#include "llm/passes.h"
#include "llm/steps.h"
#include "weft/llm.h"

namespace weft::llm {

struct LoadOptions {
  Device device = {};
  int64_t gpu_layers = -1;  ///< layers on `device`, the last ones first; the others are the CPU's. -1: all
  int64_t context = 0;      ///< tokens of a sequence; 0: what the model was made for
  int64_t default_context = 0;                 ///< but no more than this; 0: any number
  int64_t sequences = 1;                       ///< at a time
  int64_t cached_tokens = 0;                   ///< of all of them; 0: a full context of each
  std::optional<quant::Type> cache_type = {};  ///< f32 where the model's weights are, else f16
  std::optional<bool> exact = {};              ///< activations stay floats where weights are blocks
  std::vector<AdapterOption> adapters = {};
  std::function<void(uint64_t bytes, uint64_t total)> progress = {};
  std::function<bool()> cancelled = {};  ///< asked between parts of a text; true: run() ends there
};

/// Tokens of a prompt that one forward pass takes.
inline constexpr int64_t kPassTokens = 512;

/// A sequence, and tokens that come next in it.
struct Turn {
  Sequence& sequence;
  std::span<const TokenId> tokens;
};

/// A model with its weights on a device, and the caches of the sequences it is working on.
class Model {
 public:
  Model(const std::filesystem::path& path, const LoadOptions& options)
      : Model(ModelFile::open(path), options) {}
  Model(ModelFile file, const LoadOptions& options);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const Config& config() const { return state_.config; }
  const ModelFile& file() const { return state_.weights.file(); }
  const Device& device() const { return state_.devices.back(); }
  int64_t context() const { return state_.context; }

  const std::vector<Device>& devices() const { return state_.devices; }  ///< of layers, and behind them

  Pages& pages() { return pages_; }
  Steps& steps() { return steps_; }
  const Steps& steps() const { return steps_; }
  /// What the architecture gives for a batch: logits (wanted tokens, vocabulary). Not evaluated yet. `inputs`
  /// as in Pass.
  Array forward(const Batch& batch, std::map<std::string, Array> inputs = {});
  /// Every array that a pass leaves behind: keys, values, states.
  std::vector<Array*> caches();
  /// Calls what was recorded with `arguments` and the caches behind them. Its results end with the caches, as
  /// they are from then on; when it throws, they are as they were.
  std::vector<Array> call_with_caches(const ArraysFunction& recorded, std::vector<Array> arguments);

  /// Runs tokens of one sequence, in parts that are not too long. Logits of the last, or of all: (n,
  /// vocabulary). None where LoadOptions::cancelled said so: the sequence then has the parts that are done.
  /// When this or one of the next throws, its sequences have no token that was not computed: none of these,
  /// and no others where the model cannot go back.
  std::vector<float> run(Sequence& sequence, std::span<const TokenId> tokens, bool all = false);
  /// Tokens of several sequences in one pass, which reads the weights once: logits of the last of each,
  /// (turns, vocabulary). Sequences of a recurrent model have different indices.
  std::vector<float> run(std::span<const Turn> turns);
  /// As run() for one sequence, but what the layers make of each token: (n, width).
  std::vector<float> activations(Sequence& sequence, std::span<const TokenId> tokens);
  Sequence new_sequence(int32_t index = 0) const { return {.index = index}; }
  /// Another one for other weights and other adapters.
  std::string fingerprint() const;
  bool is_recurrent() const;  ///< its state cannot go back
  /// Bytes of weights and caches that a pass over so many tokens reads, of sequences that have `keys` keys
  /// each. Experts count as often as one of the tokens chooses them by chance.
  double bytes_read(int64_t tokens, int64_t sequences, int64_t keys) const;

  /// Keys, values and states of a sequence, by names of their own.
  std::map<std::string, HostTensor> cached(const Sequence& sequence) const;
  /// A sequence of these tokens with what cached() gave for it. ErrorKind::invalid for another model's.
  Sequence restore(std::span<const TokenId> tokens, const std::map<std::string, HostTensor>& tensors);

 private:
  /// Throws ErrorKind::invalid for tokens that the model does not have, or more than it takes.
  void check(const Sequence& sequence, std::span<const TokenId> tokens) const;
  /// work(), after whose exceptions the sequences have only what they had before.
  template <typename Work>
  auto or_take_back(std::span<Sequence* const> sequences, const Work& work);
  /// Where Sequence::is_long changes with these tokens: all tokens, which the sequence has no more.
  std::vector<TokenId> across_border(Sequence& sequence, std::span<const TokenId> tokens);
  std::vector<float> run_text(Sequence& sequence, std::span<const TokenId> tokens, bool all,
                              bool activations);
  std::vector<float> run_parts(Sequence& sequence, std::span<const TokenId> tokens, bool all,
                               bool activations);
  std::vector<float> run_turns(std::span<const Turn> turns);
  void put_cached(Sequence& sequence, std::span<const TokenId> tokens,
                  const std::map<std::string, HostTensor>& tensors);
  Array run_together(std::span<const Turn> turns);  ///< those that are alike in Sequence::is_long
  Array evaluate(const Batch& batch);               ///< forward(), with the caches

  State state_;
  const Architecture& architecture_;
  Pages pages_;
  std::string adapters_;  ///< their fingerprints and scales
  std::function<bool()> cancelled_;
  Steps steps_{*this};
  Passes passes_{*this};
};

}  // namespace weft::llm
