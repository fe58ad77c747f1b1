#include "llm/steps.h"

#include <algorithm>
#include <bit>

#include "array/node.h"
#include "llm/model.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

// Positions of the table. Numbers of keys are multiples of it, so they are the same for all of its positions.
constexpr int64_t kPositions = kKeyStep;
constexpr int64_t kLogits = -1;  // what a step may end with in the place of a token
constexpr double kShareSteps = 1 << 24;

enum Column { kRow, kPosition, kShare, kIndex, kNext, kColumns };

enum Argument { kToken, kAt, kTable, kKeyRows, kSettings, kIds, kFirstCache };

/// Keys that a step of a text of `count` is recorded for. Kernels of attention look at those that a token
/// sees, so a few numbers do, up to all that a context has. Where rows are unpacked or kernels composed each
/// costs.
int64_t recorded_keys(Model& model, int64_t count) {
  const auto filled = [](int64_t keys) {
    return static_cast<int64_t>(filled_keys(static_cast<size_t>(keys)));
  };
  const bool floats = is_float(model.caches()[0]->dtype());
  if (!floats || !model.device().backend().has_kernel("cached_attention")) return filled(count);
  int64_t keys = model.context();
  for (const int64_t fewer : {4096, 1024, 128})
    if (count <= fewer) keys = std::min(keys, fewer);
  return filled(keys);
}

Array upload(const std::vector<int32_t>& values, const Shape& shape, const Device& device) {
  return Array::from_span(std::span(values), shape, device);
}

}  // namespace

bool Steps::possible() const {
  const Config& config = model_.config();
  const bool here =
      std::ranges::all_of(model_.devices(), [&](const Device& d) { return d == model_.device(); });
  const bool fixed = std::ranges::none_of(config.ropes, [](const RopeConfig& r) {
    return r.scaling == "dynamic";  // whose tables depend on the length
  });
  return here && fixed && config.causal && !model_.is_recurrent() &&
         !model_.caches().empty();  // not the first pass of all
}

template <typename T>
void Steps::put(Array& to, const std::vector<T>& values, const Shape& shape) {
  if (!to)
    to = Array::from_span(std::span(values), shape, model_.device());
  else
    model_.device().backend().write(value_of(to).storage, 0, std::as_bytes(std::span(values)));
}

/// The table, and the rows of all keys, for a position that is not the one after the last step's.
void Steps::move_to(Sequence& sequence, int64_t position, const Share& share) {
  const int64_t first = position / kPositions * kPositions,
                end = std::min(first + kPositions, model_.context());
  while (std::ssize(sequence.pages) * kPageRows < end) sequence.pages.push_back(model_.pages().take());
  std::vector<int32_t> table, at;
  for (int64_t i = 0; i < kPositions; ++i) {
    const int64_t p = first + i;
    const double drawn = share && p >= position && p < end ? share(p) : 0;
    const int32_t columns[kColumns] = {p < end ? sequence.row(p) : 0, static_cast<int32_t>(p),
                                       static_cast<int32_t>(drawn * kShareSteps), static_cast<int32_t>(i),
                                       static_cast<int32_t>(std::min(i + 1, kPositions - 1))};
    table.insert(table.end(), columns, columns + kColumns);
    if (p == position) at.assign(columns, columns + kColumns);
  }
  std::vector<int32_t> rows(filled_keys(static_cast<size_t>(model_.context())), 0);
  for (int64_t p = 0; p < end; ++p) rows[static_cast<size_t>(p)] = sequence.row(p);
  put(table_, table, {kPositions, kColumns});
  put(at_, at, {1, kColumns});
  put(rows_, rows, {std::ssize(rows)});
  key_rows_ = slice_dim(rows_, 0, 0, recorded_keys(model_, position + 1));
  pages_ = sequence.pages;
  position_ = position;
}

/// One token of each of several sequences, whose numbers are given.
Array Steps::forward(std::map<std::string, Array> inputs, bool is_long, std::span<const Array> caches) {
  const Device& device = model_.device();
  const int64_t sequences = inputs["tokens"].size(), keys = inputs["key rows"].size();
  Batch batch{.pitch = keys / sequences, .is_long = is_long};
  std::vector<int32_t> numbers, positions, of;
  for (int32_t s = 0; s < sequences; ++s) numbers.push_back(s);
  for (int32_t i = 0; i < keys; ++i) {
    positions.push_back(i % static_cast<int32_t>(batch.pitch));
    of.push_back(i / static_cast<int32_t>(batch.pitch));
  }
  // Keys behind a token are not seen because of their positions: nothing has to say which are fill.
  inputs["sequences"] = upload(numbers, {sequences}, device);
  inputs["key positions"] = upload(positions, {keys}, device);
  inputs["key sequences"] = upload(of, {keys}, device);
  batch.tokens = batch.positions = batch.sequences = batch.rows = batch.outputs = numbers;
  const std::vector<Array*> all = model_.caches();
  for (size_t i = 0; i < all.size(); ++i) *all[i] = caches[i];
  return model_.forward(batch, std::move(inputs));
}

