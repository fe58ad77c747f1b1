#include "llm/steps.h"

#include <algorithm>
#include <bit>

#include "array/node.h"
#include "llm/model.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

// Steps of the table. Numbers of keys are multiples of it, so they are the same for all of its steps.
constexpr int64_t kSteps = kKeyStep;
constexpr int64_t kLogits = -1;  // what a step may end with in the place of tokens
constexpr double kShareSteps = 1 << 24;

// Of the table: the first three for each place, then two of the step's own.
enum Column { kRow, kPosition, kShare, kIndex, kNext };

enum Argument { kTokens, kAt, kTable, kKeyRows, kSettings, kIds, kFirstCache };

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

/// Those that the host knows; the others are where the step before left them.
void Steps::put_tokens() {
  const auto is_known = [](const Place& place) { return !place.sequence || place.token != kNoToken; };
  std::vector<TokenId> ids;
  for (const Place& place : places_) ids.push_back(place.sequence ? place.token : 0);
  if (std::ranges::all_of(places_, is_known)) return put(lists().tokens, ids, {std::ssize(ids)});
  for (size_t i = 0; i < ids.size(); ++i)
    if (is_known(places_[i]))
      model_.device().backend().write(value_of(lists().tokens).storage, i * sizeof(TokenId),
                                      std::as_bytes(std::span(&ids[i], 1)));
}

/// The table and the rows of all keys, from the places' positions on. It ends where the longest sequence
/// may need more keys than it is recorded for, and where there are no pages for more.
void Steps::put_table() {
  next_ = end_ = 0;
  int64_t longest = 0;
  for (const Place& place : places_) longest = std::max(longest, place.position);
  int64_t steps = kSteps - longest % kSteps;
  const auto end_of = [&](const Place& place) { return std::min(place.position + steps, model_.context()); };
  const auto missing = [&] {  // pages
    int64_t count = 0;
    for (const Place& place : places_)
      if (place.sequence) count += missing_pages(*place.sequence, end_of(place));
    return count;
  };
  while (steps > 1 && missing() > model_.pages().left()) --steps;
  keys_ = recorded_keys(model_, longest + 1);

  const auto n = std::ssize(places_), columns = kIndex * n + 2;
  std::vector<int32_t> table(static_cast<size_t>(kSteps * columns));
  const auto cell = [&](int64_t step, int64_t column) -> int32_t& {
    return table[static_cast<size_t>(step * columns + column)];
  };
  pages_.assign(places_.size(), {});
  for (int64_t i = 0; i < n; ++i) {
    const Place& place = places_[static_cast<size_t>(i)];
    if (!place.sequence) continue;  // row 0 is on the page of nobody
    Sequence& sequence = *place.sequence;
    const int64_t end = end_of(place);
    while (std::ssize(sequence.pages) * kPageRows < end) sequence.pages.push_back(model_.pages().take());
    pages_[static_cast<size_t>(i)] = sequence.pages;
    for (int64_t p = place.position; p < end; ++p) {
      const int64_t step = p - place.position;
      cell(step, kRow * n + i) = sequence.row(p);
      cell(step, kPosition * n + i) = static_cast<int32_t>(p);
      if (place.share) cell(step, kShare * n + i) = static_cast<int32_t>(place.share(p) * kShareSteps);
    }
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    cell(step, kIndex * n) = static_cast<int32_t>(step);
    cell(step, kIndex * n + 1) = static_cast<int32_t>(std::min(step + 1, kSteps - 1));
  }
  put(lists().table, table, {kSteps, columns});
  put(lists().at, std::vector(table.begin(), table.begin() + columns), {1, columns});
  put_key_rows();
  end_ = steps;
}

/// Those of pages that are new.
void Steps::put_key_rows() {
  const auto n = std::ssize(places_);
  auto& [rows, known] = lists().key_rows[keys_];
  if (!rows) {
    put(rows, std::vector<int32_t>(static_cast<size_t>(n * keys_)), {n * keys_});
    known.resize(places_.size());
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i].sequence) continue;
    const Sequence& sequence = *places_[i].sequence;
    const auto same = std::ranges::mismatch(sequence.pages, known[i]).in1 - sequence.pages.begin();
    std::vector<int32_t> fresh;
    for (int64_t p = same * kPageRows; p < std::min(std::ssize(sequence.pages) * kPageRows, keys_); ++p)
      fresh.push_back(sequence.row(p));
    known[i] = sequence.pages;
    if (fresh.empty()) continue;
    const int64_t first = static_cast<int64_t>(i) * keys_ + same * kPageRows;
    model_.device().backend().write(value_of(rows).storage, static_cast<uint64_t>(first) * sizeof(int32_t),
                                    std::as_bytes(std::span(fresh)));
  }
}

