#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "llm/cache.h"
#include "llm/config.h"
#include "llm/rope.h"
#include "llm/weights.h"

namespace weft::llm {

/// What of a model stays between passes.
struct State {
  State(Config c, Weights w) : config(std::move(c)), weights(std::move(w)) {}

  Config config;
  Weights weights;
  std::vector<Device> devices;  ///< of each layer; then of what comes after them
  std::vector<LayerCache> cache;
  quant::Type cache_type = quant::Type::f32;
  int64_t rows = 0;       ///< of each cache
  int64_t sequences = 1;  ///< that have recurrent state
  int64_t context = 0;    ///< positions that are there
  bool exact = false;     ///< activations stay floats where weights are blocks
  /// Of short and of long texts, by device and index in the config.
  std::array<std::map<std::pair<const Backend*, int>, RopeTable>, 2> ropes;
};

/// Queries, keys and values: (n, heads, dim).
struct Heads {
  Array q, k, v;
};

/// How a layer's queries meet keys.
struct AttentionForm {
  double scale = 1, softcap = 0;
  int64_t window = 0;
  Array sinks = {};  ///< (heads): scores that take part and have no value
};

class Layer;

/// One forward pass being written down: the words that architectures are written in. Arrays of activations
/// are f32 (n, width), n tokens.
class Pass {
 public:
  /// `inputs`: arrays to use for lists of the batch, by the names of their functions below.
  Pass(State& state, const Batch& batch, std::map<std::string, Array> inputs = {})
      : state_(state), batch_(batch), given_(std::move(inputs)) {}

  const Config& config() const { return state_.config; }
  Weights& weights() { return state_.weights; }
  State& state() { return state_; }
  const Batch& batch() const { return batch_; }

  Array embed();  ///< rows of token_embd, scaled
  /// Layer i; x moves to its device.
  Layer layer(size_t i, Array& x);
  Array wanted(const Array& x);  ///< rows of the wanted tokens, on the last device
  /// Of the wanted tokens: output norm, output product, scale and softcap; the norm alone where the batch
  /// wants activations.
  Array logits(const Array& x);

  // By the full name of a tensor, without ".weight" and ".bias".
  bool has(const std::string& name) const { return state_.weights.has(name + ".weight"); }
  Array norm(const std::string& name, const Array& x);  ///< over the last dim; a bias where there is one
  /// x (.., k) -> (.., n), with the matrix's scale (of NVFP4), bias and adapters where there are any.
  Array product(const std::string& name, const Array& x, int64_t n, int64_t bits = kBits);
  /// Several products of one x, in one where the matrices are alike.
  std::vector<Array> products(const std::vector<std::string>& names, const Array& x,
                              const std::vector<int64_t>& n);
  /// act(gate x) * (up x), both (.., n).
  Array gated_product(const std::string& gate, const std::string& up, const Array& x, int64_t n);
  /// x (n, 1 or used, k) times the matrices `chosen` (n, used) of a stack -> (n, used, out).
  Array expert_product(const std::string& name, const Array& x, const Array& chosen, int64_t out);
  Array activate(const Array& x) const;

  // Per token or key, i32, on a device.
  Array tokens(const Device& device) { return input("tokens", batch_.tokens, device); }
  Array positions(const Device& device) { return input("positions", batch_.positions, device); }
  Array sequences(const Device& device) { return input("sequences", batch_.sequences, device); }
  Array states(const Device& device) { return input("states", batch_.states, device); }
  Array rows(const Device& device) { return input("rows", batch_.rows, device); }
  Array key_rows(const Device& device) { return input("key rows", batch_.key_rows, device); }
  Array key_positions(const Device& device) { return input("key positions", batch_.key_positions, device); }
  Array key_sequences(const Device& device) { return input("key sequences", batch_.key_sequences, device); }

  /// What a position of distance takes off the scores of each head, f32 (heads).
  Array slopes(int64_t heads, const Device& device);
  /// The rows of a rope table for the batch's tokens.
  const RopeTable& rope(int index, const Device& device);

 private:
  using Key = std::pair<const Backend*, std::string>;
  Array input(const std::string& name, const std::vector<int32_t>& values, const Device& device);

