// Rows, loaded as vectors of neighbours. All loads go out before anything is computed, and what is loaded or
// computed for an element stays in registers until the row is done.
//   whole:    a row per workgroup or part of one, all of it in registers
//   pieces:   long rows that are folded once, many workgroups each
//   columns:  rows that are columns in memory: an invocation folds a piece of several neighbours
#include <bit>
#include <set>

#include "backend/webgpu/rows.h"
#include "backend/webgpu/vectors.h"

namespace weft::webgpu {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kInRegisters = 32;   // elements of an invocation
constexpr int64_t kInFlight = 16;      // elements of an invocation that are loaded at once in a loop
constexpr int64_t kBusy = 65'536;      // invocations that keep a GPU's memory busy
constexpr int64_t kShortPiece = 4096;  // elements that are worth a workgroup

/// What is computed per element between two folds: a function from values to values.
struct Level {
  std::vector<size_t> registers, arguments;
};

class VectorRows {
 public:
  /// `per_row`: which loads are the same for all that one invocation computes.
  VectorRows(const Step& step, const RowWalks& walks, std::vector<bool> per_row, int64_t count)
      : step_(step),
        walks_(walks),
        regs_(*step.program, std::move(per_row)),
        count_(count),
        builder_("rows") {
    std::vector<size_t> wanted;
    for (size_t reg = regs_.loads(); reg < regs_.depth.size(); ++reg)
      if (regs_.folds(reg)) wanted.push_back(input_of_fold(reg));
    for (size_t k = 0; k < step.outputs.size(); ++k)
      if (!step.program->is_per_row(step.outputs[k].layout)) wanted.push_back(store(k));
    levels_.resize(static_cast<size_t>(regs_.max_depth()) + 1);
    first_use_.assign(regs_.loads(), regs_.max_depth());
    for (size_t reg : regs_.elements_for(wanted)) {
      if (reg < regs_.loads()) continue;
      Level& level = levels_[static_cast<size_t>(regs_.depth[reg])];
      level.registers.push_back(reg);
      for (int k = 0; k < regs_.instruction(reg).arity(); ++k)
        use(static_cast<size_t>(regs_.instruction(reg).inputs[static_cast<size_t>(k)]), reg, level);
    }
    for (size_t reg = regs_.loads(); reg < regs_.depth.size(); ++reg)
      if (regs_.folds(reg) && input_of_fold(reg) < regs_.loads())
        lower(first_use_[input_of_fold(reg)], regs_.depth[reg] - 1);
  }

  /// Every row by `lanes` threads.
  void whole(Context& context, std::span<const Operand> outputs, int64_t lanes) {
    const int64_t vectors = walks_.length() / count_, slots = (vectors + lanes - 1) / lanes;
    const int64_t threads = std::max(lanes, kThreads), per_group = threads / lanes;
    begin(lanes, "index", per_group);
    const std::string n = builder_.number(vectors);
    for (int64_t s = 0; s < slots; ++s) {
      const bool ragged = s + 1 == slots && vectors % lanes != 0;
      body_ += fmt::format("  let place{} = lane + {}u;\n", s, s * lanes);
      if (ragged) body_ += fmt::format("  let in{0} = place{0} < {1};\n", s, n);
      body_ += ragged ? fmt::format("  let j{0} = min(place{0}, {1} - 1u) * {2}u;\n", s, n, count_)
                      : fmt::format("  let j{0} = place{0} * {1}u;\n", s, count_);
      guarded_.push_back(ragged);
    }
    for (int depth = 0; depth <= regs_.max_depth(); ++depth) {
      body_ += loads_of(depth) + level_calls(depth);
      for (size_t reg : regs_.folds_at(depth + 1)) {
        body_ += fmt::format("  var acc{} = {};\n", reg, start_of(regs_.instruction(reg).fold)) + folded(reg);
        body_ += fmt::format(
            "  let x{} = {};\n", reg,
            narrow(regs_.instruction(reg).dtype,
                   tree(builder_, regs_.instruction(reg).fold, lanes, threads, fmt::format("acc{}", reg))));
      }
      row_registers(depth + 1);
    }
    store_elements(outputs);
    for (size_t k = 0; k < outputs.size(); ++k)
      if (step_.program->is_per_row(step_.outputs[k].layout))
        body_ += fmt::format("  if (inside && lane == 0u) {{ {}[row] = {}; }}\n",
                             builder_.write(buffer_of(outputs[k])), bits_of(outputs[k], store(k), 0));
    builder_.groups(context, (walks_.rows() + per_group - 1) / per_group, static_cast<int>(threads), body_);
  }

