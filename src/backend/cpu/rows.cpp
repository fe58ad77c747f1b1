// Programs that fold rows. Each fold is a pass over the row, part by part: the ops of a pass go through a
// part while it is in L1. What a later pass reads again is kept for the whole row, or computed again where
// the row is too long for that.
//   rows:    a worker takes whole rows, and fetches the next one while it computes
//   pieces:  long rows are cut, and what their pieces fold to is joined
//   columns: rows that lie side by side go together, one element of each at a time
// The last two are for programs of one pass that store nothing per element.
#include <hwy/cache_control.h>

#include <algorithm>

#include "backend/cpu/elementwise_run.h"
#include "backend/cpu/fold_lanes.h"
#include "backend/cpu/machine.h"

namespace weft::cpu {
namespace {

using Instruction = ElementwiseProgram::Instruction;

constexpr int64_t kPart = 1024;          // elements of a register: a few of them fit in L1
constexpr int64_t kKeptBytes = 1 << 18;  // of a row: what is kept of it, and the next one, stay in L2
constexpr int64_t kColumns = 1024;       // rows side by side
constexpr int64_t kPiece = 1 << 15;      // elements; depends on nothing, so that results do not either
constexpr int64_t kGrainElements = 1 << 14;

/// Brings what the next row reads into L2, a few lines before each op on this one. Else memory rests while
/// ops compute, and the first op of a row waits for it: an rms_norm of 4096 x 4096 takes 4.6 ms instead
/// of 3.2 to 3.8. A few lines, because bursts are slower than nothing where columns are read ahead
/// (reduce.cpp).
class ReadAhead {
 public:
  void clear() { runs_.clear(); }
  void add(const std::byte* begin, int64_t bytes) {
    runs_.push_back({begin, (bytes + kLineBytes - 1) / kLineBytes});
  }
  void step(int64_t lines) {
    if (runs_.empty()) return;
    Run& run = runs_.back();
    const std::byte* const end = run.at + std::min(lines, run.lines) * kLineBytes;
    for (const std::byte* at = run.at; at < end; at += kLineBytes) __builtin_prefetch(at, 0, 2);
    run.at = end;
    run.lines -= lines;
    if (run.lines <= 0) runs_.pop_back();
  }

 private:
  struct Run {
    const std::byte* at;
    int64_t lines;
  };
  std::vector<Run> runs_;
};

/// A program over rows, with everything about its registers that does not change from row to row.
class RowProgram {
 public:
  RowProgram(const ElementwiseProgram& program, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs)
      : program_(program), inputs_(inputs), outputs_(outputs) {
    const Shape& shape = outputs[0].layout.shape;
    const size_t kept = shape.size() - program.row_dims;
    for (size_t d = 0; d < shape.size(); ++d) {
      Dim dim{shape[d], {}};
      for (const Tensor& t : inputs) dim.strides.push_back(t.layout.strides[d]);
      add(d < kept ? rows_dims_ : row_dims_, std::move(dim));
    }
    for (const Dim& d : rows_dims_) rows_ *= d.size;
    for (const Dim& d : row_dims_) length_ *= d.size;
    registers_.length = length_;

    const size_t loads = program.loads.size();
    for (size_t k = 0; k < loads; ++k) {
      registers_.is_per_row.push_back(program.is_per_row(inputs[k].layout));
      depth_.push_back(0);
    }
    for (const Instruction& i : program.instructions) {
      bool row = true;
      int depth = 0;
      for (int k = 0; k < i.arity(); ++k) {
        const auto input = static_cast<size_t>(i.inputs[static_cast<size_t>(k)]);
        row = row && registers_.is_per_row[input];
        depth = std::max(depth, depth_[input]);
      }
      const bool folds = i.fold != Fold::none;
      registers_.is_per_row.push_back(row || folds);
      depth_.push_back(depth + (folds ? 1 : 0));
      passes_ = std::max(passes_, depth_.back());
      if (folds) folds_.push_back(depth_.size() - 1);
    }
    for (const Tensor& t : outputs) stores_elements_ = stores_elements_ || !program.is_per_row(t.layout);
    if (row_dims_.empty()) row_dims_.push_back({1, std::vector<int64_t>(inputs.size(), 0)});
    plan_passes(true);
    if (std::ranges::count(registers_.is_kept, true) * length_ * int64_t{4} > kKeptBytes) plan_passes(false);
    plan_read_ahead();
  }

