#include "llm/model.h"

#include <algorithm>
#include <cmath>

#include "array/node.h"
#include "backend/backend.h"
#include "base/error.h"
#include "io/safetensors.h"
#include "llm/room.h"
#include "ops/op.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

constexpr const char* kLong = "long";  // in a saved cache: Sequence::is_long

/// Pages for all sequences, and page 0.
int64_t pages_of(const LoadOptions& options, int64_t context) {
  return (options.cached_tokens > 0 ? pages_for(options.cached_tokens)
                                    : pages_for(context) * options.sequences) +
         1;
}

/// Of each layer, and of what comes after them. What comes before them is with the first.
std::vector<Device> devices_of(const LoadOptions& options, int64_t layers) {
  std::vector<Device> devices(static_cast<size_t>(layers) + 1, options.device);
  const int64_t on_device = options.gpu_layers < 0 ? layers : std::min(options.gpu_layers, layers);
  std::fill_n(devices.begin(), layers - on_device, Device());
  if (on_device == 0) devices.back() = Device();
  return devices;
}

State state_of(ModelFile file, const LoadOptions& options) {
  Config config = config_of(file);
  const auto layers = std::ssize(config.layers);
  const quant::Type usual = usual_cache_type(file);
  const bool exact = options.exact.value_or(file.exact);
  State state(std::move(config), Weights(std::move(file), devices_of(options, layers)));
  state.devices = state.weights.devices();
  state.cache.resize(static_cast<size_t>(layers));
  state.cache_type = options.cache_type.value_or(usual);
  state.context = options.context > 0 ? options.context : state.config.context;
  if (options.context <= 0 && options.default_context > 0)
    state.context = std::min(state.context, options.default_context);
  if (state.context > kMostRows / options.sequences)
    fail(ErrorKind::invalid, "[cache] a context of {} tokens is not possible: {} are the most", state.context,
         kMostRows / options.sequences);
  state.sequences = options.sequences;
  state.rows = pages_of(options, state.context) * kPageRows;
  state.exact = exact;
  check_room(state);
  return state;
}

}  // namespace

Model::Model(ModelFile file_read, const LoadOptions& options)
    : state_(state_of(std::move(file_read), options)),
      architecture_(find_architecture(state_.config.architecture, state_.weights.file().name)),
      pages_(pages_of(options, state_.context)),
      cancelled_(options.cancelled) {
  for (const AdapterOption& choice : options.adapters) {
    const ModelFile adapter = open_adapter(choice.path, file());
    state_.weights.add_adapter(adapter, choice.scale);
    adapters_ += fmt::format(" {} x {}", adapter.fingerprint(), choice.scale);
  }
  if (options.progress)
    state_.weights.on_read = [&, total = file().bytes()](uint64_t bytes) {
      options.progress(std::min(bytes, total), total);
    };
  // One token through all layers asks for every weight.
  Sequence sequence = new_sequence();
  run(sequence, std::vector<TokenId>{0});
  truncate(sequence, 0, pages_);
  if (const std::vector<std::string> unread = state_.weights.unread(); !unread.empty())
    fail(ErrorKind::unsupported, "[model] {}: '{}' has no place in {}", file().name, one_line(unread[0]),
         file().architecture);
  state_.weights.on_read = {};
}

Array Model::forward(const Batch& batch, std::map<std::string, Array> inputs) {
  Pass pass(state_, batch, std::move(inputs));
  return architecture_.forward(pass);
}

std::string Model::fingerprint() const {
  return file().fingerprint() + adapters_;
}

bool Model::is_recurrent() const {
  return std::ranges::any_of(config().layers, &LayerConfig::recurrent);
}

