// Programs that fold rows: softmax, norms, losses, and reductions with work before and after them. A
// workgroup takes one row, or several short ones; each fold is a pass over the row and a tree in shared
// memory. What is computed per element is computed again in each pass that needs it: its inputs are in the
// cache by then.
#include <algorithm>
#include <bit>

#include "backend/webgpu/rows.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::webgpu {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kPieces = 512;  // workgroups that fill a GPU

constexpr std::string_view name_of_fold(Fold fold) {
  constexpr std::string_view kNames[] = {"none", "sum", "prod", "max", "min"};
  return kNames[static_cast<size_t>(fold)];
}

/// One step, written for `lanes` threads per row.
class Writer {
 public:
  Writer(const Context& context, const Step& step, int64_t lanes)
      : step_(step),
        walks_(step),
        regs_(*step.program, walks_.per_row),
        lanes_(lanes),
        builder_("rows"),
        rows_(walks_.rows()),
        length_(walks_.length()) {
    // Loads of several elements go out together; on a software adapter that only takes longer to compile.
    if (!context.software && length_ >= 4 * lanes) together_ = 4;
    for (size_t k = 0; k < step.outputs.size(); ++k) {
      const auto reg = static_cast<size_t>(step.program->stores[k]);
      (is_row_output(k) ? row_stores_ : element_stores_).push_back({k, reg});
    }
  }

  /// Every row by the threads of one workgroup, or a part of one.
  void whole(Context& context, std::span<const Operand> outputs) {
    begin("index");
    for (int d = 1; d <= regs_.max_depth(); ++d) {
      fold_pass(d, "lane", builder_.number(length_));
      for (size_t reg : regs_.folds_at(d)) finish_fold(reg, fmt::format("acc{}", reg));
      row_registers(d);
    }
    element_pass(outputs);
    store_rows(outputs);
    builder_.elements = rows_ * length_;
    const int64_t per_group = kThreads / lanes_;
    builder_.groups(context, (rows_ + per_group - 1) / per_group, kThreads, body_);
  }

  /// Long rows, many workgroups each: what they fold goes to `partial`.
  void pieces(Context& context, int64_t count, const gpu::Buffer& partial) {
    const std::string pieces = builder_.number(count), length = builder_.number(length_),
                      size = builder_.number((length_ + count - 1) / count);
    begin(fmt::format("(index / {})", pieces));
    body_ += fmt::format("  let first = index % {} * {};\n", pieces, size);
    fold_pass(1, "first + lane", fmt::format("min(first + {}, {})", size, length));
    const std::vector<size_t> folds = regs_.folds_at(1);
    for (size_t k = 0; k < folds.size(); ++k) {
      finish_fold(folds[k], fmt::format("acc{}", folds[k]), false);
      body_ += fmt::format("  if (lane == 0u) {{ {}[index * {}u + {}u] = bitcast<u32>(x{}); }}\n",
                           builder_.write(partial), folds.size(), k, folds[k]);
    }
    builder_.groups(context, rows_ * count, kThreads, body_);
  }

  /// The same rows from what pieces() left.
  void join_pieces(Context& context, int64_t count, const gpu::Buffer& partial,
                   std::span<const Operand> outputs) {
    begin("index");
    const std::vector<size_t> folds = regs_.folds_at(1);
    const std::string pieces = builder_.number(count), from = builder_.read(partial);
    for (size_t k = 0; k < folds.size(); ++k) {
      const Fold fold = regs_.instruction(folds[k]).fold;
      body_ += fmt::format(
          "  var acc{0} = {1};\n  for (var j = lane; j < {2}; j += {3}u) {{\n    let part = "
          "bitcast<f32>({4}[(row * {2} + j) * {5}u + {6}u]);\n    acc{0} = {7};\n  }}\n",
          folds[k], start_of(fold), pieces, lanes_, from, folds.size(), k,
          joined(fold, fmt::format("acc{}", folds[k]), "part"));
      finish_fold(folds[k], fmt::format("acc{}", folds[k]));
    }
    row_registers(1);
    store_rows(outputs);
    builder_.elements = rows_ * count;
    const int64_t per_group = kThreads / lanes_;
    builder_.groups(context, (rows_ + per_group - 1) / per_group, kThreads, body_);
  }

