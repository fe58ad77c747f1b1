// Programs that fold rows. Each fold is a pass over the row, tile by tile; what is computed per element is
// computed again in the next pass, unless the whole row is one tile.
//   rows:    a worker takes whole rows
//   pieces:  long rows are cut, and what their pieces fold to is joined     (one pass, nothing per element
//   kept) columns: rows that lie side by side go together, one element of each at a time (the same)
#include <hwy/cache_control.h>

#include <algorithm>
#include <limits>

#include "backend/cpu/elementwise_run.h"
#include "backend/cpu/machine.h"
#include "backend/cpu/wide.h"
#include "base/error.h"

namespace weft::cpu {
namespace {

using Instruction = ElementwiseProgram::Instruction;

constexpr int64_t kTile = 4096;      // elements of a register: a row of this length is computed once
constexpr int64_t kColumns = 1024;   // rows side by side
constexpr int64_t kPiece = 1 << 15;  // elements; depends on nothing, so that results do not either
constexpr int64_t kGrainElements = 1 << 14;

double start_of(Fold fold) {
  switch (fold) {
    case Fold::prod:
      return 1;
    case Fold::max:
      return -std::numeric_limits<double>::infinity();
    case Fold::min:
      return std::numeric_limits<double>::infinity();
    default:
      return 0;
  }
}

template <typename T>
T join(Fold fold, T a, T b) {
  switch (fold) {
    case Fold::prod:
      return a * b;
    case Fold::max:
      return ((b > a) | (b != b)) ? b : a;  // once NaN, always NaN
    case Fold::min:
      return ((b < a) | (b != b)) ? b : a;
    default:
      return a + b;
  }
}

/// *total = what the elements fold to. Lanes lie side by side, and sums move to double before they lose
/// anything. 16 sums stay in registers; a choice needs a loop that GCC 12 will not unroll.
template <Fold kFold>
void fold_run(const float* x, int64_t n, double* total) {
  constexpr int64_t kLanes = kFold == Fold::sum ? 16 : 64, kRun = 16 * kLanes;
  *total = start_of(kFold);
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = std::min(n, begin + kRun);
    float lanes[kLanes];
    std::fill_n(lanes, kLanes, static_cast<float>(start_of(kFold)));
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] = join(kFold, lanes[l], x[i + l]);
    for (int64_t l = 0; i + l < end; ++l) lanes[l] = join(kFold, lanes[l], x[i + l]);
    for (float lane : lanes) *total = join(kFold, *total, static_cast<double>(lane));
  }
}