  State& state_;
  const Batch& batch_;
  std::map<std::string, Array> given_;
  std::map<Key, Array> inputs_;
  std::map<std::pair<const Backend*, int64_t>, Array> slopes_;
  std::map<std::pair<const Backend*, int>, RopeTable> ropes_;
  /// Of activations where weights are blocks. Rounding to 8 bits in one layer makes the next ones round
  /// differently, until two devices say the same at 95 places of 100 only. Logits have no layer behind them:
  /// 8 bits do where those of many tokens are wanted, and arithmetic is what takes the time.
  static constexpr int64_t kBits = 16, kManyLogits = 64;
  /// x m^T, f32 (rows, m.n), with codes of so many bits.
  Array times(const Array& x, const Matrix& m, int64_t bits = kBits);
  Array with_bias(const std::string& name, const Array& y);
  /// Columns that a workgroup needs at hand at least: 32 are a block of codes, or two halves of one.
  static int64_t piece_of(const Array& x);
  /// Whether kernels of products go on with what is behind them (Backend::joined_rows).
  bool joins(const Array& x) const;
  /// The next token of each of some texts.
  bool is_step() const;
  /// Shorter texts, and guesses that are checked, are as exact as single tokens.
  static constexpr int64_t kShortText = 32;
  /// Whether a product of rows of x is better off with all weights as halves (Backend::halves_rows).
  bool by_halves(const Array& rows, const Matrix& m) const;
  Array times_halves(const Array& x, const Array& rows, const Matrix& m);

  struct Codes {
    Array x, codes;  ///< x stays, so that no other array can have its address
  };
  /// activation_codes by their bits, and halves by kHalves, of what several products read.
  std::map<std::pair<const Node*, int64_t>, Codes> codes_;
  static constexpr int64_t kHalves = 0;
  bool takes_codes(const Array& x) const;  ///< products with blocks
  /// Those of x as rows of k, made once for all products that read them.
  const Array& codes_of(const Array& x, int64_t k, int64_t bits);
  /// A norm as rows and a factor for each: products are multiplied by the factor afterwards, so that the
  /// kernel that makes the rows needs nothing from the rest of them.
  struct Factored {
    Array x, rows, factor;
  };
  std::map<const Node*, Factored> factored_;
};

/// A layer of a pass: names are those behind "blk.N.".
class Layer {
 public:
  Layer(Pass& pass, size_t index);

  Pass& pass;
  const size_t index;
  const LayerConfig& config;
  const Device& device;

  bool has(const std::string& name) const { return pass.has(prefix_ + name); }
  Array norm(const std::string& name, const Array& x) const { return pass.norm(prefix_ + name, x); }
  Array product(const std::string& name, const Array& x, int64_t n) const {
    return pass.product(prefix_ + name, x, n);
  }
  Array expert_product(const std::string& name, const Array& x, const Array& chosen, int64_t out) const {
    return pass.expert_product(prefix_ + name, x, chosen, out);
  }
  std::vector<Array> products(std::vector<std::string> names, const Array& x,
                              const std::vector<int64_t>& n) const {
    for (std::string& name : names) name.insert(0, prefix_);
    return pass.products(names, x, n);
  }
  const Array& vector(const std::string& name, const Shape& shape) const {
    return pass.weights().vector(prefix_ + name, shape);
  }
  std::string name(const std::string& tail) const { return prefix_ + tail; }

  /// From attn_q, attn_k and attn_v, or from attn_qkv.
  Heads heads(const Array& x) const;
  /// Positions turn q and k, where the layer has a rope.
  void turn(Heads& heads) const;
  /// Keys and values go into the cache, queries meet all of the sequence: (n, heads * value dim).
  Array attend(const Heads& heads, const AttentionForm& form) const;
  AttentionForm form() const;  ///< the config's

  LayerCache& cache() const { return pass.state().cache[index]; }

 private:
  std::string prefix_;
};

// ---- Parts that many architectures share.

/// heads, norms of q and k where they are there, turn, attend, attn_output.
Array attention(const Layer& layer, const Array& x);
/// ffn_down(act(ffn_gate x) * ffn_up x); without a gate ffn_down(act(ffn_up x)); a gate may be the first half
/// of ffn_up.
Array feed_forward(const Layer& layer, const Array& x);
/// A few experts per token, chosen by ffn_gate_inp; shared ones where they are there.
Array expert_feed_forward(const Layer& layer, const Array& x);

}  // namespace weft::llm