  /// What `pieces` workgroups fold of each row goes to `partial`.
  void pieces(Context& context, int64_t pieces, const gpu::Buffer& partial) {
    const int64_t vectors = walks_.length() / count_, slots = kInFlight / count_;
    const std::string n = builder_.number(pieces), size = builder_.number((vectors + pieces - 1) / pieces);
    begin(kThreads, fmt::format("(index / {})", n), 1);
    body_ += fmt::format("  let first = index % {} * {};\n  let stop = min(first + {}, {});\n", n, size, size,
                         builder_.number(vectors));
    loop("first + lane", slots, kThreads, count_);
    const std::vector<size_t> folds = regs_.folds_at(1);
    for (size_t k = 0; k < folds.size(); ++k)
      body_ += fmt::format(
          "  let x{0} = {1};\n  if (lane == 0u) {{ {2}[index * {3}u + {4}u] = bitcast<u32>(x{0}); }}\n",
          folds[k],
          tree(builder_, regs_.instruction(folds[k]).fold, kThreads, kThreads,
               fmt::format("acc{}", folds[k])),
          builder_.write(partial), folds.size(), k);
    builder_.groups(context, walks_.rows() * pieces, kThreads, body_);
  }

  /// The same for columns: one invocation per piece of `count` neighbouring rows.
  void columns(Context& context, int64_t pieces, const gpu::Buffer& partial) {
    across_ = true;
    const int64_t slots = kInFlight * 2 / count_, invocations = walks_.rows() / count_ * pieces;
    const std::string quads = builder_.number(walks_.rows() / count_);
    const std::string size = builder_.number((walks_.length() + pieces - 1) / pieces);
    body_ = fmt::format(
        "  let place = index * {0}u + thread;\n  if (place >= {1}) {{ return; }}\n"
        "  let row = place % {2} * {3}u;\n  let piece = place / {2};\n  let first = piece * {4};\n"
        "  let stop = min(first + {4}, {5});\n",
        kThreads, builder_.number(invocations), quads, count_, size, builder_.number(walks_.length()));
    body_ += builder_.unravel(walks_.row, "row", "r");
    row_registers(0);
    loop("first", slots, 1, 1);
    const std::vector<size_t> folds = regs_.folds_at(1);
    const std::string to = builder_.write(partial), n = builder_.number(pieces);
    for (size_t k = 0; k < folds.size(); ++k)
      for (int64_t q = 0; q < count_; ++q)
        body_ += fmt::format("  {}[((row + {}u) * {} + piece) * {}u + {}u] = bitcast<u32>(acc{}_{});\n", to,
                             q, n, folds.size(), k, folds[k], q);
    builder_.groups(context, (invocations + kThreads - 1) / kThreads, kThreads, body_);
  }

  size_t folds() const { return regs_.folds_at(1).size(); }

 private:
  size_t input_of_fold(size_t reg) const { return static_cast<size_t>(regs_.instruction(reg).inputs[0]); }
  size_t store(size_t k) const { return static_cast<size_t>(step_.program->stores[k]); }
  static void lower(int& value, int to) { value = std::min(value, to); }

  /// `reg` of the level reads `input`.
  void use(size_t input, size_t reg, Level& level) {
    if (input < regs_.loads() && !regs_.per_row[input]) lower(first_use_[input], regs_.depth[reg]);
    const bool own = std::ranges::find(level.registers, input) != level.registers.end();
    if (!own && std::ranges::find(level.arguments, input) == level.arguments.end())
      level.arguments.push_back(input);
  }

  void begin(int64_t lanes, const std::string& group, int64_t per_group) {
    body_ = begin_rows(builder_, step_, walks_, regs_, lanes, group, per_group);
  }