  bool one_pass() const { return element_stores_.empty() && regs_.max_depth() == 1; }
  bool is_row_output(size_t k) const { return step_.program->is_per_row(step_.outputs[k].layout); }
  int64_t rows() const { return rows_; }
  int64_t length() const { return length_; }
  /// Neighbouring rows are neighbours in memory, elements of a row are not.
  bool columns() const {
    bool across = false, along = false;
    for (size_t k = 0; k < step_.inputs.size(); ++k) {
      if (regs_.per_row[k]) continue;
      across = across || (!walks_.row.dims.empty() && walks_.row.dims.back().strides[k] == 1);
      along = along || walks_.element.dims.empty() || walks_.element.dims.back().strides[k] == 1;
    }
    return across && !along;
  }

 private:
  struct Store {
    size_t output, reg;
  };

  std::string bits_of(const Store& s, std::span<const Operand> outputs) const {
    const DType to = outputs[s.output].dtype, from = step_.program->dtype_of(static_cast<int>(s.reg));
    return encode(to, convert(from, to, fmt::format("x{}", s.reg)));
  }

  void begin(const std::string& group) {
    body_ = begin_rows(builder_, step_, walks_, regs_, lanes_, group, kThreads / lanes_);
  }

  void row_registers(int depth) { body_ += row_statements(builder_, regs_, depth); }

  /// Statements for the element `j` of the row.
  std::string element_registers(const std::vector<size_t>& wanted) {
    if (unravel_.empty()) unravel_ = builder_.unravel(walks_.element, "j", "e");
    std::string text = unravel_;
    for (size_t reg : regs_.elements_for(wanted)) {
      const std::string value = reg < regs_.loads()
                                    ? builder_.load(step_.inputs[reg], fmt::format("rat{0} + eat{0}", reg))
                                    : expression(builder_, *step_.program, regs_.instruction(reg));
      text += fmt::format("  let x{} = {};\n", reg, value);
    }
    return text;
  }

  /// acc<reg> of the folds of one depth, over this thread's elements. In runs of 32, so that sums lose
  /// little.
  void fold_pass(int depth, std::string_view begin, std::string_view end) {
    const std::vector<size_t> folds = regs_.folds_at(depth);
    std::vector<size_t> inputs;
    std::string starts, part_starts, parts, joins;
    for (size_t reg : folds) {
      const Instruction& i = regs_.instruction(reg);
      inputs.push_back(static_cast<size_t>(i.inputs[0]));
      starts += fmt::format("  var acc{} = {};\n", reg, start_of(i.fold));
      part_starts += fmt::format("    var part{} = {};\n", reg, start_of(i.fold));
      parts += fmt::format("      part{} = {};\n", reg,
                           joined(i.fold, fmt::format("part{}", reg), fmt::format("x{}", i.inputs[0])));
      joins += fmt::format("    acc{} = {};\n", reg,
                           joined(i.fold, fmt::format("acc{}", reg), fmt::format("part{}", reg)));
    }
    const std::string one = element_registers(inputs) + parts;
    std::string several;
    for (int64_t u = 0; u < together_; ++u)
      several += fmt::format("      {{\n      let j = at + {}u;\n{}      }}\n", u * lanes_, one);
    body_ += starts;
    body_ += fmt::format(
        "  {{\n  let stop = {0};\n  for (var at = {1}; at < stop; ) {{\n{2}"
        "    for (var k = 0u; k < {3}u && at + {4}u < stop; k++) {{\n{5}      at += {6}u;\n    }}\n",
        end, begin, part_starts, 32 / together_, (together_ - 1) * lanes_, several, together_ * lanes_);
    if (together_ > 1)
      body_ += fmt::format(
          "    for (var k = 0u; k < {}u && at < stop; k++) {{\n      let j = at;\n{}      at += {}u;\n    "
          "}}\n",
          together_ - 1, one, lanes_);
    body_ += joins + "  }\n  }\n";
  }

