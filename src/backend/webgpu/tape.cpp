#include "backend/webgpu/tape.h"

#include <algorithm>
#include <bit>

#include "backend/elementwise.h"

namespace weft::webgpu {

uint32_t constant_word(DType dtype, double value) {
  switch (lane_of(dtype)) {
    case Lane::f32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case Lane::boolean:
      return value != 0;
    default:
      return static_cast<uint32_t>(static_cast<int64_t>(value));
  }
}

Context::Context(gpu::Device& on, Tape& tape, std::span<const gpu::Buffer* const> buffers)
    : device(on), software(on.type() == gpu::AdapterType::cpu), tape_(tape) {
  for (const gpu::Buffer* buffer : buffers)
    places_.insert({buffer->state().get(), static_cast<int>(places_.size())});
  given_ = places_.size();
}

gpu::Buffer Context::scratch(int64_t words, std::string_view label) {
  const uint64_t bytes = static_cast<uint64_t>(std::max<int64_t>(words, 1)) * 4;
  const size_t slot = used_++;
  if (slot == slots_.size()) slots_.emplace_back(), tape_.scratch.push_back(0);
  if (tape_.scratch[slot] < bytes) {
    slots_[slot] = device.alloc(bytes, label);
    tape_.scratch[slot] = bytes;
    places_.insert({slots_[slot].state().get(), static_cast<int>(given_ + slot)});
    held_.push_back(slots_[slot]);
  }
  return slots_[slot];
}

Way Context::choose(Question question) {
  Way way = tuning ? tuning->answer(question) : question.usual;
  asked.push_back({step_, std::move(question)});
  return way;
}

int Context::place_of(const gpu::Buffer& buffer) const {
  const auto found = places_.find(buffer.state().get());
  return found == places_.end() ? -1 : found->second;
}

void Context::dispatch(const gpu::Kernel& kernel, std::span<const gpu::Binding> bindings, gpu::Grid grid,
                       Tape::Dispatch numbers) {
  numbers.kernel = kernel;
  numbers.grid = grid;
  for (const gpu::Binding& b : bindings) {
    const int place = place_of(b.buffer);
    const bool whole = b.offset == 0 && (b.size == 0 || b.size == b.buffer.size());
    numbers.bindings.push_back({.buffer = place,
                                .fixed = place < 0 ? b.buffer : gpu::Buffer(),
                                .offset = b.offset,
                                .size = whole ? 0 : b.size});
  }
  tape_.dispatches.push_back(std::move(numbers));
}

bool Tape::set(std::span<const double> constants) {
  bool tables_change = false;
  for (Dispatch& d : dispatches)
    for (const ConstantWord& c : d.constants) {
      const uint32_t word = constant_word(c.dtype, constants[static_cast<size_t>(c.constant)]);
      tables_change |= d.table && d.numbers[c.word] != word;
      d.numbers[c.word] = word;
    }
  return tables_change;
}

void Tape::write_tables(gpu::Device& device) const {
  for (const Dispatch& d : dispatches)
    if (d.table && !d.constants.empty()) device.write(d.table, 0, std::as_bytes(std::span(d.numbers)));
}

const gpu::Series& Tape::on(const gpu::Device& device, std::span<const gpu::Buffer* const> buffers) {
  constexpr size_t kMostSets = 4;
  std::vector<uint64_t> key;
  key.reserve(3 * buffers.size());
  for (const gpu::Buffer* buffer : buffers) {
    key.push_back(reinterpret_cast<uintptr_t>(buffer->state().get()));
    key.push_back(buffer->memory());
    key.push_back(buffer->size());
  }
  std::erase_if(bound_, [](const Bound& b) { return !b.series.is_bound(); });
  if (const auto known = std::ranges::find(bound_, key, &Bound::key); known != bound_.end()) {
    std::rotate(known, known + 1, bound_.end());
    return bound_.back().series;
  }
  gpu::Series series(device.state());
  std::vector<gpu::BindingView> bindings;
  for (const Dispatch& d : dispatches) {
    bindings.clear();
    for (const Part& part : d.bindings) {
      const gpu::Buffer& buffer = part.buffer < 0 ? part.fixed : *buffers[static_cast<size_t>(part.buffer)];
      // The size is part of what a bind group is known by. Kernels that load vectors ask for one at least.
      bindings.push_back(
          {buffer.state().get(), part.offset, part.size ? part.size : std::max<uint64_t>(buffer.size(), 16)});
    }
    const auto words = std::as_bytes(std::span(d.numbers));
    series.add(d.kernel, bindings, d.grid, d.table ? std::span<const std::byte>() : words);
  }
  if (bound_.size() == kMostSets) bound_.erase(bound_.begin());
  bound_.push_back({std::move(key), std::move(series)});
  return bound_.back().series;
}

}  // namespace weft::webgpu
