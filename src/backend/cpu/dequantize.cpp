#include <algorithm>
#include <vector>

#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"
#include "quant/quant.h"

// w u8 (.., row bytes) -> f32, rows in order; "type". Any number of blocks is a piece of work, so that one
// long row is shared between threads as well.

namespace weft::cpu {
namespace {

/// Bytes from the start of the storage to a row.
int64_t row_offset(const Layout& w, int64_t row) {
  int64_t offset = w.offset;
  for (size_t d = w.shape.size() - 1; d-- > 0; row /= w.shape[d]) offset += row % w.shape[d] * w.strides[d];
  return offset;
}

}  // namespace

void dequantize(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                const Attrs& attrs) {
  const quant::Type type = quant::type_from_name(attrs.text("type"));
  const quant::Traits& block = quant::traits(type);
  Tensor w = inputs[0];
  const int64_t bytes = element_count(w.layout.shape);
  if (bytes == 0) return;
  std::vector<std::byte> packed;  // when the bytes of a row do not lie side by side
  if (w.layout.shape.back() > 1 && w.layout.strides.back() != 1) {
    packed.resize(static_cast<size_t>(bytes));
    const Tensor whole{packed.data(), w.dtype, Layout::contiguous(w.layout.shape)};
    copy(pool, std::span(&w, 1), std::span(&whole, 1), attrs);
    w = whole;
  }
  const int64_t blocks = w.layout.shape.back() / block.block_bytes;  // of a row
  const int64_t total = bytes / block.block_bytes;
  const int64_t grain = std::max<int64_t>(kGrain / block.block_elements, 1);
  pool.for_each(static_cast<size_t>(total), static_cast<size_t>(grain), [&](size_t begin, size_t end) {
    for (auto at = static_cast<int64_t>(begin); at < static_cast<int64_t>(end);) {
      const int64_t first = at % blocks, count = std::min(blocks - first, static_cast<int64_t>(end) - at);
      const std::byte* from = w.data + row_offset(w.layout, at / blocks) + first * block.block_bytes;
      quant::dequantize(type, from, outputs[0].as<float>() + at * block.block_elements,
                        static_cast<uint64_t>(count) * block.block_elements);
      at += count;
    }
  });
}

}  // namespace weft::cpu
