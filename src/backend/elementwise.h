#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "array/layout.h"
#include "weft/dtype.h"

/// Fused elementwise work, as data that every backend can run: the CPU op by op over tiles that stay in L1, a
/// GPU as one generated kernel.
namespace weft {

/// What a register of a program holds. Narrow types are computed in the wide type of their kind and wrapped
/// or rounded to their dtype after each op that yields them.
enum class Lane : uint8_t { f32, i32, u32, i64, boolean };
Lane lane_of(DType dtype);

/// How one scalar op is computed, for one kind of operand. `n` elements, all arrays distinct or out == an
/// input.
using LaneFunction = void (*)(const void* const* inputs, void* out, int64_t n, const double* attrs);

/// The scalar side of an elementwise op: one column per lane of its operands; null = not for that lane.
struct ScalarOp {
  std::string_view name;
  int arity = 1;
  std::array<LaneFunction, 5> cpu{};  ///< by Lane of the operands (of the last one for `where`)
  /// f32, f16 or bf16, from memory to memory past the caches (cpu/wide.h); null = none
  std::array<LaneFunction, 3> cpu_streamed{};
  std::array<std::string_view, 5>
      wgsl{};  ///< expression over {0} {1} {2} and attributes {a} {b}; empty = none
};

/// How the elements of a row become one.
enum class Fold : uint8_t { none, sum, prod, max, min };

/// Scalar work over an iteration shape; the layouts of all operands have that shape, with stride 0 where they
/// are broadcast. The last `row_dims` dims make up a row: what a fold yields is the same along it. An output
/// whose strides along the row are 0 is stored once per row.
struct ElementwiseProgram {
  struct Instruction {
    const ScalarOp* op =
        nullptr;  ///< without functions: arity 0 = the constant attrs[0], arity 1 = a conversion
    std::array<int, 3> inputs{};  ///< registers
    std::array<double, 2> attrs{};
    DType dtype = DType::f32;  ///< of the result
    Fold fold = Fold::none;    ///< instead of op: inputs[0], a float, folded along the row
    int constant = -1;         ///< attrs[0] is this one of the plan's constants

    int arity() const { return fold != Fold::none ? 1 : op->arity; }
  };
  std::vector<DType> loads;               ///< registers 0..n-1: the step's inputs
  std::vector<Instruction> instructions;  ///< register n+i
  std::vector<int> stores;                ///< registers of the step's outputs
  size_t row_dims = 0;                    ///< 0 = nothing is folded

  /// Whether an operand has one element per row.
  bool is_per_row(const Layout& layout) const {
    return std::all_of(layout.strides.end() - static_cast<std::ptrdiff_t>(row_dims), layout.strides.end(),
                       [](int64_t stride) { return stride == 0; });
  }

  DType dtype_of(int reg) const {
    const auto count = static_cast<int>(loads.size());
    return reg < count ? loads[static_cast<size_t>(reg)]
                       : instructions[static_cast<size_t>(reg - count)].dtype;
  }
};

}  // namespace weft