  void row_registers(int depth) { body_ += row_statements(builder_, regs_, depth); }

  /// acc<reg> of all folds over places `begin`, `begin` + stride ... below `stop`, some at a time; the place
  /// counts `scale` elements.
  void loop(const std::string& begin, int64_t slots, int64_t stride, int64_t scale) {
    const std::vector<size_t> folds = regs_.folds_at(1);
    for (size_t reg : folds)
      for (int64_t q = 0; q < (across_ ? count_ : 1); ++q)
        body_ += fmt::format("  var {} = {};\n", accumulator(reg, q), start_of(regs_.instruction(reg).fold));
    body_ += fmt::format("  for (var at = {}; at < stop; at += {}u) {{\n", begin, slots * stride);
    for (int64_t s = 0; s < slots; ++s) {
      body_ +=
          fmt::format("  let in{0} = at + {1}u < stop;\n  let j{0} = min(at + {1}u, stop - 1u) * {2}u;\n", s,
                      s * stride, scale);
      guarded_.push_back(true);
    }
    body_ += loads_of(0) + level_calls(0);
    for (size_t reg : folds) body_ += folded(reg);
    body_ += "  }\n";
  }

  std::string accumulator(size_t reg, int64_t q) const {
    return across_ ? fmt::format("acc{}_{}", reg, q) : fmt::format("acc{}", reg);
  }

  /// The loads that a depth is the first to use, of all slots.
  std::string loads_of(int depth) {
    std::string text;
    for (size_t k = 0; k < regs_.loads(); ++k) {
      if (regs_.per_row[k] || first_use_[k] != depth) continue;
      for (size_t s = 0; s < guarded_.size(); ++s) {
        const std::string name = fmt::format("w{}_{}", k, s);
        const std::string at = fmt::format("rat{} + {}", k, offset_in_row(k, s));
        text += is_vector(k) ? load_vectors(builder_, step_.inputs[k], count_, at, name)
                             : fmt::format("  let {} = {};\n", name, builder_.bits(step_.inputs[k], at));
      }
    }
    return text;
  }

  bool is_vector(size_t k) const { return !across_ || walks_.row.dims.back().strides[k] == 1; }

  std::string offset_in_row(size_t k, size_t s) {
    if (!across_) return fmt::format("j{}", s);
    const std::string name = fmt::format("offset{}", k);
    if (builder_.code.find("fn " + name + "(") == std::string::npos) {
      Walk own;
      own.offsets = {0};
      for (const Walk::Dim& dim : walks_.element.dims) own.add(dim.size, {dim.strides[k]});
      builder_.code +=
          fmt::format("fn {}(j: u32) -> u32 {{\n{}  return at0;\n}}\n", name, builder_.unravel(own, "j"));
    }
    return fmt::format("{}(j{})", name, s);
  }

  /// A register of neighbour e; neighbours of all slots are counted.
  std::string value(size_t reg, int64_t e) const {
    if (regs_.per_row[reg]) return fmt::format("x{}", reg);
    if (reg >= regs_.loads()) return fmt::format("v{}_{}.x{}", regs_.depth[reg], e, reg);
    const std::string name = fmt::format("w{}_{}", reg, e / count_);
    const DType dtype = step_.program->loads[reg];
    return decode(dtype, is_vector(reg) ? bits_in_vectors(name, dtype, count_, e % count_) : name);
  }

  /// v<depth>_<e>: what is computed at a depth, for every neighbour.
  std::string level_calls(int depth) {
    const Level& level = levels_[static_cast<size_t>(depth)];
    if (level.registers.empty()) return "";
    std::string fields, parameters, lines, results;
    const auto type = [&](size_t reg) { return lane_type(step_.program->dtype_of(static_cast<int>(reg))); };
    for (size_t reg : level.arguments) parameters += fmt::format("x{}: {}, ", reg, type(reg));
    for (size_t reg : level.registers) {
      fields += fmt::format(" x{}: {},", reg, type(reg));
      lines +=
          fmt::format("  let x{} = {};\n", reg, expression(builder_, *step_.program, regs_.instruction(reg)));
      results += fmt::format("x{}, ", reg);
    }
    builder_.code += fmt::format(
        "struct Level{0} {{{1} }}\nfn level{0}({2}) -> Level{0} {{\n{3}  return Level{0}({4});\n}}\n", depth,
        fields, parameters, lines, results);
    std::string text;
    for (int64_t e = 0; e < neighbours(); ++e) {
      text += fmt::format("  let v{0}_{1} = level{0}(", depth, e);
      for (size_t reg : level.arguments) text += value(reg, e) + ", ";
      text += ");\n";
    }
    return text;
  }

