#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/elementwise.h"

namespace weft::cpu {

/// Runs the instructions of a program on tiles of elements. Registers are memory of its own, or the place
/// where the elements lie or go to anyway.
class Machine {
 public:
  /// `outputs`: those that run() stores.
  Machine(const ElementwiseProgram& program, int64_t tile, std::span<const Tensor> outputs = {});

  /// n elements that lie `stride` apart go into a register.
  void load(size_t reg, const Tensor& from, int64_t offset, int64_t stride, int64_t n);
  /// `rows` times n elements; the rows lie `row_stride` apart.
  void load_rows(size_t reg, const Tensor& from, int64_t offset, int64_t row_stride, int64_t rows,
                 int64_t stride, int64_t n);
  /// The same for a part of a register, from element `at` on.
  void load_part(size_t reg, const Tensor& from, int64_t offset, int64_t stride, int64_t at, int64_t n);

  /// Every instruction, and n elements of the outputs from element `at` on.
  void run(int64_t at, int64_t n);

  // Step by step, for programs that fold.
  void compute(size_t reg, int64_t n);  ///< the register of an instruction
  void set(size_t reg, float value, int64_t n);
  void set(size_t reg, const double* values, int64_t n);
  void spread(size_t reg, int64_t n);  ///< its first element to n
  const float* floats(int reg) const {
    return static_cast<const float*>(registers_[static_cast<size_t>(reg)]);
  }
  void store(size_t reg, const Tensor& to, int64_t at, int64_t n) const;

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct alignas(64) Line {  // of the cache
    std::byte bytes[64];
  };

  size_t stored(size_t output) const { return static_cast<size_t>(program_.stores[output]); }
  void* own(size_t reg) const { return memory_.get() + reg * lines_; }
  const void* input(const ElementwiseProgram::Instruction& i, size_t k) const {
    return registers_[static_cast<size_t>(i.inputs[k])];
  }
  void compute_into(size_t reg, void* result, int64_t n);
  void stream_output(size_t k, int64_t at, int64_t n);

  const ElementwiseProgram& program_;
  const std::span<const Tensor> outputs_;
  const size_t loads_;
  std::vector<void*> registers_;
  std::vector<bool> is_read_;      // by an instruction
  std::vector<size_t> output_of_;  // that a register is computed into directly
  std::vector<bool> is_streamed_;  // an output that is too large for the caches
  size_t lines_ = 0;               // of a register
  std::unique_ptr<Line[]> memory_;
};

}  // namespace weft::cpu
