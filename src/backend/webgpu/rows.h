#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/webgpu/builder.h"

/// Programs that fold rows: what their forms share.
namespace weft::webgpu {

using Instruction = ElementwiseProgram::Instruction;

/// What a row program needs to know about its registers.
struct Registers {
  const ElementwiseProgram& program;
  std::vector<bool> per_row;  ///< the same along the row
  std::vector<int> depth;     ///< folds that come before it, one after the other

  /// `loads`: which of the inputs are the same along the row.
  Registers(const ElementwiseProgram& of, std::vector<bool> loads)
      : program(of), per_row(std::move(loads)), depth(per_row.size(), 0) {
    for (const Instruction& i : program.instructions) {
      bool row = true;
      int d = 0;
      for (int k = 0; k < i.arity(); ++k) {
        const auto input = static_cast<size_t>(i.inputs[static_cast<size_t>(k)]);
        row = row && per_row[input];
        d = std::max(d, depth[input]);
      }
      per_row.push_back(row || i.fold != Fold::none);
      depth.push_back(d + (i.fold != Fold::none ? 1 : 0));
    }
  }

  size_t loads() const { return program.loads.size(); }
  const Instruction& instruction(size_t reg) const { return program.instructions[reg - loads()]; }
  bool folds(size_t reg) const { return reg >= loads() && instruction(reg).fold != Fold::none; }
  int max_depth() const { return *std::ranges::max_element(depth); }

  std::vector<size_t> folds_at(int at) const {
    std::vector<size_t> regs;
    for (size_t reg = loads(); reg < depth.size(); ++reg)
      if (folds(reg) && depth[reg] == at) regs.push_back(reg);
    return regs;
  }

  /// Registers per element that have to be computed for these, in order.
  std::vector<size_t> elements_for(std::vector<size_t> pending) const {
    std::vector<bool> wanted(depth.size(), false);
    while (!pending.empty()) {
      const size_t reg = pending.back();
      pending.pop_back();
      if (per_row[reg] || wanted[reg]) continue;
      wanted[reg] = true;
      if (reg < loads()) continue;
      for (int k = 0; k < instruction(reg).arity(); ++k)
        pending.push_back(static_cast<size_t>(instruction(reg).inputs[static_cast<size_t>(k)]));
    }
    std::vector<size_t> regs;
    for (size_t reg = 0; reg < wanted.size(); ++reg)
      if (wanted[reg]) regs.push_back(reg);
    return regs;
  }
};

/// The iteration of a step, as rows and their elements, over the step's inputs.
struct RowWalks {
  Walk row, element;
  std::vector<bool> per_row;  ///< which inputs are the same along the row

  explicit RowWalks(const Step& step);
  int64_t rows() const { return row.count(); }
  int64_t length() const { return element.count(); }
};

/// The values that a row has once, of one depth.
std::string row_statements(Builder& builder, const Registers& regs, int depth);
/// `lane`, `row`, `inside` and where the row begins in the inputs, for `lanes` threads a row and `per_group`
/// rows a workgroup; then what the row has once, loaded and of depth 0.
std::string begin_rows(Builder& builder, const Step& step, const RowWalks& walks, const Registers& regs,
                       int64_t lanes, const std::string& group, int64_t per_group);

std::string_view start_of(Fold fold);
std::string joined(Fold fold, std::string_view a, std::string_view b);

/// Statements that fold a variable over so many neighbours of a subgroup, each of which has the result.
std::string shuffled(Fold fold, std::string_view name, int64_t lanes);

/// An expression: `own` of the `lanes` threads of a row, folded. Every thread of the workgroup gets there.
std::string tree(Builder& builder, Fold fold, int64_t lanes, int64_t threads, std::string_view own);

/// Rows from what `pieces` workgroups each left of their folds: partial[(row * pieces + piece) * folds + k].
void join_pieces(Context& context, const Step& step, int64_t pieces, const gpu::Buffer& partial,
                 std::span<const Operand> outputs);

/// Rows whose elements, or columns whose neighbours, are vectors in memory. False when they are not, or when
/// rows with results per element are too long for registers.
bool rows_by_vectors(Context& context, const Step& step, std::span<const Operand> outputs);

}  // namespace weft::webgpu
