#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "array/host_tensor.h"
#include "quant/quant.h"

/// Blocks of every quantised type.
namespace weft::test {

std::vector<quant::Type> all_quant_types();

/// An entry of tests/data/quant/golden.safetensors: "blocks", "values", "traits" or "grid". Made by
/// make_golden.py beside it, from gguf-py: another implementation than ours.
HostTensor golden(quant::Type type, std::string_view what);

template <typename T>
std::vector<T> golden_values(quant::Type type, std::string_view what) {
  const HostTensor tensor = golden(type, what);
  const auto* data = reinterpret_cast<const T*>(tensor.bytes.data());
  return {data, data + tensor.bytes.size() / sizeof(T)};
}

/// u8 (rows, bytes of k elements): random codes, scales of the size of 1/16.
HostTensor random_blocks(quant::Type type, int64_t rows, int64_t k, unsigned seed = 1);

}  // namespace weft::test
