#include "quant/quant.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "array/half.h"
#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"
#include "quant/packing.h"

// Weights in ggml's blocks, w u8 (.., row bytes), and repacked ones.

namespace weft::cpu {
namespace {

/// Elements from the start of the storage to a row.
int64_t row_offset(const Layout& w, int64_t row) {
  int64_t offset = w.offset;
  for (size_t d = w.shape.size() - 1; d-- > 0; row /= w.shape[d]) offset += row % w.shape[d] * w.strides[d];
  return offset;
}

/// w, or a copy in `copied` when the bytes of a row do not lie side by side.
Tensor whole_rows(ThreadPool& pool, const Tensor& w, std::vector<std::byte>& copied) {
  if (w.layout.shape.back() <= 1 || w.layout.strides.back() == 1) return w;
  copied.resize(static_cast<size_t>(element_count(w.layout.shape)));
  const Tensor whole{copied.data(), w.dtype, Layout::contiguous(w.layout.shape)};
  copy(pool, std::span(&w, 1), std::span(&whole, 1), {});
  return whole;
}

quant::Packing packing_of(int64_t n, const Attrs& attrs) {
  return {quant::type_from_name(attrs.text("type")), n, attrs.integer("k"), quant::kPackedRows};
}

}  // namespace

void quantize(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
              const Attrs& attrs) {
  const quant::Type type = quant::type_from_name(attrs.text("type"));
  const Tensor& x = inputs[0];
  const int64_t k = x.layout.shape.back(), elements = element_count(x.layout.shape);
  if (elements == 0) return;
  const uint64_t bytes = quant::row_bytes(type, static_cast<uint64_t>(k));
  pool.for_each(static_cast<size_t>(elements / k), static_cast<size_t>(std::max<int64_t>(kTile / k, 1)),
                [&](size_t begin, size_t end) {
                  std::vector<float> row(static_cast<size_t>(k));
                  for (size_t i = begin; i < end; ++i) {
                    load_run(x, row_offset(x.layout, static_cast<int64_t>(i)), x.layout.strides.back(), k,
                             row.data());
                    quant::encode(type, row, {outputs[0].data + i * bytes, bytes});
                  }
                });
}

void dequantize(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                const Attrs& attrs) {
  const quant::Type type = quant::type_from_name(attrs.text("type"));
  const quant::Traits& block = quant::traits(type);
  const int64_t bytes = element_count(inputs[0].layout.shape);
  if (bytes == 0) return;
  std::vector<std::byte> copied;
  const Tensor w = whole_rows(pool, inputs[0], copied);
  const int64_t blocks = w.layout.shape.back() / block.block_bytes;  // of a row
  const int64_t total = bytes / block.block_bytes;
  const int64_t grain = std::max<int64_t>(kGrain / block.block_elements, 1);
  // Any number of blocks is a piece of work, so that one long row is shared between threads as well.
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

void repack(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
            const Attrs& attrs) {
  std::vector<std::byte> copied;
  const Tensor w = whole_rows(pool, inputs[0], copied);
  const quant::Packing packing = packing_of(w.layout.shape[0], attrs);
  auto* words = outputs[0].as<uint32_t>();
  std::memset(words, 0, static_cast<size_t>(packing.size) * sizeof(uint32_t));
  // Whole groups of interleaved rows: no two threads write to one cache line.
  pool.for_each(static_cast<size_t>((packing.n + quant::kPackedRows - 1) / quant::kPackedRows), 1,
                [&](size_t begin, size_t end) {
                  const int64_t last = std::min(static_cast<int64_t>(end) * quant::kPackedRows, packing.n);
                  for (int64_t row = static_cast<int64_t>(begin) * quant::kPackedRows; row < last; ++row)
                    pack_row(packing, row, w.data + row_offset(w.layout, row), words);
                });
}

void dequantize_packed(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                       const Attrs& attrs) {
  const quant::Packing packing = packing_of(attrs.integer("n"), attrs);
  const uint32_t* words = inputs[0].as<uint32_t>() + inputs[0].layout.offset;
  const auto grain = static_cast<size_t>(std::max<int64_t>(kGrain / std::max<int64_t>(packing.k, 1), 1));
  pool.for_each(static_cast<size_t>(packing.n), grain, [&](size_t begin, size_t end) {
    std::vector<float> halves(outputs[0].dtype == DType::f16 ? static_cast<size_t>(packing.k) : 0);
    for (auto row = static_cast<int64_t>(begin); row < static_cast<int64_t>(end); ++row) {
      if (halves.empty()) {
        dequantize_row(packing, row, words, outputs[0].as<float>() + row * packing.k);
      } else {
        dequantize_row(packing, row, words, halves.data());
        std::ranges::transform(halves, outputs[0].as<uint16_t>() + row * packing.k, float_to_half);
      }
    }
  });
}

}  // namespace weft::cpu