  int64_t rows() const { return rows_; }
  int64_t length() const { return length_; }
  bool one_pass() const { return passes_ == 1 && !stores_elements_; }
  const std::vector<size_t>& folds() const { return folds_; }

  /// Rows that are neighbours in memory while a row's own elements are not.
  bool columns() const {
    if (!one_pass() || rows_dims_.empty() || rows_dims_.back().size < 8) return false;
    bool across = false;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (registers_.is_per_row[k]) continue;
      if (row_dims_.back().strides[k] == 1) return false;
      across = across || rows_dims_.back().strides[k] == 1;
    }
    return across;
  }

  /// What a thread has while it goes through rows. Nothing is allocated for a row.
  struct Worker {
    Machine machine;
    std::vector<FoldLanes> folds;
    std::vector<int64_t> at, next;  // where this row and the next one begin in each input
    ReadAhead ahead;
  };
  Worker worker() const {
    Worker w{.machine = Machine(program_, std::clamp<int64_t>(length_, 1, kPart), outputs_, registers_)};
    for (size_t f : folds_) w.folds.emplace_back(instruction(f).fold);
    return w;
  }

  void run_row(Worker& w, int64_t row) const {
    begin_row(w, row);
    fetch_next(w, row);
    for (int pass = 1; pass <= passes_; ++pass) {
      fold_part(w, pass, 0, length_);
      finish_pass(w, pass);
    }
    if (stores_elements_) {
      for (int64_t at = 0; at < length_; at += kPart) {
        const int64_t n = std::min(kPart, length_ - at);
        elements(w, steps_.back(), at, n, row * length_ + at);
        w.machine.store_rest(row * length_ + at, n);
      }
    }
    store_row(w, row);
  }

  /// What elements [begin, end) of a row fold to; one_pass() programs.
  std::vector<double> run_piece(Worker& w, int64_t row, int64_t begin, int64_t end) const {
    begin_row(w, row);
    fold_part(w, 1, begin, end);
    std::vector<double> folded;
    for (FoldLanes& fold : w.folds) folded.push_back(fold.total());
    return folded;
  }
  void finish_row(Worker& w, int64_t row, const std::vector<double>& folded) const {
    begin_row(w, row);
    for (size_t f = 0; f < folds_.size(); ++f) w.machine.set(folds_[f], &folded[f], 1);
    compute_row_registers(w, 1);
    store_row(w, row);
  }

  /// Rows [row, row + n) that lie along the inner dim of the rows; one_pass() programs.
  void run_columns(Machine& machine, int64_t row, int64_t n) const {
    std::vector<int64_t> base, at;
    locate(rows_dims_, row, base);
    const size_t loads = program_.loads.size();
    const Dim& across = rows_dims_.back();
    std::vector<std::vector<double>> accs;
    for (size_t f : folds_) accs.emplace_back(static_cast<size_t>(n), start_of(instruction(f).fold));
    for (int64_t j = 0; j < length_; ++j) {
      locate(row_dims_, j, at);
      for (size_t k = 0; k < loads; ++k)
        machine.load(k, inputs_[k], inputs_[k].layout.offset + base[k] + at[k], across.strides[k], n);
      for (size_t reg = loads; reg < depth_.size(); ++reg)
        if (depth_[reg] == 0) machine.compute(reg, n);
      for (size_t f = 0; f < folds_.size(); ++f) {
        const Instruction& i = instruction(folds_[f]);
        fold_into(i.fold, accs[f].data(), machine.floats(i.inputs[0]), n);
      }
    }
    for (size_t f = 0; f < folds_.size(); ++f) machine.set(folds_[f], accs[f].data(), n);
    for (size_t reg = loads; reg < depth_.size(); ++reg)
      if (depth_[reg] == 1 && instruction(reg).fold == Fold::none) machine.compute(reg, n);
    for (size_t k = 0; k < outputs_.size(); ++k)
      machine.store(static_cast<size_t>(program_.stores[k]), outputs_[k], row, n);
  }
  int64_t columns_left(int64_t row) const { return rows_dims_.back().size - row % rows_dims_.back().size; }