ArraysFunction Steps::record(int64_t ends) {
  std::vector<size_t> taken = {kIds};
  for (size_t i = 0; i < model_.caches().size(); ++i) taken.push_back(kFirstCache + i);
  const auto f = [this, ends, is_long = is_long_](const std::vector<Array>& given) {
    const auto column = [&](Column c) { return reshape(slice_dim(given[kAt], 1, c, c + 1), {1}); };
    Array made = forward({{"tokens", given[kToken]},
                          {"positions", column(kPosition)},
                          {"rows", column(kRow)},
                          {"key rows", given[kKeyRows]}},
                         is_long, std::span(given).subspan(kFirstCache)),
          ids = given[kIds];
    if (ends != kLogits) {
      const Array share = as(column(kShare), DType::f32) * (1 / kShareSteps);
      made = choose(ends, made, share, given[kSettings]);
      ids = call("put_rows", {ids, column(kIndex), reshape(made, {1, 1})});
    }
    std::vector<Array> results = {made, index_select(given[kTable], column(kNext), 0), ids};
    for (const Array* cache : model_.caches()) results.push_back(*cache);
    return results;
  };
  return compile(f, taken);
}

ArraysFunction Steps::record_batches(bool is_long) {
  enum { kTokens, kPositions, kRows, kKeyRows, kFirstCache };
  std::vector<size_t> taken;
  for (size_t i = 0; i < model_.caches().size(); ++i) taken.push_back(kFirstCache + i);
  const auto f = [this, is_long](const std::vector<Array>& given) {
    std::vector<Array> results = {forward({{"tokens", given[kTokens]},
                                           {"positions", given[kPositions]},
                                           {"rows", given[kRows]},
                                           {"key rows", given[kKeyRows]}},
                                          is_long, std::span(given).subspan(kFirstCache))};
    for (const Array* cache : model_.caches()) results.push_back(*cache);
    return results;
  };
  return compile(f, taken);
}

Array Steps::logits(const Batch& batch) {
  // Filled up to a power of two with tokens whose keys go to the page of nobody.
  const auto count = std::bit_ceil(batch.tokens.size());
  const auto list = [&](std::vector<int32_t> values, size_t size) {
    values.resize(size, 0);
    return upload(values, {static_cast<int64_t>(size)}, model_.device());
  };
  std::vector<Array> arguments = {list(batch.tokens, count), list(batch.positions, count),
                                  list(batch.rows, count),
                                  list(batch.key_rows, count * static_cast<size_t>(batch.pitch))};
  const std::vector<Array*> caches = model_.caches();
  for (const Array* cache : caches) arguments.push_back(*cache);
  ArraysFunction& function = batches_[batch.is_long ? 1 : 0];
  if (!function) function = record_batches(batch.is_long);
  const std::vector<Array> results = function(arguments);
  for (size_t i = 0; i < caches.size(); ++i) *caches[i] = results[1 + i];
  return results[0];
}

Array Steps::step(int64_t ends) {
  if (!ids_) put(ids_, std::vector<int32_t>(kPositions, 0), {kPositions, 1});
  if (!settings_) put(settings_, Choice().settings(), {3});
  std::vector<Array> arguments = {token_, at_, table_, key_rows_, settings_, ids_};
  const std::vector<Array*> caches = model_.caches();
  for (const Array* cache : caches) arguments.push_back(*cache);
  ArraysFunction& function = recorded_[{ends, is_long_}];
  if (!function) function = record(ends);
  const std::vector<Array> results = function(arguments);
  at_ = results[kAt];
  ids_ = results[2];
  for (size_t i = 0; i < caches.size(); ++i) *caches[i] = results[3 + i];
  ++position_;
  return results[0];
}

Array Steps::logits(Sequence& sequence, TokenId token) {
  const auto position = std::ssize(sequence.tokens);
  is_long_ = sequence.is_long;
  if (position != position_ || position % kPositions == 0 || sequence.pages != pages_)
    move_to(sequence, position, {});
  sequence.tokens.push_back(token);
  put(token_, std::vector{token}, {1});
  return step(kLogits);
}

void Steps::start(Sequence& sequence, TokenId token, const Choice& choice, Share share) {
  sequence_ = &sequence;
  is_long_ = sequence.is_long;
  share_ = std::move(share);
  top_k_ = choice.top_k;
  put(settings_, choice.settings(), {3});
  put(token_, std::vector{token}, {1});
  move_to(sequence, std::ssize(sequence.tokens), share_);
}

Steps::Chosen Steps::run(int64_t count) {
  const int64_t index = position_ % kPositions;
  if (index == 0) move_to(*sequence_, position_, share_);
  Chosen chosen{.count = std::min(count, kPositions - index)};
  Backend& backend = model_.device().backend();
  backend.as_one([&] {
    for (int64_t i = 0; i < chosen.count; ++i) token_ = step(top_k_);
    const uint64_t word = sizeof(int32_t);
    chosen.ids = backend.read_later(value_of(ids_).storage, static_cast<uint64_t>(index) * word,
                                    static_cast<uint64_t>(chosen.count) * word);
  });
  return chosen;
}

}  // namespace weft::llm