  /// x<reg> from every thread's part of it.
  void finish_fold(size_t reg, const std::string& own, bool rounded = true) {
    const Instruction& i = regs_.instruction(reg);
    const std::string value = lanes_ > 1 ? tree(builder_, i.fold, lanes_, kThreads, own) : own;
    body_ += fmt::format("  let x{} = {};\n", reg, rounded ? narrow(i.dtype, value) : value);
  }

  void element_pass(std::span<const Operand> outputs) {
    if (element_stores_.empty()) return;
    std::vector<size_t> wanted;
    size_t narrowest = 4;
    for (const Store& s : element_stores_) {
      wanted.push_back(s.reg);
      narrowest = std::min(narrowest, size_of(outputs[s.output].dtype));
    }
    const auto per = static_cast<int64_t>(4 / narrowest);  // elements of a thread at a time
    const std::string length = builder_.number(length_);
    body_ += fmt::format(
        "  if (!inside) {{ return; }}\n  for (var first = lane * {0}u; first < {1}; first += {2}u) {{\n", per,
        length, lanes_ * (per == 1 ? together_ : per));
    if (per == 1) {
      for (const Store& s : element_stores_)  // loads before any store
        body_ += fmt::format("  var bits{}: array<u32, {}>;\n", s.output, together_);
      for (int64_t u = 0; u < together_; ++u) {
        body_ += fmt::format("  {{\n  let j = min(first + {}u, {} - 1u);\n", u * lanes_, length);
        body_ += element_registers(wanted);
        for (const Store& s : element_stores_)
          body_ += fmt::format("  bits{}[{}] = {};\n", s.output, u, bits_of(s, outputs));
        body_ += "  }\n";
      }
      for (const Store& s : element_stores_)
        for (int64_t u = 0; u < together_; ++u)
          body_ +=
              fmt::format("  if (first + {0}u < {1}) {{ {2}[row * {1} + first + {0}u] = bits{3}[{4}]; }}\n",
                          u * lanes_, length, builder_.write(buffer_of(outputs[s.output])), s.output, u);
    } else {
      for (const Store& s : element_stores_)
        body_ += fmt::format("  var words{} = array<u32, {}>();\n", s.output,
                             per * static_cast<int64_t>(size_of(outputs[s.output].dtype)) / 4);
      body_ += fmt::format("  for (var k = 0u; k < {}u; k++) {{\n  let j = first + k;\n", per) +
               element_registers(wanted);
      for (const Store& s : element_stores_) {
        const size_t in_word = 4 / size_of(outputs[s.output].dtype);
        body_ += fmt::format("  words{0}[k / {1}u] |= {2} << ((k % {1}u) * {3}u);\n", s.output, in_word,
                             bits_of(s, outputs), 32 / in_word);
      }
      body_ += "  }\n";
      for (const Store& s : element_stores_) {
        const auto in_word = static_cast<int64_t>(4 / size_of(outputs[s.output].dtype));
        for (int64_t w = 0; w < per / in_word; ++w)
          body_ += fmt::format("  {0}[(row * {1} + first) / {2}u + {3}u] = words{4}[{3}];\n",
                               builder_.write(buffer_of(outputs[s.output])), length, in_word, w, s.output);
      }
    }
    body_ += "  }\n";
  }

  void store_rows(std::span<const Operand> outputs) {
    for (const Store& s : row_stores_)
      body_ += fmt::format("  if (inside && lane == 0u) {{ {}[row] = {}; }}\n",
                           builder_.write(buffer_of(outputs[s.output])), bits_of(s, outputs));
  }

