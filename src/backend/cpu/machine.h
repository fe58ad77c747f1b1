#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/cpu/stream.h"
#include "backend/elementwise.h"

namespace weft::cpu {

/// Whether a result is better stored past the caches (stream.h).
bool is_streamed(const Tensor& result);

/// In memory as in a register.
bool is_plain(DType dtype);

/// An op that reads and writes elements of that type in memory; null = there is none.
LaneFunction streamed_form(const ScalarOp& op, DType dtype);

/// Whether the register of an instruction is that of its operand: a conversion between floats that either
/// loses nothing or happens in the store.
bool is_renaming(const ElementwiseProgram& program, size_t reg);

/// How a program over rows uses its registers; one flag for each.
struct RowRegisters {
  std::vector<bool> is_kept;     // holds a whole row of several tiles: read again after it was gone through
  std::vector<bool> is_per_row;  // has one value per row, which may have to be spread
  int64_t length = 0;            // elements of a row
};

/// Runs the instructions of a program on tiles of elements. Registers are memory of its own, or the place
/// where the elements lie or go to anyway.
class Machine {
 public:
  /// `outputs`: those that run() or finish() and store_rest() store; not those of one value per row.
  Machine(const ElementwiseProgram& program, int64_t tile, std::span<const Tensor> outputs = {},
          const RowRegisters& rows = {});

  /// A register is the elements themselves.
  void refer(size_t reg, const Tensor& from, int64_t offset);
  /// n elements that lie `stride` apart go into a register.
  void load(size_t reg, const Tensor& from, int64_t offset, int64_t stride, int64_t n);
  /// `rows` times n elements; the rows lie `row_stride` apart.
  void load_rows(size_t reg, const Tensor& from, int64_t offset, int64_t row_stride, int64_t rows,
                 int64_t stride, int64_t n);
  /// n elements go into a part of a register, from element `at` on.
  void load_part(size_t reg, const Tensor& from, int64_t offset, int64_t stride, int64_t at, int64_t n);

  /// Every instruction, and n elements of the outputs from element `at` on.
  void run(int64_t at, int64_t n);
  /// The same for a program of one instruction with a streamed_form, whose operands were referred to.
  void run_direct(const Tensor& to, int64_t at, int64_t n);

  // Step by step, for programs that fold.
  void compute(size_t reg, int64_t n, int64_t at = 0);  ///< an instruction, from its element `at` on
  void recall(size_t reg, int64_t at);                  ///< a kept register, from its element `at` on
  void set(size_t reg, const double* values, int64_t n);
  void spread(size_t reg, int64_t n);  ///< its first element to n
  const float* floats(int reg) const {
    return static_cast<const float*>(registers_[static_cast<size_t>(reg)]);
  }
  void store(size_t reg, const Tensor& to, int64_t at, int64_t n) const;
  /// An instruction whose results nothing but outputs need from here on, which get n elements from `at` on.
  /// What goes past the caches needs hwy::FlushStream() before another thread may read.
  void finish(size_t reg, int64_t at, int64_t n);
  void store_rest(int64_t at, int64_t n) const;  ///< outputs that finish() did not compute in their place

 private:
  /// What is looked up once, for it is the same in every tile.
  struct Call {
    LaneFunction function = nullptr;  // null: a conversion
    LaneFunction streamed = nullptr;  // where the output is too large for the caches and nobody reads it
    std::array<size_t, 3> inputs{};   // registers
    DType from = DType::f32;          // of the operands
    bool is_read = false;             // by another instruction
    bool is_renaming = false;
    bool is_constant = false;
    const Tensor* output = nullptr;  // that is computed into directly
  };
  struct Store {
    size_t reg;
    const Tensor* to;
    bool is_streamed;  // too large for the caches
  };
  struct Owned {
    std::byte* memory;
    int64_t bytes;  // of an element
  };
  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes];
  };

  void* own(size_t reg, int64_t at = 0) const { return owned_[reg].memory + at * owned_[reg].bytes; }
  void compute_into(size_t reg, LaneFunction function, void* result, int64_t n);
  void stream_register(size_t reg, const Tensor& to, int64_t at, int64_t n) const;

  const ElementwiseProgram& program_;
  const size_t loads_;
  std::vector<void*> registers_;
  std::vector<Call> calls_;  // of the instructions
  std::vector<Store> stores_;
  std::vector<Owned> owned_;  // of each register, and scratch
  std::unique_ptr<Line[]> memory_;
};

}  // namespace weft::cpu