 private:
  struct Dim {
    int64_t size = 1;
    std::vector<int64_t> strides;  // one per input
  };

  /// Evenly strided neighbours become one dim.
  static void add(std::vector<Dim>& dims, Dim dim) {
    if (dim.size == 1) return;
    if (!dims.empty()) {
      bool even = true;
      for (size_t k = 0; k < dim.strides.size(); ++k)
        even = even && dims.back().strides[k] == dim.strides[k] * dim.size;
      if (even) {
        dims.back().size *= dim.size;
        dims.back().strides = std::move(dim.strides);
        return;
      }
    }
    dims.push_back(std::move(dim));
  }

  /// Offsets of the inputs, in elements, of what has that index along `dims`.
  void locate(const std::vector<Dim>& dims, int64_t index, std::vector<int64_t>& offsets) const {
    offsets.assign(inputs_.size(), 0);
    for (size_t d = dims.size(); d-- > 0; index /= dims[d].size)
      for (size_t k = 0; k < offsets.size(); ++k) offsets[k] += index % dims[d].size * dims[d].strides[k];
  }

  const Instruction& instruction(size_t reg) const {
    return program_.instructions[reg - program_.loads.size()];
  }
  bool is_load(size_t reg) const { return reg < program_.loads.size(); }
  bool is_run(size_t k) const { return row_dims_.size() == 1 && row_dims_[0].strides[k] == 1; }
  /// Had again for nothing in every pass.
  bool is_free(size_t reg) const {
    return is_load(reg) ? is_run(reg) && is_plain(inputs_[reg].dtype) : is_renaming(program_, reg);
  }

  /// A register that is computed per element, in one pass.
  struct Step {
    enum class Kind { load, compute, recall, finish };
    Kind kind;
    size_t reg;
  };

  /// What each pass computes; the last one is for the stores.
  void plan_passes(bool keeps) {
    registers_.is_kept.assign(depth_.size(), false);
    spread_.assign(depth_.size(), false);
    steps_.clear();
    std::vector<bool> done(depth_.size(), false);
    for (int pass = 1; pass <= passes_ + 1; ++pass) {
      std::vector<bool> wanted(depth_.size(), false);
      for (size_t f : folds_)
        if (depth_[f] == pass) want(static_cast<size_t>(instruction(f).inputs[0]), done, wanted);
      for (size_t k = 0; k < outputs_.size(); ++k)
        if (pass > passes_ && !program_.is_per_row(outputs_[k].layout))
          want(static_cast<size_t>(program_.stores[k]), done, wanted);
      std::vector<Step>& steps = steps_.emplace_back();
      for (size_t reg = 0; reg < wanted.size(); ++reg) {
        if (!wanted[reg]) continue;
        const auto computes = pass > passes_ ? Step::Kind::finish : Step::Kind::compute;
        steps.push_back({done[reg] ? Step::Kind::recall : is_load(reg) ? Step::Kind::load : computes, reg});
      }
      for (const Step& step : steps) done[step.reg] = keeps && !is_free(step.reg);
    }
  }

  /// Marks a register of this pass and what it is made of, as far as no pass before it is `done` with it.
  void want(size_t reg, const std::vector<bool>& done, std::vector<bool>& wanted) {
    if (registers_.is_per_row[reg]) spread_[reg] = true;
    if (registers_.is_per_row[reg] || wanted[reg]) return;
    wanted[reg] = true;
    if (done[reg]) registers_.is_kept[reg] = true;
    if (done[reg] || is_load(reg)) return;
    for (int k = 0; k < instruction(reg).arity(); ++k)
      want(static_cast<size_t>(instruction(reg).inputs[static_cast<size_t>(k)]), done, wanted);
  }

  /// The inputs of which each row has elements of its own, in one run, and how many lines of them come with
  /// each step.
  void plan_read_ahead() {
    int64_t lines = 0, steps = static_cast<int64_t>(folds_.size());
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const int64_t bytes = length_ * static_cast<int64_t>(size_of(inputs_[k].dtype));
      const bool changes = std::ranges::any_of(rows_dims_, [&](const Dim& d) { return d.strides[k] != 0; });
      if (registers_.is_per_row[k] || !is_run(k) || !changes || bytes > kKeptBytes) continue;
      ahead_.push_back(k);
      lines += bytes / kLineBytes + 1;
    }
    for (const auto& pass : steps_) steps += static_cast<int64_t>(pass.size());
    steps *= (length_ + kPart - 1) / kPart;
    ahead_share_ = lines / std::max<int64_t>(steps, 1) + 1;
  }