double Model::bytes_read(int64_t tokens, int64_t sequences, int64_t keys) const {
  const auto real = [](auto x) { return static_cast<double>(x); };
  const Experts& e = config().experts;
  const double chosen = e.count > 0 ? 1 - std::pow(1 - real(e.used) / real(e.count), real(tokens)) : 1;
  double bytes = 0;
  for (const auto& [name, tensor] : file().tensors) {
    const bool looked_up = (name == "token_embd.weight" && file().has("output.weight")) ||
                           name == "position_embd.weight" || name == "token_types.weight";
    const bool of_experts = name.find("_exps.") != name.npos;
    if (!looked_up) bytes += real(tensor.bytes()) * (of_experts ? chosen : 1);
  }
  for (size_t i = 0; i < state_.cache.size(); ++i) {
    if (!state_.cache[i].keys) continue;
    const int64_t window = config().layers[i].window, seen = window > 0 ? std::min(window, keys) : keys;
    for (const Array* cache : {&state_.cache[i].keys, &state_.cache[i].values})
      bytes += real(sequences * seen * cache->shape(1)) * real(size_of(cache->dtype()));
  }
  return bytes;
}

std::map<std::string, HostTensor> Model::cached(const Sequence& sequence) const {
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < std::ssize(sequence.tokens); ++i) rows.push_back(sequence.row(i));
  std::map<std::string, HostTensor> result;
  if (sequence.is_long) result[kLong] = {DType::i32, {0}, {}};
  for (size_t i = 0; i < state_.cache.size(); ++i) {
    const LayerCache& layer = state_.cache[i];
    const Device& device = state_.devices[i];
    const auto pick = [&](const Array& from, const std::vector<int32_t>& which) {
      return index_select(from, Array::from_span(std::span(which), {std::ssize(which)}, device), 0).to_host();
    };
    if (layer.keys) {
      result[fmt::format("{}.keys", i)] = pick(layer.keys, rows);
      result[fmt::format("{}.values", i)] = pick(layer.values, rows);
    }
    for (size_t j = 0; j < layer.states.size(); ++j)
      result[fmt::format("{}.state.{}", i, j)] = pick(layer.states[j], {sequence.index});
  }
  return result;
}

template <typename Work>
auto Model::or_take_back(std::span<Sequence* const> sequences, const Work& work) {
  std::vector<std::pair<size_t, bool>> before;
  for (const Sequence* sequence : sequences) before.emplace_back(sequence->tokens.size(), sequence->is_long);
  try {
    return work();
  } catch (...) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto [length, is_long] = before[i];
      const bool is_there = sequences[i]->is_long == is_long && !is_recurrent();
      truncate(*sequences[i], is_there ? std::min(sequences[i]->tokens.size(), length) : 0, pages_);
    }
    // Back to the caches that rows were to be put into. Nobody could hold them meanwhile: rows would then be
    // put into a copy.
    for (Array* cache : caches())
      while (!cache->node()->ready() && cache->node()->op->in_place) *cache = Array(cache->node()->inputs[0]);
    throw;
  }
}

Sequence Model::restore(std::span<const TokenId> tokens, const std::map<std::string, HostTensor>& tensors) {
  Sequence sequence = new_sequence();
  Sequence* const one[] = {&sequence};
  or_take_back(one, [&] { put_cached(sequence, tokens, tensors); });
  return sequence;
}

void Model::put_cached(Sequence& sequence, std::span<const TokenId> tokens,
                       const std::map<std::string, HostTensor>& tensors) {
  sequence.is_long = tensors.contains(kLong);
  Batch batch;
  append(batch, sequence, tokens, pages_, false);
  for (size_t i = 0; i < state_.cache.size(); ++i) {
    LayerCache& layer = state_.cache[i];
    const Device& device = state_.devices[i];
    const auto put = [&](Array& to, const std::string& name, const std::vector<int32_t>& rows) {
      const auto found = tensors.find(name);
      Shape shape = to.shape();
      shape[0] = std::ssize(rows);
      if (found == tensors.end() || found->second.shape != shape || found->second.dtype != to.dtype())
        fail(ErrorKind::invalid, "[model] '{}' of the saved cache does not belong to this model", name);
      to = call("put_rows", {to, Array::from_span(std::span(rows), {std::ssize(rows)}, device),
                             Array::from_host(found->second, device)});
      eval(to);
    };
    if (layer.keys) {
      put(layer.keys, fmt::format("{}.keys", i), batch.rows);
      put(layer.values, fmt::format("{}.values", i), batch.rows);
    }
    for (size_t j = 0; j < layer.states.size(); ++j)
      put(layer.states[j], fmt::format("{}.state.{}", i, j), {sequence.index});
  }
}