  const Step& step_;
  RowWalks walks_;
  Registers regs_;
  int64_t lanes_;
  Builder builder_;
  int64_t rows_ = 1, length_ = 1;
  int64_t together_ = 1;  // elements of a thread that are loaded at once
  std::vector<Store> row_stores_, element_stores_;
  std::string body_, unravel_;
};

/// A dtype of whole words for the values of a narrow one.
DType word_type(DType dtype) {
  if (is_float(dtype)) return DType::f32;
  return dtype == DType::i8 ? DType::i32 : DType::u32;
}

}  // namespace

RowWalks::RowWalks(const Step& step) {
  const Shape& shape = step.outputs[0].layout.shape;
  const size_t kept = shape.size() - step.program->row_dims;
  element.offsets.assign(step.inputs.size(), 0);
  for (const Operand& input : step.inputs) {
    row.offsets.push_back(input.layout.offset);
    per_row.push_back(step.program->is_per_row(input.layout));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> strides;
    for (const Operand& input : step.inputs) strides.push_back(input.layout.strides[d]);
    (d < kept ? row : element).add(shape[d], std::move(strides));
  }
}

std::string row_statements(Builder& builder, const Registers& regs, int depth) {
  std::string text;
  for (size_t reg = regs.loads(); reg < regs.depth.size(); ++reg)
    if (regs.per_row[reg] && !regs.folds(reg) && regs.depth[reg] == depth)
      text += fmt::format("  let x{} = {};\n", reg, expression(builder, regs.program, regs.instruction(reg)));
  return text;
}

std::string begin_rows(Builder& builder, const Step& step, const RowWalks& walks, const Registers& regs,
                       int64_t lanes, const std::string& group, int64_t per_group) {
  std::string text = fmt::format("  let lane = thread % {0}u;\n  let at_row = {1} * {2}u + thread / {0}u;\n",
                                 lanes, group, per_group);
  text += fmt::format("  let row = min(at_row, {0} - 1u);\n  let inside = at_row < {0};\n",
                      builder.number(walks.rows()));
  text += builder.unravel(walks.row, "row", "r");
  for (size_t k = 0; k < regs.loads(); ++k)
    if (regs.per_row[k])
      text += fmt::format("  let x{} = {};\n", k, builder.load(step.inputs[k], fmt::format("rat{}", k)));
  return text + row_statements(builder, regs, 0);
}

std::string_view start_of(Fold fold) {
  switch (fold) {
    case Fold::prod:
      return "1.0";
    case Fold::max:
      return "-weft_inf()";
    case Fold::min:
      return "weft_inf()";
    default:
      return "0.0";
  }
}

std::string joined(Fold fold, std::string_view a, std::string_view b) {
  switch (fold) {
    case Fold::prod:
      return fmt::format("({} * {})", a, b);
    case Fold::max:
      return fmt::format("weft_max({}, {})", a, b);
    case Fold::min:
      return fmt::format("weft_min({}, {})", a, b);
    default:
      return fmt::format("({} + {})", a, b);
  }
}

std::string shuffled(Fold fold, std::string_view name, int64_t lanes) {
  std::string text;
  for (int64_t step = lanes / 2; step > 0; step /= 2)
    text += fmt::format("  {} = {};\n", name,
                        joined(fold, name, fmt::format("subgroupShuffleXor({}, {}u)", name, step)));
  return text;
}

