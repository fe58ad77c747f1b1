// The kernel `random_bits`: counter based, so that every element can be made by itself.
#include "base/threefry.h"

#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"

namespace weft::cpu {

void random_bits(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                 const Attrs&) {
  const uint32_t* words = inputs[0].as<const uint32_t>() + inputs[0].layout.offset;
  const std::array<uint32_t, 2> key = {words[0], words[inputs[0].layout.strides[0]]};
  auto* out = outputs[0].as<uint32_t>();
  pool.for_each(static_cast<size_t>(element_count(outputs[0].layout.shape)), kGrain / 4,
                [&](size_t begin, size_t end) {
                  for (size_t i = begin; i < end; ++i) out[i] = random_word(key, i);
                });
}

}  // namespace weft::cpu