std::vector<Array*> Model::caches() {
  std::vector<Array*> all;
  for (LayerCache& layer : state_.cache) {
    if (layer.keys) all.insert(all.end(), {&layer.keys, &layer.values});
    for (Array& state : layer.states) all.push_back(&state);
  }
  return all;
}

std::vector<Array> Model::call_with_caches(const ArraysFunction& recorded, std::vector<Array> arguments) {
  const std::vector<Array*> all = caches();
  for (const Array* cache : all) arguments.push_back(*cache);
  const auto take = [&](const std::vector<Array>& from) {
    for (size_t i = 0; i < all.size(); ++i) *all[i] = from[from.size() - all.size() + i];
  };
  try {
    std::vector<Array> results = recorded(arguments);
    take(results);
    return results;
  } catch (...) {
    take(arguments);  // a recording that was not finished leaves its stand-ins
    throw;
  }
}

Array Model::evaluate(const Batch& batch) {
  if (steps_.possible()) return passes_.run(batch);
  std::vector<Array> wanted = {forward(batch)};
  for (const Array* cache : caches()) wanted.push_back(*cache);
  eval(wanted);
  return wanted[0];
}

std::vector<float> Model::run(Sequence& sequence, std::span<const TokenId> tokens, bool all) {
  return run_text(sequence, tokens, all, false);
}

std::vector<float> Model::activations(Sequence& sequence, std::span<const TokenId> tokens) {
  return run_text(sequence, tokens, true, true);
}

void Model::check(const Sequence& sequence, std::span<const TokenId> tokens) const {
  for (TokenId id : tokens)
    if (id < 0 || id >= config().vocabulary)
      fail(ErrorKind::invalid, "[model] token {} is not one of {}", id, config().vocabulary);
  if (std::ssize(sequence.tokens) + std::ssize(tokens) > context())
    fail(ErrorKind::invalid, "[model] {} tokens are more than the context of {}",
         sequence.tokens.size() + tokens.size(), context());
}

std::vector<TokenId> Model::across_border(Sequence& sequence, std::span<const TokenId> tokens) {
  const bool is_long = std::ssize(sequence.tokens) + std::ssize(tokens) > config().rope_border();
  if (is_long == sequence.is_long) return {};
  std::vector<TokenId> all = sequence.tokens;
  all.insert(all.end(), tokens.begin(), tokens.end());
  truncate(sequence, 0, pages_);
  sequence.is_long = is_long;
  return all;
}

std::vector<float> Model::run_text(Sequence& sequence, std::span<const TokenId> tokens, bool all,
                                   bool activations) {
  check(sequence, tokens);
  Sequence* const one[] = {&sequence};
  return or_take_back(one, [&] {
    const size_t before = sequence.tokens.size();
    const std::vector<TokenId> anew = across_border(sequence, tokens);
    std::vector<float> logits = run_parts(sequence, anew.empty() ? tokens : anew, all, activations);
    if (all && !anew.empty())
      logits.erase(logits.begin(),
                   logits.begin() + static_cast<ptrdiff_t>(logits.size() / anew.size() * before));
    return logits;
  });
}