ArraysFunction Steps::record(int64_t ends) {
  std::vector<size_t> taken = {kIds};
  for (size_t i = 0; i < model_.caches().size(); ++i) taken.push_back(kFirstCache + i);
  const auto f = [this, ends, is_long = is_long_](const std::vector<Array>& given) {
    const Device& device = model_.device();
    const int64_t n = given[kTokens].size(), keys = given[kKeyRows].size();
    const auto cells = [&](int64_t first, int64_t count) {
      return reshape(slice_dim(given[kAt], 1, first, first + count), {count});
    };
    const auto column = [&](Column c) {
      return c < kIndex ? cells(c * n, n) : cells(kIndex * n + c - kIndex, 1);
    };
    Batch batch{.pitch = keys / n, .is_long = is_long};
    std::vector<int32_t> numbers, positions, of;
    for (int32_t i = 0; i < n; ++i) numbers.push_back(i);
    for (int32_t i = 0; i < keys; ++i) {
      positions.push_back(i % static_cast<int32_t>(batch.pitch));
      of.push_back(i / static_cast<int32_t>(batch.pitch));
    }
    batch.tokens = batch.positions = batch.sequences = batch.rows = batch.outputs = numbers;
    const std::vector<Array*> caches = model_.caches();
    for (size_t i = 0; i < caches.size(); ++i) *caches[i] = given[kFirstCache + i];
    // Keys behind a token are not seen because of their positions: nothing has to say which are fill.
    Array made = model_.forward(batch, {{"tokens", given[kTokens]},
                                        {"positions", column(kPosition)},
                                        {"rows", column(kRow)},
                                        {"sequences", upload(numbers, {n}, device)},
                                        {"key rows", given[kKeyRows]},
                                        {"key positions", upload(positions, {keys}, device)},
                                        {"key sequences", upload(of, {keys}, device)}});
    Array ids = given[kIds];
    if (ends != kLogits) {
      const Array share = as(column(kShare), DType::f32) * (1 / kShareSteps);
      made = choose(ends, made, share, given[kSettings]);
      ids = call("put_rows", {ids, column(kIndex), reshape(made, {1, n})});
    }
    std::vector<Array> results = {made, index_select(given[kTable], column(kNext), 0), ids};
    for (const Array* cache : caches) results.push_back(*cache);
    return results;
  };
  return compile(f, taken);
}

Array Steps::step(int64_t ends) {
  Lists& of = lists();
  const auto n = std::ssize(places_);
  if (!of.ids) put(of.ids, std::vector<int32_t>(static_cast<size_t>(kSteps * n), 0), {kSteps, n});
  std::vector<Array> arguments = {of.tokens, of.at, of.table, of.key_rows[keys_].rows, of.settings, of.ids};
  ArraysFunction& function = recorded_[{ends, is_long_}];
  if (!function) function = record(ends);
  const std::vector<Array> results = model_.call_with_caches(function, std::move(arguments));
  of.at = results[1];
  of.ids = results[2];
  ++next_;
  return results[0];
}

/// Whether the table has the next step of these places.
bool Steps::goes_on(const std::vector<Place>& places) const {
  if (places.size() != places_.size() || next_ == end_) return false;
  for (size_t i = 0; i < places.size(); ++i) {
    const Sequence* sequence = places[i].sequence;
    if (sequence ? places[i].position != places_[i].position + next_ || sequence->pages != pages_[i] ||
                       sequence->is_long != is_long_
                 : !pages_[i].empty())
      return false;
  }
  return true;
}

Array Steps::logits(std::vector<Place> places) {
  places.resize(std::bit_ceil(places.size()));
  if (goes_on(places)) {
    for (size_t i = 0; i < places.size(); ++i) places_[i].token = places[i].token;
    put_tokens();
    ++started_;
  } else {
    start(places);
  }
  for (const Place& place : places)
    if (place.sequence) place.sequence->tokens.push_back(place.token);
  return step(kLogits);
}

void Steps::start(std::vector<Place> places) {
  ++started_;
  places_ = std::move(places);
  places_.resize(std::bit_ceil(places_.size()));
  std::vector<float> settings;
  is_long_ = false;
  for (const Place& place : places_) {
    is_long_ |= place.sequence && place.sequence->is_long;
    const auto of_place = place.choice.settings();
    settings.insert(settings.end(), of_place.begin(), of_place.end());
  }
  put(lists().settings, settings, {std::ssize(places_), Choice::kSettings});
  put_tokens();
  put_table();
}

Steps::Chosen Steps::run(int64_t count) {
  if (next_ == end_) {
    for (Place& place : places_) place.position += place.sequence ? end_ : 0;
    put_table();
  }
  const auto n = std::ssize(places_);
  int64_t top_k = 0;
  for (const Place& place : places_)
    if (place.sequence) top_k = std::max(top_k, place.choice.top_k);
  Chosen chosen{.count = std::min(count, end_ - next_), .places = n};
  Backend& backend = model_.device().backend();
  backend.as_one([&] {
    const auto bytes = [n](int64_t steps) { return static_cast<uint64_t>(steps * n) * sizeof(int32_t); };
    const uint64_t first = bytes(next_);
    for (int64_t i = 0; i < chosen.count; ++i) lists().tokens = step(top_k);
    chosen.ids = backend.read_later(value_of(lists().ids).storage, first, bytes(chosen.count));
  });
  return chosen;
}

}  // namespace weft::llm
