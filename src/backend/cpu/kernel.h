#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "array/attrs.h"
#include "array/layout.h"
#include "base/threads.h"
#include "weft/dtype.h"

namespace weft::cpu {

/// An operand of a CPU kernel. Inputs may have any strides; outputs are contiguous, from offset 0.
struct Tensor {
  std::byte* data = nullptr;  ///< start of the storage, before layout.offset
  DType dtype = DType::f32;
  Layout layout;

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

/// A kernel knows buffers, shapes and strides, and no graph.
using Kernel = void (*)(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                        const Attrs& attrs);

/// By the name of the primitive op. Throws ErrorKind::unsupported when there is none.
Kernel find_kernel(std::string_view name);
bool has_kernel(std::string_view name);

}  // namespace weft::cpu
