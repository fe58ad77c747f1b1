#pragma once

#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/cpu/machine.h"
#include "backend/elementwise.h"

namespace weft::cpu {

/// A program over arrays. Inputs have the outputs' shape (strides 0 where they were broadcast), or are the
/// outputs themselves.
class Elementwise {
 public:
  Elementwise(const ElementwiseProgram& program, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs);
  Machine machine() const;
  /// Elements [begin, end) of the outputs, in row-major order.
  void run(Machine& machine, int64_t begin, int64_t end) const;

 private:
  int64_t direct_from(int64_t at, int64_t end) const;  // elements that need no register; 0 = none

  const ElementwiseProgram& program_;
  const std::span<const Tensor> inputs_, outputs_;
  const Shape& shape_;
  int64_t tile_;                       // elements of a register
  bool flat_ = true;                   // every input runs through the whole array in one go
  bool direct_ = false;                // one instruction from memory to memory: no register is needed
  std::vector<int64_t> flat_strides_;  // 1, or 0 for a scalar
  int64_t row_ = 1;                    // elements that lie in one run
  int64_t rows_ = 1;                   // short runs that lie evenly spaced
};

void run_elementwise(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs);

/// The same for a program that folds rows.
void run_rows(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs);

/// matmul, and the program on each block of what it makes, while that is in the cache. `loads`: the
/// program's; the first is where the product goes, f32.
void matmul_with(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> factors,
                 std::span<const Tensor> loads, std::span<const Tensor> outputs);

}  // namespace weft::cpu