  int64_t neighbours() const { return static_cast<int64_t>(guarded_.size()) * count_; }

  /// Statements that fold this invocation's neighbours into acc<reg>, slot by slot so that sums lose little.
  std::string folded(size_t reg) {
    const Instruction& i = regs_.instruction(reg);
    std::string text;
    for (size_t s = 0; s < guarded_.size(); ++s) {
      std::string part;
      for (int64_t q = 0; q < count_; ++q) {
        std::string x = value(input_of_fold(reg), static_cast<int64_t>(s) * count_ + q);
        if (guarded_[s]) x = fmt::format("select({}, {}, in{})", start_of(i.fold), x, s);
        if (across_)
          text += fmt::format("  {0} = {1};\n", accumulator(reg, q), joined(i.fold, accumulator(reg, q), x));
        part = part.empty() ? x : joined(i.fold, part, x);
      }
      if (!across_)
        text += fmt::format("  acc{0} = {1};\n", reg, joined(i.fold, fmt::format("acc{}", reg), part));
    }
    return text;
  }

  std::string bits_of(const Operand& output, size_t reg, int64_t e) const {
    const DType from = step_.program->dtype_of(static_cast<int>(reg));
    return encode(output.dtype, convert(from, output.dtype, value(reg, e)));
  }

  void store_elements(std::span<const Operand> outputs) {
    const std::string length = builder_.number(walks_.length());
    for (size_t s = 0; s < guarded_.size(); ++s)
      for (size_t k = 0; k < outputs.size(); ++k) {
        if (step_.program->is_per_row(step_.outputs[k].layout)) continue;
        const DType dtype = outputs[k].dtype;
        const int64_t unit = vector_unit(dtype, count_);
        const std::string to = builder_.write(
            buffer_of(outputs[k]), static_cast<int>(unit * static_cast<int64_t>(size_of(dtype)) / 4));
        const std::vector<std::string> vectors = packed_vectors(dtype, count_, [&](int64_t q) {
          return bits_of(outputs[k], store(k), static_cast<int64_t>(s) * count_ + q);
        });
        body_ += fmt::format("  if (inside{}) {{\n    let to = (row * {} + j{}) / {}u;\n",
                             guarded_[s] ? fmt::format(" && in{}", s) : "", length, s, unit);
        for (size_t v = 0; v < vectors.size(); ++v)
          body_ += fmt::format("    {}[to + {}u] = {};\n", to, v, vectors[v]);
        body_ += "  }\n";
      }
  }