  void fetch_next(Worker& w, int64_t row) const {
    w.ahead.clear();
    if (ahead_.empty() || row + 1 >= rows_) return;
    locate(rows_dims_, row + 1, w.next);
    for (size_t k : ahead_) {
      const auto size = static_cast<int64_t>(size_of(inputs_[k].dtype));
      w.ahead.add(inputs_[k].data + (inputs_[k].layout.offset + w.next[k]) * size, length_ * size);
    }
  }

  void begin_row(Worker& w, int64_t row) const {
    locate(rows_dims_, row, w.at);
    for (size_t k = 0; k < program_.loads.size(); ++k)
      if (registers_.is_per_row[k])
        w.machine.load(k, inputs_[k], inputs_[k].layout.offset + w.at[k], 0, row_values(k));
    compute_row_registers(w, 0);
  }

  /// How often a register of one value per row has it.
  int64_t row_values(size_t reg) const { return spread_[reg] ? std::clamp<int64_t>(length_, 1, kPart) : 1; }

  /// Those of one value per row that need `depth` folds.
  void compute_row_registers(Worker& w, int depth) const {
    for (size_t reg = program_.loads.size(); reg < depth_.size(); ++reg) {
      if (!registers_.is_per_row[reg] || depth_[reg] != depth || instruction(reg).arity() == 0) continue;
      if (instruction(reg).fold == Fold::none) w.machine.compute(reg, 1);
      if (spread_[reg]) w.machine.spread(reg, row_values(reg));
    }
  }

  /// The registers of a pass, elements [at, at + n) of the row; `out`: where those lie in the outputs.
  void elements(Worker& w, const std::vector<Step>& steps, int64_t at, int64_t n, int64_t out) const {
    for (const auto& [kind, reg] : steps) {
      w.ahead.step(ahead_share_);
      const int64_t place = registers_.is_kept[reg] ? at : 0;
      switch (kind) {
        case Step::Kind::load:
          load_elements(w, reg, at, n, place);
          break;
        case Step::Kind::compute:
          w.machine.compute(reg, n, place);
          break;
        case Step::Kind::recall:
          w.machine.recall(reg, at);
          break;
        case Step::Kind::finish:
          w.machine.finish(reg, out, n);
      }
    }
  }

  void load_elements(Worker& w, size_t k, int64_t at, int64_t n, int64_t place) const {
    const int64_t start = inputs_[k].layout.offset + w.at[k];
    if (is_free(k)) return w.machine.refer(k, inputs_[k], start + at);
    const int64_t run_size = row_dims_.back().size, stride = row_dims_.back().strides[k];
    for (int64_t done = 0; done < n;) {
      const int64_t column = (at + done) % run_size, run = std::min(n - done, run_size - column);
      int64_t offset = start + column * stride;
      int64_t rest = (at + done) / run_size;
      for (size_t d = row_dims_.size() - 1; d-- > 0; rest /= row_dims_[d].size)
        offset += rest % row_dims_[d].size * row_dims_[d].strides[k];
      w.machine.load_part(k, inputs_[k], offset, stride, place + done, run);
      done += run;
    }
    w.machine.recall(k, place);
  }

  void fold_part(Worker& w, int pass, int64_t begin, int64_t end) const {
    for (FoldLanes& fold : w.folds) fold.clear();
    for (int64_t at = begin; at < end; at += kPart) {
      const int64_t n = std::min(kPart, end - at);
      elements(w, steps_[static_cast<size_t>(pass - 1)], at, n, 0);
      for (size_t f = 0; f < folds_.size(); ++f) {
        if (depth_[folds_[f]] != pass) continue;
        w.ahead.step(ahead_share_);
        w.folds[f].add(w.machine.floats(instruction(folds_[f]).inputs[0]), n);
      }
    }
  }

  void finish_pass(Worker& w, int pass) const {
    for (size_t f = 0; f < folds_.size(); ++f) {
      if (depth_[folds_[f]] != pass) continue;
      const double total = w.folds[f].total();
      w.machine.set(folds_[f], &total, 1);
    }
    compute_row_registers(w, pass);
  }

