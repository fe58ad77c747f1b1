// Fused elementwise programs: op by op over tiles that stay in L1, so that a chain reads and writes memory
// once.
#include <hwy/cache_control.h>

#include <algorithm>

#include "backend/cpu/elementwise_run.h"
#include "backend/cpu/machine.h"

namespace weft::cpu {
namespace {

constexpr int64_t kTile = 512;  // elements; a register is mostly 2 KiB, a chain of a few fits in L1

}  // namespace

Elementwise::Elementwise(const ElementwiseProgram& program, std::span<const Tensor> inputs,
                         std::span<const Tensor> outputs)
    : program_(program), inputs_(inputs), outputs_(outputs), shape_(outputs[0].layout.shape) {
  const auto is_scalar = [](const Tensor& t) {
    return std::ranges::all_of(t.layout.strides, [](int64_t s) { return s == 0; });
  };
  for (const Tensor& t : inputs) {
    flat_ = flat_ && (Layout{shape_, t.layout.strides, 0}.is_contiguous() || is_scalar(t));
    flat_strides_.push_back(is_scalar(t) ? 0 : 1);
  }
  row_ = flat_ ? element_count(shape_) : shape_.back();
}

Machine Elementwise::machine() const {
  return Machine(program_, kTile, outputs_);
}

void Elementwise::run(Machine& machine, int64_t begin, int64_t end) const {
  for (int64_t at = begin; at < end;) {
    const int64_t column = at % row_, n = std::min({end - at, kTile, row_ - column});
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const Layout& l = inputs_[k].layout;
      int64_t offset = l.offset, stride = flat_strides_[k];
      if (flat_) {
        offset += at * stride;
      } else {
        stride = l.strides.back();
        offset += column * stride;
        int64_t rest = at / row_;
        for (size_t d = shape_.size() - 1; d-- > 0; rest /= shape_[d])
          offset += rest % shape_[d] * l.strides[d];
      }
      machine.load(k, inputs_[k], offset, stride, n);
    }
    machine.run(at, n);
    at += n;
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