double fold_tile(Fold fold, const float* x, int64_t n) {
  double total = 1;
  switch (fold) {
    case Fold::prod:  // in double from the start: products leave f32's range soon
      for (int64_t i = 0; i < n; ++i) total *= static_cast<double>(x[i]);
      break;
    case Fold::max:
      wide<fold_run<Fold::max>>(x, n, &total);
      break;
    case Fold::min:
      wide<fold_run<Fold::min>>(x, n, &total);
      break;
    default:
      wide<fold_run<Fold::sum>>(x, n, &total);
  }
  return total;
}

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

    const size_t loads = program.loads.size();
    for (size_t k = 0; k < loads; ++k) {
      per_row_.push_back(program.is_per_row(inputs[k].layout));
      depth_.push_back(0);
    }
    for (const Instruction& i : program.instructions) {
      bool row = true;
      int depth = 0;
      for (int k = 0; k < i.arity(); ++k) {
        const auto input = static_cast<size_t>(i.inputs[static_cast<size_t>(k)]);
        row = row && per_row_[input];
        depth = std::max(depth, depth_[input]);
      }
      const bool folds = i.fold != Fold::none;
      per_row_.push_back(row || folds);
      depth_.push_back(depth + (folds ? 1 : 0));
      passes_ = std::max(passes_, depth_.back());
      if (folds) folds_.push_back(depth_.size() - 1);
    }
    for (const Tensor& t : outputs) stores_elements_ = stores_elements_ || !program.is_per_row(t.layout);
    // What each pass computes per element; the last one is for the stores.
    for (int pass = 1; pass <= passes_ + 1; ++pass) {
      std::vector<bool> wanted(depth_.size(), false);
      if (pass <= passes_) {
        for (size_t f : folds_)
          if (depth_[f] == pass) mark(static_cast<size_t>(instruction(f).inputs[0]), wanted);
      } else {
        for (int store : program.stores) mark(static_cast<size_t>(store), wanted);
      }
      elements_.emplace_back();
      for (size_t reg = 0; reg < wanted.size(); ++reg)
        if (wanted[reg]) elements_.back().push_back(reg);
    }
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
      if (per_row_[k]) continue;
      if (!row_dims_.empty() && row_dims_.back().strides[k] == 1) return false;
      across = across || rows_dims_.back().strides[k] == 1;
    }
    return across;
  }

  void run_row(Machine& machine, int64_t row) const {
    begin_row(machine, row);
    std::vector<bool> done(depth_.size(), false);  // only a row of one tile keeps what it computed
    const std::vector<int64_t> base = offsets(rows_dims_, row);
    for (int pass = 1; pass <= passes_; ++pass) {
      const std::vector<double> folded = fold_part(machine, base, pass, 0, length_, done);
      finish_pass(machine, pass, folded);
    }
    if (stores_elements_) {
      for (int64_t at = 0; at < length_; at += kTile) {
        const int64_t n = std::min(kTile, length_ - at);
        elements(machine, base, elements_.back(), at, n, done);
        for (size_t k = 0; k < outputs_.size(); ++k)
          if (!program_.is_per_row(outputs_[k].layout))
            machine.store(static_cast<size_t>(program_.stores[k]), outputs_[k], row * length_ + at, n,
                          is_streamed(outputs_[k]));
      }
    }
    store_row(machine, row);
  }

  /// What elements [begin, end) of a row fold to; one_pass() programs.
  std::vector<double> run_piece(Machine& machine, int64_t row, int64_t begin, int64_t end) const {
    begin_row(machine, row);
    std::vector<bool> done(depth_.size(), false);
    return fold_part(machine, offsets(rows_dims_, row), 1, begin, end, done);
  }
  void finish_row(Machine& machine, int64_t row, const std::vector<double>& folded) const {
    begin_row(machine, row);
    finish_pass(machine, 1, folded);
    store_row(machine, row);
  }

  /// Rows [row, row + n) that lie along the inner dim of the rows; one_pass() programs.
  void run_columns(Machine& machine, int64_t row, int64_t n) const {
    const std::vector<int64_t> base = offsets(rows_dims_, row);
    const size_t loads = program_.loads.size();
    const Dim& across = rows_dims_.back();
    std::vector<std::vector<double>> accs;
    for (size_t f : folds_) accs.emplace_back(static_cast<size_t>(n), start_of(instruction(f).fold));
    for (int64_t j = 0; j < length_; ++j) {
      const std::vector<int64_t> at = offsets(row_dims_, j);
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

  std::vector<int64_t> offsets(const std::vector<Dim>& dims, int64_t index) const {
    std::vector<int64_t> result(inputs_.size(), 0);
    for (size_t d = dims.size(); d-- > 0; index /= dims[d].size)
      for (size_t k = 0; k < result.size(); ++k) result[k] += index % dims[d].size * dims[d].strides[k];
    return result;
  }

  const Instruction& instruction(size_t reg) const {
    return program_.instructions[reg - program_.loads.size()];
  }

  void mark(size_t reg, std::vector<bool>& wanted) const {
    if (per_row_[reg] || wanted[reg]) return;
    wanted[reg] = true;
    if (reg < program_.loads.size()) return;
    for (int k = 0; k < instruction(reg).op->arity; ++k)
      mark(static_cast<size_t>(instruction(reg).inputs[static_cast<size_t>(k)]), wanted);
  }

  /// Computes a register of one value per row; per element it is wanted as often as a tile is long.
  void row_register(Machine& machine, size_t reg) const {
    if (instruction(reg).arity() == 0) return;  // there already
    machine.compute(reg, 1);
    machine.spread(reg, std::min(kTile, length_));
  }

  void begin_row(Machine& machine, int64_t row) const {
    const std::vector<int64_t> base = offsets(rows_dims_, row);
    for (size_t k = 0; k < program_.loads.size(); ++k)
      if (per_row_[k])
        machine.load(k, inputs_[k], inputs_[k].layout.offset + base[k], 0, std::min(kTile, length_));
    for (size_t reg = program_.loads.size(); reg < depth_.size(); ++reg)
      if (per_row_[reg] && depth_[reg] == 0) row_register(machine, reg);
  }

  void elements(Machine& machine, const std::vector<int64_t>& base, const std::vector<size_t>& regs,
                int64_t at, int64_t n, std::vector<bool>& done) const {
    for (size_t reg : regs) {
      if (done[reg]) continue;
      if (reg < program_.loads.size())
        load_elements(machine, reg, base[reg], at, n);
      else
        machine.compute(reg, n);
      done[reg] = length_ <= kTile;
    }
  }

  void load_elements(Machine& machine, size_t k, int64_t base, int64_t at, int64_t n) const {
    const int64_t run_size = row_dims_.back().size, stride = row_dims_.back().strides[k];
    for (int64_t done = 0; done < n;) {
      const int64_t column = (at + done) % run_size, run = std::min(n - done, run_size - column);
      int64_t offset = inputs_[k].layout.offset + base + column * stride;
      int64_t rest = (at + done) / run_size;
      for (size_t d = row_dims_.size() - 1; d-- > 0; rest /= row_dims_[d].size)
        offset += rest % row_dims_[d].size * row_dims_[d].strides[k];
      if (run == n)
        machine.load(k, inputs_[k], offset, stride, n);
      else
        machine.load_part(k, inputs_[k], offset, stride, done, run);
      done += run;
    }
  }

  std::vector<double> fold_part(Machine& machine, const std::vector<int64_t>& base, int pass, int64_t begin,
                                int64_t end, std::vector<bool>& done) const {
    std::vector<double> folded;
    for (size_t f : folds_) folded.push_back(start_of(instruction(f).fold));
    for (int64_t at = begin; at < end; at += kTile) {
      const int64_t n = std::min(kTile, end - at);
      elements(machine, base, elements_[static_cast<size_t>(pass - 1)], at, n, done);
      for (size_t f = 0; f < folds_.size(); ++f) {
        if (depth_[folds_[f]] != pass) continue;
        const Instruction& i = instruction(folds_[f]);
        folded[f] = join(i.fold, folded[f], fold_tile(i.fold, machine.floats(i.inputs[0]), n));
      }
    }
    return folded;
  }

  void finish_pass(Machine& machine, int pass, const std::vector<double>& folded) const {
    for (size_t f = 0; f < folds_.size(); ++f) {
      if (depth_[folds_[f]] != pass) continue;
      machine.set(folds_[f], static_cast<float>(folded[f]), std::min(kTile, length_));
    }
    for (size_t reg = program_.loads.size(); reg < depth_.size(); ++reg)
      if (per_row_[reg] && depth_[reg] == pass && instruction(reg).fold == Fold::none)
        row_register(machine, reg);
  }

  void store_row(const Machine& machine, int64_t row) const {
    for (size_t k = 0; k < outputs_.size(); ++k)
      if (program_.is_per_row(outputs_[k].layout))
        machine.store(static_cast<size_t>(program_.stores[k]), outputs_[k], row, 1);
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
  std::vector<bool> per_row_;                  // of each register: one value per row
  std::vector<int> depth_;                     // of each register: folds before it, one after the other
  std::vector<size_t> folds_;                  // registers
  std::vector<std::vector<size_t>> elements_;  // registers of each pass, and of the stores
  int passes_ = 0;
  bool stores_elements_ = false;
};

}  // namespace

void run_rows(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs) {
  const RowProgram rows(program, inputs, outputs);
  if (rows.rows() == 0) return;
  const int64_t tile = std::min(kTile, std::max<int64_t>(rows.length(), 1));
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
      Machine machine(program, tile);
      for (size_t p = begin; p < end; ++p) {
        const int64_t row = static_cast<int64_t>(p) / pieces, at = static_cast<int64_t>(p) % pieces * kPiece;
        parts[p] = rows.run_piece(machine, row, at, std::min(at + kPiece, rows.length()));
      }
    });
    Machine machine(program, tile);
    for (int64_t row = 0; row < rows.rows(); ++row) {
      std::vector<double>& whole = parts[static_cast<size_t>(row * pieces)];
      for (int64_t p = 1; p < pieces; ++p)
        for (size_t f = 0; f < whole.size(); ++f) {
          const Instruction& i = program.instructions[rows.folds()[f] - program.loads.size()];
          whole[f] = join(i.fold, whole[f], parts[static_cast<size_t>(row * pieces + p)][f]);
        }
      rows.finish_row(machine, row, whole);
    }
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(rows.length(), 1));
  pool.for_each(static_cast<size_t>(rows.rows()), static_cast<size_t>(grain), [&](size_t begin, size_t end) {
    Machine machine(program, tile);
    for (size_t row = begin; row < end; ++row) rows.run_row(machine, static_cast<int64_t>(row));
    hwy::FlushStream();
  });
}

}  // namespace weft::cpu