  const Step& step_;
  const RowWalks& walks_;
  Registers regs_;
  int64_t count_;               // neighbours in a slot
  bool across_ = false;         // neighbours are rows
  std::vector<bool> guarded_;   // by slot: in<s> says whether it is one
  std::vector<Level> levels_;   // by depth
  std::vector<int> first_use_;  // of each load: a depth
  Builder builder_;
  std::string body_;
};

/// Inputs that differ along rows, and outputs that do.
int64_t element_operands(const Step& step, const RowWalks& walks) {
  return std::ranges::count(walks.per_row, false) + static_cast<int64_t>(step.outputs.size());
}

bool is_one_pass(const Step& step, const Registers& regs) {
  return regs.max_depth() == 1 && std::ranges::all_of(step.outputs, [&](const Operand& o) {
           return step.program->is_per_row(o.layout);
         });
}

/// Whether the bindings are enough when inputs that share a buffer are bound with different widths.
bool binds(const Context& context, const Step& step) {
  return step.inputs.size() + step.outputs.size() + 1 < context.device.limits().max_storage_buffers;
}

bool any_narrow(const Step& step) {
  const auto narrow = [](const Operand& o) { return size_of(o.dtype) < 4; };
  return std::ranges::any_of(step.inputs, narrow) || std::ranges::any_of(step.outputs, narrow);
}

/// Whether every input that differs along the row is made of aligned vectors there.
bool rows_are_vectors(const Step& step, const RowWalks& walks, int64_t count) {
  if (walks.element.dims.size() != 1 || walks.length() % count != 0) return false;
  for (size_t k = 0; k < step.inputs.size(); ++k) {
    if (walks.per_row[k]) continue;
    const int64_t unit = vector_unit(step.inputs[k].dtype, count);
    if (walks.element.dims[0].strides[k] != 1 || walks.row.offsets[k] % unit != 0) return false;
    for (const Walk::Dim& dim : walks.row.dims)
      if (dim.strides[k] % unit != 0) return false;
  }
  return true;
}

/// Whether neighbouring rows are neighbours in memory, in aligned vectors, or the same.
bool columns_are_vectors(const Step& step, const RowWalks& walks, int64_t count) {
  if (walks.row.dims.empty() || walks.row.dims.back().size % count != 0) return false;
  bool any = false;
  for (size_t k = 0; k < step.inputs.size(); ++k) {
    const int64_t stride = walks.row.dims.back().strides[k];
    if (stride == 0) continue;
    const int64_t unit = vector_unit(step.inputs[k].dtype, count);
    if (stride != 1 || !is_aligned(walks.row, k, step.inputs[k].dtype, count)) return false;
    for (const Walk::Dim& dim : walks.element.dims)
      if (dim.strides[k] % unit != 0) return false;
    any = any || !walks.per_row[k];
  }
  return any;
}

/// Threads of a row that is kept in registers; 0 when it does not fit.
int64_t lanes_for(const Context& context, const Step& step, const RowWalks& walks) {
  const int64_t most = kInRegisters / (element_operands(step, walks) > 3 ? 2 : 1);
  const int64_t wanted = walks.rows() >= 512 ? kInFlight : 4;  // few rows: more threads for each
  const auto threads = [&](int64_t elements) {
    return static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>((walks.length() + elements - 1) / elements)));
  };
  const int64_t lanes = std::max(std::clamp<int64_t>(threads(wanted), 4, kThreads), threads(most));
  return lanes <= static_cast<int64_t>(context.device.limits().max_workgroup_threads) ? lanes : 0;
}

}  // namespace

bool rows_by_vectors(Context& context, const Step& step, std::span<const Operand> outputs) {
  const RowWalks walks(step);
  if (!binds(context, step) || walks.length() * walks.rows() == 0) return false;
  const Registers regs(*step.program, walks.per_row);
  const bool one_pass = is_one_pass(step, regs);
  for (const int64_t count : {8, 4}) {
    if (count == 8 && !any_narrow(step)) continue;
    if (rows_are_vectors(step, walks, count)) {
      const int64_t lanes = lanes_for(context, step, walks);
      const int64_t pieces = std::min(walks.length() / kShortPiece, 8 * kThreads / walks.rows());
      VectorRows writer(step, walks, walks.per_row, count);
      if (one_pass && (pieces > 1 || lanes == 0)) {
        const int64_t parts = std::max<int64_t>(pieces, 1);
        const gpu::Buffer partial =
            context.scratch(walks.rows() * parts * static_cast<int64_t>(writer.folds()), "partial");
        writer.pieces(context, parts, partial);
        join_pieces(context, step, parts, partial, outputs);
        return true;
      }
      if (lanes == 0) return false;
      writer.whole(context, outputs, lanes);
      return true;
    }
    if (one_pass && columns_are_vectors(step, walks, count)) {
      VectorRows writer(step, walks, std::vector<bool>(step.inputs.size(), false), count);
      const int64_t pieces = std::clamp<int64_t>(kBusy * count / walks.rows(), 1, (walks.length() + 15) / 16);
      const gpu::Buffer partial =
          context.scratch(walks.rows() * pieces * static_cast<int64_t>(writer.folds()), "partial");
      writer.columns(context, pieces, partial);
      join_pieces(context, step, pieces, partial, outputs);
      return true;
    }
  }
  return false;
}

}  // namespace weft::webgpu
