#pragma once

#include "backend/cpu/kernel.h"
#include "backend/elementwise.h"

namespace weft::cpu {

/// Inputs have the outputs' shape (strides 0 where they were broadcast).
void run_elementwise(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs);

/// The same for a program that folds rows.
void run_rows(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs);

}  // namespace weft::cpu