  void store_row(const Worker& w, int64_t row) const {
    for (size_t k = 0; k < outputs_.size(); ++k)
      if (program_.is_per_row(outputs_[k].layout))
        w.machine.store(static_cast<size_t>(program_.stores[k]), outputs_[k], row, 1);
  }

  static void fold_into(Fold fold, double* acc, const float* x, int64_t n) {
    const auto each = [&](auto f) {
      for (int64_t i = 0; i < n; ++i) acc[i] = f(acc[i], static_cast<double>(x[i]));
    };
    switch (fold) {
      case Fold::prod:
        return each([](double a, double b) { return a * b; });
      case Fold::max:
        return each([](double a, double b) { return join(Fold::max, a, b); });
      case Fold::min:
        return each([](double a, double b) { return join(Fold::min, a, b); });
      default:
        return each([](double a, double b) { return a + b; });
    }
  }

  const ElementwiseProgram& program_;
  std::span<const Tensor> inputs_, outputs_;
  std::vector<Dim> rows_dims_, row_dims_;
  int64_t rows_ = 1, length_ = 1;
  RowRegisters registers_;
  std::vector<bool> spread_;              // of those of one value per row: read per element
  std::vector<int> depth_;                // of each register: folds before it, one after the other
  std::vector<size_t> folds_;             // registers
  std::vector<std::vector<Step>> steps_;  // of each pass, and of the stores
  std::vector<size_t> ahead_;             // inputs whose next row is fetched
  int64_t ahead_share_ = 0;
  int passes_ = 0;
  bool stores_elements_ = false;
};

}  // namespace

void run_rows(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs) {
  const RowProgram rows(program, inputs, outputs);
  if (rows.rows() == 0) return;
  if (rows.columns()) {
    const int64_t blocks = (rows.rows() + kColumns - 1) / kColumns;
    pool.for_each(static_cast<size_t>(blocks), 1, [&](size_t begin, size_t end) {
      Machine machine(program, kColumns);
      const int64_t last = std::min(static_cast<int64_t>(end) * kColumns, rows.rows());
      for (int64_t row = static_cast<int64_t>(begin) * kColumns; row < last;) {
        const int64_t n = std::min({kColumns, rows.columns_left(row), last - row});
        rows.run_columns(machine, row, n);
        row += n;
      }
    });
    return;
  }
  if (rows.one_pass() && rows.length() > 2 * kPiece && rows.rows() < 64) {
    const int64_t pieces = (rows.length() + kPiece - 1) / kPiece;
    std::vector<std::vector<double>> parts(static_cast<size_t>(rows.rows() * pieces));
    pool.for_each(parts.size(), 1, [&](size_t begin, size_t end) {
      RowProgram::Worker worker = rows.worker();
      for (size_t p = begin; p < end; ++p) {
        const int64_t row = static_cast<int64_t>(p) / pieces, at = static_cast<int64_t>(p) % pieces * kPiece;
        parts[p] = rows.run_piece(worker, row, at, std::min(at + kPiece, rows.length()));
      }
    });
    RowProgram::Worker worker = rows.worker();
    for (int64_t row = 0; row < rows.rows(); ++row) {
      std::vector<double>& whole = parts[static_cast<size_t>(row * pieces)];
      for (int64_t p = 1; p < pieces; ++p)
        for (size_t f = 0; f < whole.size(); ++f) {
          const Instruction& i = program.instructions[rows.folds()[f] - program.loads.size()];
          whole[f] = join(i.fold, whole[f], parts[static_cast<size_t>(row * pieces + p)][f]);
        }
      rows.finish_row(worker, row, whole);
    }
    return;
  }
  const int64_t grain = std::max({int64_t{1}, kGrainElements / std::max<int64_t>(rows.length(), 1),
                                  rows.rows() / (int64_t{16} * pool.threads())});
  pool.for_each(static_cast<size_t>(rows.rows()), static_cast<size_t>(grain), [&](size_t begin, size_t end) {
    RowProgram::Worker worker = rows.worker();
    for (size_t row = begin; row < end; ++row) rows.run_row(worker, static_cast<int64_t>(row));
    hwy::FlushStream();
  });
}

}  // namespace weft::cpu
