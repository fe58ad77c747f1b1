#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/elementwise.h"

namespace weft::cpu {

/// Whether a result is better stored past the caches (stream.h).
bool is_streamed(const Tensor& result);

/// An op that reads and writes elements of that type in memory; null = there is none.
LaneFunction streamed_form(const ScalarOp& op, DType dtype);

/// Runs the instructions of a program on tiles of elements. Registers are memory of its own, or the place
/// where the elements lie or go to anyway.
class Machine {
 public:
  /// `outputs`: those that run() stores.
  Machine(const ElementwiseProgram& program, int64_t tile, std::span<const Tensor> outputs = {});

  /// A register is the elements themselves.
  void refer(size_t reg, const Tensor& from, int64_t offset);
  /// n elements that lie `stride` apart go into a register.
  void load(size_t reg, const Tensor& from, int64_t offset, int64_t stride, int64_t n);
  /// `rows` times n elements; the rows lie `row_stride` apart.
  void load_rows(size_t reg, const Tensor& from, int64_t offset, int64_t row_stride, int64_t rows,
                 int64_t stride, int64_t n);
  /// The same for a part of a register, from element `at` on.
  void load_part(size_t reg, const Tensor& from, int64_t offset, int64_t stride, int64_t at, int64_t n);

  /// Every instruction, and n elements of the outputs from element `at` on.
  void run(int64_t at, int64_t n);
  /// The same for a program of one instruction with a streamed_form, whose operands were referred to.
  void run_direct(const Tensor& to, int64_t at, int64_t n);

  // Step by step, for programs that fold.
  void compute(size_t reg, int64_t n);  ///< the register of an instruction
  void set(size_t reg, float value, int64_t n);
  void set(size_t reg, const double* values, int64_t n);
  void spread(size_t reg, int64_t n);  ///< its first element to n
  const float* floats(int reg) const {
    return static_cast<const float*>(registers_[static_cast<size_t>(reg)]);
  }
  /// `streamed`: past the caches; call hwy::FlushStream() before another thread may read.
  void store(size_t reg, const Tensor& to, int64_t at, int64_t n, bool streamed = false) const;

 private:
  /// What is looked up once, for it is the same in every tile.
  struct Call {
    LaneFunction function = nullptr;  // null: a conversion
    LaneFunction streamed = nullptr;  // where the output is too large for the caches and nobody reads it
    std::array<size_t, 3> inputs{};   // registers
    DType from = DType::f32;          // of the operands
    bool is_read = false;             // by another instruction
    const Tensor* output = nullptr;   // that is computed into directly
  };
  struct Store {
    size_t reg;
    const Tensor* to;
    bool is_streamed;  // too large for the caches
  };
  struct alignas(64) Line {  // of the cache
    std::byte bytes[64];
  };

  void* own(size_t reg) const { return memory_.get() + reg * lines_; }
  void compute_into(size_t reg, LaneFunction function, void* result, int64_t n);
  void stream_register(size_t reg, const Tensor& to, int64_t at, int64_t n) const;

  const ElementwiseProgram& program_;
  const size_t loads_;
  std::vector<void*> registers_;
  std::vector<Call> calls_;  // of the instructions
  std::vector<Store> stores_;
  size_t lines_ = 0;  // of a register
  std::unique_ptr<Line[]> memory_;
};

}  // namespace weft::cpu