std::string tree(Builder& builder, Fold fold, int64_t lanes, int64_t threads, std::string_view own) {
  const std::string name = fmt::format("tree_{}", name_of_fold(fold));
  if (builder.code.find("fn " + name) == std::string::npos) {
    if (builder.code.find("var<workgroup>") == std::string::npos)
      builder.code += fmt::format("var<workgroup> states: array<f32, {}>;\n", threads);
    // Two steps instead of one per power of two: 16 threads of a row fold its lanes, then every thread
    // folds those 16.
    const int64_t some = std::min<int64_t>(lanes, 16);
    builder.code += fmt::format(
        "fn {0}(thread: u32, lane: u32, own: f32) -> f32 {{\n  states[thread] = own;\n  workgroupBarrier();\n"
        "  let first = thread - lane;\n",
        name);
    if (lanes > some)
      builder.code += fmt::format(
          "  if (lane < {0}u) {{\n    var part = states[thread];\n"
          "    for (var k = {0}u; k < {1}u; k += {0}u) {{ part = {2}; }}\n    states[thread] = part;\n  }}\n"
          "  workgroupBarrier();\n",
          some, lanes, joined(fold, "part", "states[thread + k]"));
    builder.code += fmt::format(
        "  var all = states[first];\n  for (var k = 1u; k < {}u; k++) {{ all = {}; }}\n"
        "  workgroupBarrier();\n  return all;\n}}\n",
        some, joined(fold, "all", "states[first + k]"));
  }
  return fmt::format("{}(thread, lane, {})", name, own);
}

void join_pieces(Context& context, const Step& step, int64_t pieces, const gpu::Buffer& partial,
                 std::span<const Operand> outputs) {
  const auto lanes = std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(pieces))), kThreads);
  Writer(context, step, lanes).join_pieces(context, pieces, partial, outputs);
}

namespace {

/// Rows of any layout.
void rows_by_elements(Context& context, const Step& step, const Writer& shape,
                      std::span<const Operand> outputs) {
  const bool small = context.is_small(shape.rows() * shape.length());
  const int64_t pieces =
      std::min(shape.length() / (4 * kThreads), std::max<int64_t>(1, kPieces / shape.rows()));
  if (!small && shape.one_pass() && pieces > 1 && !(shape.columns() && shape.rows() >= 8192)) {
    const size_t folds = step.program->instructions.size();
    const gpu::Buffer partial =
        context.scratch(shape.rows() * pieces * static_cast<int64_t>(folds), "partial");
    Writer(context, step, kThreads).pieces(context, pieces, partial);
    join_pieces(context, step, pieces, partial, outputs);
  } else {
    const bool alone =
        (shape.length() <= (small ? 32 : 16) && !context.leaves_idle(shape.rows(), shape.length())) ||
        (shape.columns() && shape.rows() >= 4096);
    const int64_t lanes =
        alone ? 1
              : std::clamp<int64_t>(
                    static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(shape.length()) / 4)), 8,
                    kThreads);
    Writer(context, step, lanes).whole(context, outputs);
  }
}

}  // namespace

void rows(Context& context, const Step& step) {
  const Writer shape(context, step, 1);
  // Threads of different rows must not write into one word: such outputs are made wide, then packed.
  std::vector<Operand> outputs;
  for (size_t k = 0; k < step.outputs.size(); ++k) {
    const Operand& out = step.outputs[k];
    const bool row = shape.is_row_output(k);
    const auto in_word = static_cast<int64_t>(4 / size_of(out.dtype));
    const bool whole_words = in_word == 1 || (!row && shape.length() % 4 == 0);
    const int64_t count = row ? shape.rows() : shape.rows() * shape.length();
    outputs.push_back(whole_words ? out
                                  : Operand{std::make_shared<WebgpuStorage>(context.scratch(count, "rows")),
                                            word_type(out.dtype), Layout::contiguous({count})});
  }

  const bool general = context.software || context.is_small(shape.rows() * shape.length());
  if (general || !rows_by_vectors(context, step, outputs)) rows_by_elements(context, step, shape, outputs);
  for (size_t k = 0; k < outputs.size(); ++k)
    if (outputs[k].storage != step.outputs[k].storage)
      convert_all(context, outputs[k], step.outputs[k].dtype, buffer_of(step.outputs[k]));
}

}  // namespace weft::webgpu
