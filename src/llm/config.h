#pragma once

#include <optional>
#include <string>
#include <vector>

#include "llm/model_file.h"

namespace weft::llm {

enum class Norm { rms, layer };
enum class Activation { silu, gelu, gelu_tanh, relu, relu_squared };

/// How positions turn queries and keys.
struct RopeConfig {
  int64_t dims = 0;         ///< of a head that turn; the others stay
  bool neighbours = false;  ///< pairs are (2i, 2i+1); otherwise (i, i + dims/2)
  double base = 10'000;
  std::string scaling = "none";  ///< none, linear, dynamic, yarn, longrope
  double factor = 1;
  double original_context = 0;
  double magnitude = 1;  ///< of what is turned; yarn has one of its own too
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;               ///< yarn's two borders are whole numbers
  bool has_own_magnitude = false;     ///< `magnitude` is all of it
  std::vector<double> divisors;       ///< of each frequency; empty: 1
  std::vector<double> long_divisors;  ///< of texts longer than the original context
};

struct Experts {
  int64_t count = 0, used = 0;
  int64_t width = 0;                      ///< of one expert's hidden layer
  int64_t shared_width = 0;               ///< of the experts that every token has, together
  bool normalize = true;                  ///< weights of the chosen ones add up to 1
  bool sigmoid = false;                   ///< of the scores, instead of their softmax
  bool softmax_after = false;             ///< over the chosen ones only
  double scale = 1;                       ///< of the weights
  int64_t groups = 1, used_groups = 1;    ///< experts are chosen among those of the best groups
  int64_t group_votes = 2;                ///< best experts of a group whose sum ranks it
  double gate_limit = 0, gate_slope = 0;  ///< gpt-oss: of what goes into the gate, of the gate's sigmoid
};

/// Linear attention: a state per value head instead of keys and values of all tokens.
struct LinearAttention {
  int64_t key_heads = 0, value_heads = 0;  ///< several value heads share a key head
  int64_t key_dim = 0, value_dim = 0;
  int64_t kernel = 0;    ///< tokens that the convolution before it sees
  bool in_turn = false;  ///< value head i has key head i modulo their number; otherwise neighbours share one
};

struct LayerConfig {
  int64_t heads = 0, kv_heads = 0;
  int64_t hidden = 0;  ///< width of the feed-forward part
  int64_t window = 0;  ///< keys that a query sees; 0 = all before it
  int rope = 0;        ///< index in Config::ropes; -1 = positions do not turn anything
  bool has_experts = false;
  bool recurrent = false;  ///< a convolution or linear attention in place of attention
};

/// The numbers of a model. What files leave to convention is filled in by the row of its architecture.
struct Config {
  std::string architecture;
  int64_t width = 0, vocabulary = 0, context = 0;
  int64_t head_dim = 0, value_dim = 0;
  std::vector<LayerConfig> layers;
  std::vector<RopeConfig> ropes;
  Experts experts;
  LinearAttention linear_attention;

  Norm norm = Norm::rms;
  Activation activation = Activation::silu;
  double norm_eps = 1e-5;
  bool parallel = false;  ///< attention and feed-forward part read the same input
  bool causal = true;
  double attention_scale = 0;                       ///< of scores
  double attention_softcap = 0, final_softcap = 0;  ///< 0 = none
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  double alibi = 0;      ///< largest slope exponent; 0 = none
  double clamp_qkv = 0;  ///< 0 = none

  /// What every architecture has. Throws ErrorKind::io for sizes that cannot be.
  explicit Config(const ModelFile& file);

  /// A window in every layer but each `period`-th one, unless the file has another period, or a list
  /// ("attention.sliding_window_pattern", "attention.layer_windows"). Layers with a window have the second
  /// rope if there are two.
  void alternate(const ModelFile& file, int64_t window, int64_t period);

  /// The file's own activation where it names one: an architecture's is only the usual one.
  void read_activation(const ModelFile& file);

  /// That the file's projections have the heads it announces: tables of angles are as long as a head.
  void check_heads(const ModelFile& file) const;

  /// longrope has other frequencies for texts longer than this, from their first token on.
  int64_t rope_border() const;
};

}  // namespace weft::llm
