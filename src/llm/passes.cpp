#include "llm/passes.h"

#include <algorithm>

#include "llm/model.h"

namespace weft::llm {
namespace {

constexpr size_t kMostRecorded = 2;  // each keeps the memory that it works in

/// What changes from pass to pass, by the names that Pass has for it.
constexpr std::pair<const char*, std::vector<int32_t> Batch::*> kInputs[] = {
    {"tokens", &Batch::tokens},
    {"positions", &Batch::positions},
    {"sequences", &Batch::sequences},
    {"rows", &Batch::rows},
    {"key rows", &Batch::key_rows},
    {"key positions", &Batch::key_positions},
    {"key sequences", &Batch::key_sequences},
    {"outputs", &Batch::outputs}};

}  // namespace

ArraysFunction Passes::record(const Batch& batch) {
  std::vector<size_t> taken;
  for (size_t i = 0; i < model_.caches().size(); ++i) taken.push_back(std::size(kInputs) + i);
  const auto f = [this, batch](const std::vector<Array>& given) {
    std::map<std::string, Array> inputs;
    auto next = given.begin();
    for (const auto& [name, values] : kInputs) inputs[name] = *next++;
    const std::vector<Array*> caches = model_.caches();
    for (Array* cache : caches) *cache = *next++;
    std::vector<Array> results = {model_.forward(batch, inputs)};
    for (const Array* cache : caches) results.push_back(*cache);
    return results;
  };
  return compile(f, taken);
}

ArraysFunction& Passes::recorded(const Batch& batch) {
  std::vector<size_t> shape = {batch.activations, batch.is_long, static_cast<size_t>(batch.pitch)};
  for (const auto& [name, values] : kInputs) shape.push_back((batch.*values).size());
  const auto found = std::ranges::find(recorded_, shape, &Recorded::shape);
  if (found != recorded_.end()) {
    std::rotate(found, found + 1, recorded_.end());
  } else {
    if (recorded_.size() == kMostRecorded) recorded_.erase(recorded_.begin());
    recorded_.push_back({std::move(shape), record(batch)});
  }
  return recorded_.back().function;
}

Array Passes::run(const Batch& batch) {
  std::vector<Array> arguments;
  for (const auto& [name, values] : kInputs)
    arguments.push_back(
        Array::from_span(std::span(batch.*values), {std::ssize(batch.*values)}, model_.device()));
  return model_.call_with_caches(recorded(batch), std::move(arguments))[0];
}

}  // namespace weft::llm
