// Fused elementwise programs: op by op over tiles that stay in L1, so that a chain reads and writes memory
// once.
#include <algorithm>

#include "backend/cpu/elementwise_run.h"
#include "backend/cpu/machine.h"

namespace weft::cpu {
namespace {

constexpr int64_t kTile = 512;  // elements; a register is mostly 2 KiB, a chain of a few fits in L1

}  // namespace

void run_elementwise(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs) {
  const Shape& shape = outputs[0].layout.shape;
  const int64_t count = element_count(shape);
  if (count == 0) return;
  // Rows of the innermost dim, or the whole array where every input runs through it in one go.
  bool flat = true;
  for (const Tensor& t : inputs)
    flat = flat && (Layout{shape, t.layout.strides, 0}.is_contiguous() ||
                    std::ranges::all_of(t.layout.strides, [](int64_t s) { return s == 0; }));
  const int64_t row = flat ? count : shape.empty() ? 1 : shape.back();
  const size_t rank = shape.size();

  const auto work = [&](size_t begin, size_t end) {
    Machine machine(program, kTile, outputs);
    for (auto at = static_cast<int64_t>(begin); at < static_cast<int64_t>(end);) {
      const int64_t column = at % row, n = std::min({static_cast<int64_t>(end) - at, kTile, row - column});
      for (size_t k = 0; k < inputs.size(); ++k) {
        const Layout& l = inputs[k].layout;
        int64_t offset = l.offset, stride = 0;
        if (flat) {
          stride = rank == 0 || std::ranges::all_of(l.strides, [](int64_t s) { return s == 0; }) ? 0 : 1;
          offset += at * stride;
        } else {
          stride = l.strides[rank - 1];
          offset += column * stride;
          for (int64_t rest = at / row, d = static_cast<int64_t>(rank) - 2; d >= 0; --d) {
            offset += rest % shape[static_cast<size_t>(d)] * l.strides[static_cast<size_t>(d)];
            rest /= shape[static_cast<size_t>(d)];
          }
        }
        machine.load(k, inputs[k], offset, stride, n);
      }
      machine.run(at, n);
      at += n;
    }
  };
  pool.for_each(static_cast<size_t>(count),
                std::max<size_t>(32 * kTile, static_cast<size_t>(count) /
                                                 (4 * static_cast<size_t>(pool.threads())) / kTile * kTile),
                work);
}

}  // namespace weft::cpu
