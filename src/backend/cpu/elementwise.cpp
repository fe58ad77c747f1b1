// Fused elementwise programs: op by op over tiles that stay in L1, so that a chain reads and writes memory
// once.
#include <hwy/cache_control.h>

#include <algorithm>

#include "backend/cpu/elementwise_run.h"
#include "backend/cpu/machine.h"

namespace weft::cpu {
namespace {

constexpr int64_t kTile = 512;  // elements; a register is mostly 2 KiB, a chain of a few fits in L1
// Where several arrays make one that goes past the caches: memory reads and writes at the same time only if
// neither lasts long. a * b + a runs at 88 % of a copy's speed then, with tiles of 512 at 78 %.
constexpr int64_t kStreamedTile = 256;
constexpr int64_t kShortRow = 64;  // elements up to which several rows share a tile

}  // namespace

Elementwise::Elementwise(const ElementwiseProgram& program, std::span<const Tensor> inputs,
                         std::span<const Tensor> outputs)
    : program_(program), inputs_(inputs), outputs_(outputs), shape_(outputs[0].layout.shape), tile_(kTile) {
  const auto is_scalar = [](const Tensor& t) {
    return std::ranges::all_of(t.layout.strides, [](int64_t s) { return s == 0; });
  };
  for (const Tensor& t : inputs) {
    flat_ = flat_ && (Layout{shape_, t.layout.strides, 0}.is_contiguous() || is_scalar(t));
    flat_strides_.push_back(is_scalar(t) ? 0 : 1);
  }
  const auto streamed = [](const Tensor& t) { return is_streamed(t); };
  if (flat_ && inputs.size() > 1 && std::ranges::any_of(outputs, streamed)) tile_ = kStreamedTile;
  const auto is_run = [&](const Tensor& t) {
    return t.dtype == outputs[0].dtype && !is_scalar(t) && (flat_ || t.layout.strides.back() == 1);
  };
  direct_ = program.instructions.size() == 1 &&
            streamed_form(*program.instructions[0].op, outputs[0].dtype) &&
            program.stores == std::vector{static_cast<int>(inputs.size())} &&
            std::ranges::all_of(inputs, is_run) && is_run(outputs[0]) && streamed(outputs[0]);
  row_ = flat_ ? element_count(shape_) : shape_.back();
  if (!flat_ && row_ <= kShortRow && shape_.size() > 1) rows_ = shape_[shape_.size() - 2];
}

Machine Elementwise::machine() const {
  return Machine(program_, tile_, outputs_);
}

int64_t Elementwise::direct_from(int64_t at, int64_t end) const {
  const std::byte* to = outputs_[0].data + at * static_cast<int64_t>(size_of(outputs_[0].dtype));
  return direct_ && reinterpret_cast<uintptr_t>(to) % kLineBytes == 0 ? (end - at) / kTile * kTile : 0;
}

void Elementwise::run(Machine& machine, int64_t begin, int64_t end) const {
  for (size_t k = 0; k < inputs_.size(); ++k)  // scalars are the same in every tile
    if (flat_ && flat_strides_[k] == 0) machine.load(k, inputs_[k], inputs_[k].layout.offset, 0, tile_);
  for (int64_t at = begin; at < end;) {
    const int64_t row = flat_ ? 0 : at / row_, column = at - row * row_;
    const int64_t until = std::min(end, at + row_ - column), direct = direct_from(at, until);
    int64_t n = direct > 0 ? direct : std::min(until - at, tile_), rows = 1;
    if (rows_ > 1 && column == 0 && n == row_)
      rows = std::min({(end - at) / row_, tile_ / row_, rows_ - row % rows_});
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const Layout& l = inputs_[k].layout;
      if (flat_) {
        if (direct > 0)
          machine.refer(k, inputs_[k], l.offset + at);
        else if (flat_strides_[k] == 1)
          machine.load(k, inputs_[k], l.offset + at, 1, n);
        continue;
      }
      int64_t offset = l.offset + column * l.strides.back(), rest = row;
      for (size_t d = shape_.size() - 1; d-- > 0; rest /= shape_[d])
        offset += rest % shape_[d] * l.strides[d];
      if (direct > 0)
        machine.refer(k, inputs_[k], offset);
      else if (rows > 1)
        machine.load_rows(k, inputs_[k], offset, l.strides[shape_.size() - 2], rows, l.strides.back(), n);
      else
        machine.load(k, inputs_[k], offset, l.strides.back(), n);
    }
    if (direct > 0)
      machine.run_direct(outputs_[0], at, n);
    else
      machine.run(at, rows * n);
    at += rows * n;
  }
  hwy::FlushStream();
}

void run_elementwise(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs) {
  const auto count = static_cast<size_t>(element_count(outputs[0].layout.shape));
  if (count == 0) return;
  const Elementwise elementwise(program, inputs, outputs);
  const size_t share = count / (4 * static_cast<size_t>(pool.threads())) / kTile * kTile;
  pool.for_each(count, std::max<size_t>(32 * kTile, share), [&](size_t begin, size_t end) {
    Machine machine = elementwise.machine();
    elementwise.run(machine, static_cast<int64_t>(begin), static_cast<int64_t>(end));
  });
}

}  // namespace weft::cpu