std::vector<float> Model::run_parts(Sequence& sequence, std::span<const TokenId> tokens, bool all,
                                    bool activations) {
  std::vector<float> logits;
  std::unique_ptr<PendingRead> done;
  while (!tokens.empty()) {
    // Where later tokens matter to earlier ones they all go together.
    const size_t count = config().causal ? std::min<size_t>(kPassTokens, tokens.size()) : tokens.size();
    Array made;
    if (count == 1 && !activations && steps_.possible()) {
      made = steps_.logits({{&sequence, std::ssize(sequence.tokens), tokens[0]}});
    } else {
      Batch batch{.activations = activations};
      append(batch, sequence, tokens.first(count), pages_, all);
      const Sequence* one[] = {&sequence};
      add_keys(batch, one);
      made = evaluate(batch);
    }
    tokens = tokens.subspan(count);
    if (!all && !tokens.empty()) {
      if (!cancelled_) continue;
      // It is asked when the part before this one is done: the device does not rest meanwhile.
      if (done) done->wait();
      done = made.device().backend().read_later(value_of(made).storage, 0, sizeof(float));
      if (cancelled_()) return {};
      continue;
    }
    std::vector<float> part = made.to_vector();
    if (logits.empty())
      logits = std::move(part);
    else
      logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

std::vector<float> Model::run(std::span<const Turn> turns) {
  int64_t pages = 0;
  std::vector<Sequence*> sequences;
  for (const Turn& turn : turns) {
    check(turn.sequence, turn.tokens);
    sequences.push_back(&turn.sequence);
    if (turn.tokens.empty()) fail(ErrorKind::invalid, "[model] there are no tokens to run");
    pages += missing_pages(turn.sequence, std::ssize(turn.sequence.tokens) + std::ssize(turn.tokens));
  }
  if (pages > pages_.left())
    fail(ErrorKind::memory, "[cache] {} pages are needed, and {} are left", pages, pages_.left());
  return or_take_back(sequences, [&] { return run_turns(turns); });
}

std::vector<float> Model::run_turns(std::span<const Turn> turns) {
  std::vector<Turn> now;  // what is left for the pass
  for (const Turn& turn : turns) {
    const std::vector<TokenId> anew = across_border(turn.sequence, turn.tokens);
    now.push_back({turn.sequence, anew.empty() ? turn.tokens : turn.tokens.last(1)});
    if (!anew.empty()) run_parts(turn.sequence, std::span(anew).first(anew.size() - 1), false, false);
  }
  const auto width = static_cast<ptrdiff_t>(config().vocabulary);
  std::vector<float> results;
  for (const bool is_long : {false, true}) {  // keys are turned by one table in a pass
    std::vector<Turn> alike;
    std::vector<ptrdiff_t> places;
    for (const Turn& turn : now) {
      if (turn.sequence.is_long != is_long) continue;
      alike.push_back(turn);
      places.push_back(&turn - now.data());
    }
    if (alike.empty()) continue;
    std::vector<float> rows = run_together(alike).to_vector();
    rows.resize(alike.size() * static_cast<size_t>(width));  // a pass may have more than there are turns
    if (alike.size() == turns.size()) return rows;
    results.resize(turns.size() * static_cast<size_t>(width));
    for (size_t i = 0; i < places.size(); ++i)
      std::copy_n(rows.begin() + static_cast<ptrdiff_t>(i) * width, width,
                  results.begin() + places[i] * width);
  }
  return results;
}

Array Model::run_together(std::span<const Turn> turns) {
  const bool one_each = std::ranges::all_of(turns, [](const Turn& turn) { return turn.tokens.size() == 1; });
  if (one_each && steps_.possible()) {
    std::vector<Steps::Place> places;
    for (const Turn& turn : turns)
      places.push_back({&turn.sequence, std::ssize(turn.sequence.tokens), turn.tokens[0]});
    return steps_.logits(std::move(places));
  }
  Batch batch;
  std::vector<const Sequence*> sequences;
  for (const Turn& turn : turns) {
    append(batch, turn.sequence, turn.tokens, pages_, false);
    sequences.push_back(&turn.sequence);
  }
  add_keys(batch, sequences);
  return evaluate(batch);
}

}  // namespace weft::llm
