// Programs that fold rows, against the same arithmetic in double: rows shorter and longer than a part, rows
// that are kept and rows that are not, results that go past the caches.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/elementwise_run.h"
#include "ops/op.h"
#include "primitives_support.h"

using namespace weft;
using namespace weft::test::primitives;

namespace {

using Doubles = std::vector<double>;

/// Writes a program down; each function returns the register it makes.
struct Writer {
  ElementwiseProgram program{.loads = {}, .instructions = {}, .stores = {}, .row_dims = 1};

  int add(const ElementwiseProgram::Instruction& instruction) {
    program.instructions.push_back(instruction);
    return static_cast<int>(program.loads.size() + program.instructions.size()) - 1;
  }
  int op(const char* name, std::array<int, 3> inputs) {
    return add({.op = &find_op(name).scalar, .inputs = inputs});
  }
  int fold(Fold kind, int x) { return add({.inputs = {x}, .fold = kind}); }
  int constant(double value) {
    static const ScalarOp kConstant{.name = "constant", .arity = 0};
    return add({.op = &kConstant, .attrs = {value}});
  }
  int convert(int x, DType dtype) {
    static const ScalarOp kConvert{.name = "convert"};
    return program.dtype_of(x) == dtype ? x : add({.op = &kConvert, .inputs = {x}, .dtype = dtype});
  }
};

/// Stores a softmax, the exponentials that a pass makes and the next one reads, and the largest of each row.
ElementwiseProgram softmax(DType dtype) {
  Writer w;
  w.program.loads = {dtype};
  const int x = w.convert(0, DType::f32), largest = w.fold(Fold::max, x);
  const int e = w.op("exp", {w.op("sub", {x, largest})}), total = w.fold(Fold::sum, e);
  const int y = w.convert(w.op("divide", {e, total}), dtype);
  w.program.stores = {y, e, largest};
  return w.program;
}

std::array<Doubles, 3> softmax_of(const Doubles& x) {
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (double v : x) largest = v > largest || std::isnan(v) ? v : largest;
  std::array<Doubles, 3> result;
  for (double v : x) total += result[1].emplace_back(std::exp(v - largest));
  for (double e : result[1]) result[0].push_back(e / total);
  result[2] = {largest};
  return result;
}

/// (x - mean) / sqrt(variance + 0.1) * weight, the smallest of what x has beyond its mean, and the product of
/// all 1 + x / n.
ElementwiseProgram norm(DType dtype, int64_t length) {
  Writer w;
  w.program.loads = {dtype, dtype};
  const int x = w.convert(0, DType::f32), weight = w.convert(1, DType::f32);
  const int share = w.constant(1.0 / static_cast<double>(length)), eps = w.constant(0.1), one = w.constant(1);
  const int product = w.fold(Fold::prod, w.op("add", {w.op("mul", {x, share}), one}));
  const int d = w.op("sub", {x, w.op("mul", {w.fold(Fold::sum, x), share})});
  const int variance = w.op("mul", {w.fold(Fold::sum, w.op("mul", {d, d})), share});
  const int y = w.op("mul", {w.op("mul", {d, w.op("rsqrt", {w.op("add", {variance, eps})})}), weight});
  w.program.stores = {w.convert(y, dtype), w.fold(Fold::min, d), product};
  return w.program;
}

std::array<Doubles, 3> norm_of(const Doubles& x, const Doubles& weight) {
  const auto count = static_cast<double>(x.size());
  double mean = 0, variance = 0, smallest = std::numeric_limits<double>::infinity(), product = 1;
  for (double v : x) {
    mean += v / count;
    const float factor = static_cast<float>(v) * static_cast<float>(1 / count);
    product *= static_cast<double>(factor + 1);  // rounded as the program's
  }
  for (double v : x) variance += (v - mean) * (v - mean) / count, smallest = std::min(smallest, v - mean);
  Doubles y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back((x[i] - mean) / std::sqrt(variance + 0.1) * weight[i]);
  return {y, {smallest}, {product}};
}

/// Without pattern, so that no sum of a row cancels out.
double value_at(int64_t i) {
  return 2 * std::sin(static_cast<double>(i % 100'003) * 1.7) + 0.3;
}

/// Rows in memory, with their elements `step` apart.
struct Rows {
  DType dtype;
  int64_t rows, length, step;
  std::vector<std::byte> storage;

  Rows(DType type, int64_t count, int64_t size, int64_t stride = 1)
      : dtype(type), rows(count), length(size), step(stride) {
    storage.resize(static_cast<size_t>(rows * length * step) * size_of(dtype));
    for (int64_t i = 0; i < rows * length * step; ++i) write(dtype, storage.data(), i, value_at(i));
  }
  cpu::Tensor tensor(bool expanded = false) {
    return {storage.data(), dtype, {{rows, length}, {expanded ? 0 : length * step, step}}};
  }
  Doubles row(int64_t r) const {
    Doubles values;
    for (int64_t i = 0; i < length; ++i)
      values.push_back(static_cast<double>(read(dtype, storage.data(), (r * length + i) * step)));
    return values;
  }
};

/// An output of a program: rows, or one value of each.
struct Result {
  DType dtype;
  int64_t rows, length;
  bool per_row;
  std::vector<std::byte> storage;

  Result(DType type, int64_t count, int64_t size, bool one)
      : dtype(type), rows(count), length(size), per_row(one) {
    storage.resize(static_cast<size_t>(rows * (one ? 1 : length)) * size_of(dtype) + 64);
  }
  cpu::Tensor tensor() {  // begins with a line of the cache
    std::byte* const data = storage.data() + -reinterpret_cast<uintptr_t>(storage.data()) % 64;
    return {data, dtype, {{rows, length}, per_row ? Shape{1, 0} : Shape{length, 1}}};
  }
};

void check_row(Result& result, int64_t row, const Doubles& want) {
  const double tolerance = result.dtype == DType::f32 ? 1e-5 : 2e-3;
  size_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const auto at = row * static_cast<int64_t>(want.size()) + static_cast<int64_t>(i);
    const auto got = static_cast<double>(read(result.dtype, result.tensor().data, at));
    const double off = std::fabs(got - want[i]);
    wrong += std::isnan(want[i]) ? !std::isnan(got) : !(off <= tolerance * (0.1 + std::fabs(want[i])));
  }
  CAPTURE(row);
  CHECK(wrong == 0);
}

/// Runs a program and compares every `stride`-th row with what `expect` says.
template <typename Expect>
std::vector<Result> check_program(ThreadPool& pool, const ElementwiseProgram& program,
                                  const std::vector<cpu::Tensor>& inputs, std::array<bool, 3> per_row,
                                  const Expect& expect, int64_t stride = 1) {
  const int64_t rows = inputs[0].layout.shape[0], length = inputs[0].layout.shape[1];
  std::vector<Result> results;
  std::vector<cpu::Tensor> outputs;
  for (size_t k = 0; k < 3; ++k)
    results.emplace_back(program.dtype_of(program.stores[k]), rows, length, per_row[k]);
  for (Result& result : results) outputs.push_back(result.tensor());
  cpu::run_rows(pool, program, inputs, outputs);
  for (int64_t row = 0; row < rows; row += stride) {
    const std::array<Doubles, 3> want = expect(row);
    for (size_t k = 0; k < 3; ++k) check_row(results[k], row, want[k]);
  }
  return results;
}

bool same_bits(std::vector<Result>& a, std::vector<Result>& b) {
  for (size_t k = 0; k < a.size(); ++k) {
    const size_t bytes = a[k].storage.size() - 64;
    if (std::memcmp(a[k].tensor().data, b[k].tensor().data, bytes) != 0) return false;
  }
  return true;
}

}  // namespace

TEST_SUITE("base: rows") {
  TEST_CASE("rows of every length, on one thread and on three") {
    ThreadPool one(1), three(3);
    for (const DType dtype : {DType::f32, DType::f16})
      for (const int64_t length :
           {1, 2, 31, 33, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097, 10'000, 65'537, 140'000})
        for (const int64_t step : {1, 3}) {
          CAPTURE(name_of(dtype));
          CAPTURE(length);
          CAPTURE(step);
          const int64_t rows = length < 100 ? 1000 : length > 10'000 ? 2 : 7;
          Rows x(dtype, rows, length, step), weight(dtype, 1, length);
          weight.rows = rows;
          const auto run = [&](ThreadPool& pool) {
            std::vector<Result> all = check_program(pool, softmax(dtype), {x.tensor()}, {false, false, true},
                                                    [&](int64_t row) { return softmax_of(x.row(row)); });
            for (Result& result : check_program(
                     pool, norm(dtype, length), {x.tensor(), weight.tensor(true)}, {false, true, true},
                     [&](int64_t row) { return norm_of(x.row(row), weight.row(0)); }))
              all.push_back(std::move(result));
            return all;
          };
          std::vector<Result> alone = run(one), shared = run(three);
          CHECK(same_bits(alone, shared));
        }
  }

  TEST_CASE("results larger than the caches") {
    ThreadPool pool(3);
    for (const auto& [dtype, size] :
         {std::pair{DType::f32, int64_t{4096}}, {DType::f32, 4097}, {DType::f16, 4096}, {DType::f16, 4097}}) {
      const int64_t length = size, rows = dtype == DType::f32 ? 2113 : 4226;
      CAPTURE(name_of(dtype));
      CAPTURE(length);
      Rows x(dtype, rows, length), weight(dtype, 1, length);
      weight.rows = rows;
      check_program(
          pool, softmax(dtype), {x.tensor()}, {false, false, true},
          [&](int64_t row) { return softmax_of(x.row(row)); }, 151);
      check_program(
          pool, norm(dtype, length), {x.tensor(), weight.tensor(true)}, {false, true, true},
          [&](int64_t row) { return norm_of(x.row(row), weight.row(0)); }, 151);
    }
  }

  TEST_CASE("rows of one value, which is stored for each element") {
    ThreadPool pool(2);
    for (const int64_t length : {1, 2, 1025, 70'000}) {
      CAPTURE(length);
      Rows x(DType::f32, 3, length);
      cpu::Tensor repeated = x.tensor();
      repeated.layout.strides = {length, 0};
      check_program(pool, softmax(DType::f32), {repeated}, {false, false, true}, [&](int64_t row) {
        return softmax_of(Doubles(static_cast<size_t>(length), x.row(row)[0]));
      });
    }
  }

  TEST_CASE("a NaN stays in its row, wherever it is") {
    ThreadPool pool(2);
    const int64_t length = 2100, rows = length;
    Rows x(DType::f32, rows, length);
    for (int64_t row = 0; row < rows; row += 2)
      write(DType::f32, x.storage.data(), row * length + row, std::numeric_limits<double>::quiet_NaN());
    check_program(
        pool, softmax(DType::f32), {x.tensor()}, {false, false, true},
        [&](int64_t row) { return softmax_of(x.row(row)); }, 7);
  }
}
