#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "array/host_tensor.h"
#include "llm/architecture.h"
#include "llm/pass.h"
#include "llm/steps.h"
#include "weft/llm.h"

namespace weft::llm {

struct LoadOptions {
  Device device = {};
  int64_t gpu_layers = -1;  ///< layers on `device`, the last ones first; the others are the CPU's. -1: all
  int64_t context = 0;      ///< tokens of a sequence; 0: what the model was made for
  int64_t default_context = 0;                 ///< but no more than this; 0: any number
  int64_t sequences = 1;                       ///< at a time
  std::optional<quant::Type> cache_type = {};  ///< f32 where the model's weights are, else f16
  std::optional<bool> exact = {};              ///< activations stay floats where weights are blocks
  std::vector<AdapterOption> adapters = {};
  std::function<void(uint64_t bytes, uint64_t total)> progress = {};
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

  /// Runs tokens of one sequence, in parts that are not too long. Logits of the last, or of all: (n,
  /// vocabulary).
  std::vector<float> run(Sequence& sequence, std::span<const TokenId> tokens, bool all = false);
  /// The same for what the layers make of each token: (n, width).
  std::vector<float> activations(Sequence& sequence, std::span<const TokenId> tokens);
  Sequence new_sequence() const { return {}; }
  bool is_recurrent() const;  ///< its state cannot go back

  /// Keys, values and states of a sequence, by names of their own.
  std::map<std::string, HostTensor> cached(const Sequence& sequence) const;
  /// A sequence of these tokens with what cached() gave for it. ErrorKind::invalid for another model's.
  Sequence restore(std::span<const TokenId> tokens, const std::map<std::string, HostTensor>& tensors);

 private:
  std::vector<float> run_parts(Sequence& sequence, std::span<const TokenId> tokens, bool all,
                               bool activations);
  Array evaluate(const Batch& batch);  ///< forward(), with the caches

  State state_;
  const Architecture& architecture_;
  Pages pages_;
  Steps steps_{*this};
};

}  // namespace weft::llm
