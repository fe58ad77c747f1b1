#include "backend/cpu/gemm.h"

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <random>

#include "array/half.h"
#include "weft/error.h"

using namespace weft;
using cpu::GemmOperand;

namespace {

/// Elements of one float type with the values they hold.
struct Values {
  DType dtype;
  std::vector<std::byte> bytes;
  std::vector<float> floats;  // what the stored elements are worth

  Values(DType type, size_t count, unsigned seed) : dtype(type), bytes(count * size_of(type)), floats(count) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (size_t i = 0; i < count; ++i) set(i, uniform(random));
  }

  void set(size_t i, float value) {
    const uint16_t bits = dtype == DType::f16 ? float_to_half(value) : float_to_bfloat(value);
    if (dtype == DType::f32)
      std::memcpy(&bytes[i * 4], &value, 4);
    else
      std::memcpy(&bytes[i * 2], &bits, 2);
    floats[i] = dtype == DType::f32   ? value
                : dtype == DType::f16 ? half_to_float(bits)
                                      : bfloat_to_float(bits);
  }
};

/// Where a matrix lies in its elements.
struct View {
  int64_t offset, row_stride, column_stride;
  int64_t at(int64_t i, int64_t j) const { return offset + i * row_stride + j * column_stride; }
};

struct Stored {
  View view;
  size_t count;  // elements of the storage, none to spare: ASan sees every read beside it
};

/// The ways in which a (rows, columns) matrix can lie in memory.
const std::vector<std::string> kWays{"rows",    "transposed",     "sliced",           "flipped",
                                     "stepped", "broadcast rows", "broadcast columns"};

Stored stored(const std::string& way, int64_t rows, int64_t columns) {
  const auto count = [](int64_t n) { return static_cast<size_t>(std::max<int64_t>(n, 0)); };
  if (way == "transposed") return {{0, 1, rows}, count(rows * columns)};
  if (way == "sliced") return {{5, columns + 3, 1}, count(5 + (rows - 1) * (columns + 3) + columns)};
  if (way == "flipped") return {{rows * columns - 1, -columns, -1}, count(rows * columns)};
  if (way == "stepped") return {{0, 3 * columns, 3}, count((rows - 1) * 3 * columns + 3 * (columns - 1) + 1)};
  if (way == "broadcast rows") return {{0, 0, 1}, count(columns)};
  if (way == "broadcast columns") return {{0, 1, 0}, count(rows)};
  return {{0, columns, 1}, count(rows * columns)};
}

/// Runs gemm and compares each element with the sum in double. c has a margin that must stay as it is.
void check_gemm(ThreadPool& pool, int64_t m, int64_t n, int64_t k, const std::string& a_way,
                const std::string& b_way, DType a_type = DType::f32, DType b_type = DType::f32) {
  const Stored a_stored = stored(a_way, m, k), b_stored = stored(b_way, k, n);
  const Values a(a_type, a_stored.count, 1), b(b_type, b_stored.count, 2);
  const auto operand = [](const Values& values, const View& view) {
    return GemmOperand{values.bytes.data() + view.offset * static_cast<int64_t>(size_of(values.dtype)),
                       values.dtype, view.row_stride, view.column_stride};
  };
  constexpr float kMargin = 12345;
  const int64_t c_stride = n + 2;
  std::vector<float> c(static_cast<size_t>(m * c_stride), kMargin);
  cpu::gemm(pool, m, n, k, operand(a, a_stored.view), operand(b, b_stored.view), c.data(), c_stride);

  int64_t wrong = 0, margin = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < k; ++p) {
        const double product = static_cast<double>(a.floats[static_cast<size_t>(a_stored.view.at(i, p))]) *
                               static_cast<double>(b.floats[static_cast<size_t>(b_stored.view.at(p, j))]);
        sum += product;
        size += std::abs(product);
      }
      const double got = static_cast<double>(c[static_cast<size_t>(i * c_stride + j)]);
      if (!(std::abs(got - sum) <= 4e-6 * size + 1e-30)) ++wrong;
    }
    for (int64_t j = n; j < c_stride; ++j) margin += c[static_cast<size_t>(i * c_stride + j)] != kMargin;
  }
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(a_way);
  CAPTURE(b_way);
  CAPTURE(name_of(a_type));
  CAPTURE(name_of(b_type));
  CAPTURE(pool.threads());
  CHECK(wrong == 0);
  CHECK(margin == 0);
}

/// Each f16 and bf16 value must arrive unchanged, alone and inside vectors.
void check_every_half(ThreadPool& pool) {
  constexpr int64_t kCount = 1 << 16;
  std::vector<uint16_t> bits(kCount);
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  const float factor = 1;
  const GemmOperand unit{reinterpret_cast<const std::byte*>(&factor), DType::f32, 1, 1};
  for (DType dtype : {DType::f16, DType::bf16})
    for (int64_t columns : {int64_t{1}, int64_t{16}, kCount}) {
      const GemmOperand all{reinterpret_cast<const std::byte*>(bits.data()), dtype, columns, 1};
      std::vector<float> c(kCount);
      if (columns == kCount)
        cpu::gemm(pool, 1, kCount, 1, unit, all, c.data(), kCount);
      else
        for (int64_t row = 0; row < kCount / columns; ++row) {
          GemmOperand part = all;
          part.data += row * columns * 2;
          cpu::gemm(pool, 1, columns, 1, unit, part, c.data() + row * columns, columns);
        }
      int wrong = 0;
      for (size_t i = 0; i < c.size(); ++i) {
        const float want = dtype == DType::f16 ? half_to_float(bits[i]) : bfloat_to_float(bits[i]);
        wrong += std::isnan(want) ? !std::isnan(c[i]) : c[i] != want;
      }
      CAPTURE(name_of(dtype));
      CAPTURE(columns);
      CHECK(wrong == 0);
    }
}

/// A tensor of random elements whose shape and strides are given; its storage is just large enough.
struct Operand {
  Values values;
  cpu::Tensor tensor;

  Operand(DType dtype, const Layout& layout, unsigned seed) : values(dtype, extent(layout), seed) {
    tensor = {values.bytes.data(), dtype, layout};
  }

  static size_t extent(const Layout& layout) {
    int64_t last = layout.offset;
    for (size_t d = 0; d < layout.shape.size(); ++d)
      if (layout.strides[d] > 0) last += (layout.shape[d] - 1) * layout.strides[d];
    return static_cast<size_t>(last + 1);
  }
};

size_t position(const Layout& layout, const std::vector<int64_t>& index) {
  return static_cast<size_t>(
      std::inner_product(index.begin(), index.end(), layout.strides.begin(), layout.offset));
}

/// Runs the kernel and compares with sums in double, rounded to the output's type.
void check_matmul(ThreadPool& pool, DType in, DType out, const Layout& a_layout, const Layout& b_layout) {
  const Operand a(in, a_layout, 3), b(in, b_layout, 4);
  Shape shape = a_layout.shape;
  shape.back() = b_layout.shape.back();
  const size_t rank = shape.size();
  const int64_t count = element_count(shape), k = a_layout.shape.back();
  Operand c(out, Layout::contiguous(shape), 5);
  const cpu::Tensor inputs[] = {a.tensor, b.tensor};
  cpu::matmul(pool, inputs, {&c.tensor, 1}, {});

  int64_t wrong = 0;
  for (int64_t flat = 0; flat < count; ++flat) {
    std::vector<int64_t> a_index(rank), b_index(rank);
    for (size_t d = rank, rest = static_cast<size_t>(flat); d-- > 0; rest /= static_cast<size_t>(shape[d]))
      a_index[d] = b_index[d] = static_cast<int64_t>(rest % static_cast<size_t>(shape[d]));
    double sum = 0, size = 0;
    for (int64_t p = 0; p < k; ++p) {
      a_index[rank - 1] = b_index[rank - 2] = p;
      const double product = static_cast<double>(a.values.floats[position(a_layout, a_index)]) *
                             static_cast<double>(b.values.floats[position(b_layout, b_index)]);
      sum += product;
      size += std::abs(product);
    }
    uint16_t bits = 0;
    float got = 0;
    if (out == DType::f32)
      std::memcpy(&got, &c.values.bytes[static_cast<size_t>(flat) * 4], 4);
    else
      std::memcpy(&bits, &c.values.bytes[static_cast<size_t>(flat) * 2], 2);
    if (out == DType::f16) got = half_to_float(bits);
    if (out == DType::bf16) got = bfloat_to_float(bits);
    // Half a unit in the last place of the output beside the error of the sum.
    const double rounding = out == DType::f32 ? 0 : out == DType::f16 ? 0x1p-11 : 0x1p-8;
    if (!(std::abs(static_cast<double>(got) - sum) <= 1e-6 * size + rounding * std::abs(sum) + 1e-7)) ++wrong;
  }
  CAPTURE(to_string(a_layout.shape));
  CAPTURE(to_string(b_layout.shape));
  CAPTURE(name_of(in));
  CAPTURE(name_of(out));
  CAPTURE(pool.threads());
  CHECK(wrong == 0);
}

}  // namespace

TEST_SUITE("base: gemm") {
  TEST_CASE("every small size, and sizes around tiles and blocks") {
    ThreadPool one(1), two(2), three(3);
    const std::vector<int64_t> sizes{0, 1, 2, 3, 5, 8, 17, 31, 33, 64, 65, 127, 200};
    int64_t turn = 0;
    for (int64_t m : sizes)
      for (int64_t n : sizes)
        for (int64_t k : sizes) {
          // All of the small ones and every seventh of the others.
          if (m * n * k > 10'000 && ++turn % 7 != 0) continue;
          check_gemm(one, m, n, k, "rows", "rows");
          if (m * n * k > 100'000) check_gemm(two, m, n, k, "rows", "rows");
          check_gemm(three, m, n, k, "rows", "transposed");
        }
  }

  TEST_CASE("several blocks of rows, columns and k") {
    ThreadPool one(1), two(2), three(3);
    for (ThreadPool* pool : {&one, &two, &three}) {
      check_gemm(*pool, 150, 70, 800, "rows", "rows");
      check_gemm(*pool, 300, 65, 390, "transposed", "transposed");
      check_gemm(*pool, 9, 1100, 400, "rows", "rows");
      check_gemm(*pool, 13, 2100, 33, "rows", "transposed");
      check_gemm(*pool, 37'000, 9, 9, "rows", "rows");
      check_gemm(*pool, 100, 100, 2000, "rows", "rows");
    }
  }

  TEST_CASE("any strides: transposed, sliced, flipped, stepped, broadcast") {
    ThreadPool pool(2);
    for (const std::string& a_way : kWays)
      for (const std::string& b_way : kWays) {
        check_gemm(pool, 13, 35, 50, a_way, b_way);
        check_gemm(pool, 1, 70, 40, a_way, b_way);
        check_gemm(pool, 7, 45, 33, a_way, b_way);
        check_gemm(pool, 70, 2, 40, a_way, b_way);
        check_gemm(pool, 110, 120, 100, a_way, b_way);  // threads
      }
  }

  TEST_CASE("thin products on threads") {
    ThreadPool one(1), three(3);
    for (ThreadPool* pool : {&one, &three})
      for (int64_t thin : {1, 2, 3, 8, 9, 16, 17})
        for (const char* way : {"rows", "transposed"}) {
          check_gemm(*pool, thin, 2501, 301, "rows", way);
          check_gemm(*pool, 2501, thin, 301, way, "transposed");
          check_gemm(*pool, thin, 37, 9001, "rows", way);
          check_gemm(*pool, thin, 40, 100, "rows", way);
        }
  }

  TEST_CASE("f16 and bf16 operands") {
    ThreadPool pool(3);
    for (DType a_type : {DType::f32, DType::f16, DType::bf16})
      for (DType b_type : {DType::f32, DType::f16, DType::bf16})
        for (const char* a_way : {"rows", "transposed", "stepped"})
          for (const char* b_way : {"rows", "transposed", "flipped"}) {
            check_gemm(pool, 29, 45, 150, a_way, b_way, a_type, b_type);
            check_gemm(pool, 1, 75, 150, a_way, b_way, a_type, b_type);
            check_gemm(pool, 75, 3, 150, a_way, b_way, a_type, b_type);
            check_gemm(pool, 110, 90, 120, a_way, b_way, a_type, b_type);
          }
  }

  TEST_CASE("every vector target that the machine has") {
    ThreadPool pool(2);
    const int64_t supported = hwy::SupportedTargets();
    for (int64_t targets = supported; targets != 0; targets &= targets - 1) {  // the best of them goes
      hwy::SetSupportedTargetsForTest(targets);
      hwy::GetChosenTarget().DeInit();
      CAPTURE(hwy::TargetName(targets & -targets));
      for (DType dtype : {DType::f32, DType::f16, DType::bf16})
        for (const char* way : {"rows", "transposed", "stepped"})
          for (int64_t m : {1, 2, 6, 11, 12, 23, 110}) {
            check_gemm(pool, m, 50, 40, "rows", way, DType::f32, dtype);
            check_gemm(pool, m, 125, 105, way, "rows", dtype, DType::f32);
            check_gemm(pool, m, 3, 77, way, "transposed", dtype, dtype);
          }
      check_every_half(pool);
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }

  TEST_CASE("the epilogue sees every element once, complete") {
    struct Size {
      int64_t m, n, k;
    };
    ThreadPool one(1), several(3);
    for (ThreadPool* pool : {&one, &several})
      for (const Size& size : {Size{3, 5, 7}, Size{1, 3000, 300}, Size{3000, 2, 300}, Size{12, 700, 500},
                               Size{300, 1100, 800}, Size{64, 64, 64}, Size{37, 70, 0}})
        for (bool transposed : {false, true}) {
          const auto [m, n, k] = size;
          const Values a(DType::f32, static_cast<size_t>(m * k), 1),
              b(DType::f32, static_cast<size_t>(k * n), 2);
          const GemmOperand left{a.bytes.data(), DType::f32, k, 1},
              right{b.bytes.data(), DType::f32, transposed ? 1 : n, transposed ? k : 1};
          std::vector<float> want(static_cast<size_t>(m * n)), got(want.size());
          cpu::gemm(*pool, m, n, k, left, right, want.data(), n);
          cpu::gemm(*pool, m, n, k, left, right, got.data(), n,
                    [&, columns = n](const cpu::GemmBlock& block) {
                      for (int64_t i = block.row; i < block.row + block.rows; ++i)
                        for (int64_t j = block.column; j < block.column + block.columns; ++j)
                          got[static_cast<size_t>(i * columns + j)] += 1000;
                    });
          for (float& x : want) x += 1000;
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          CHECK(got == want);
        }
  }

  TEST_CASE("an epilogue that throws ends the product on every thread") {
    ThreadPool pool(3);
    constexpr int64_t kColumns = 1500;  // several blocks; with many rows threads wait for each other
    for (const int64_t rows : {100, 600}) {
      const Values a(DType::f32, static_cast<size_t>(rows * kColumns), 1),
          b(DType::f32, kColumns * kColumns, 2);
      const GemmOperand left{a.bytes.data(), DType::f32, kColumns, 1},
          right{b.bytes.data(), DType::f32, kColumns, 1};
      std::vector<float> c(static_cast<size_t>(rows * kColumns));
      for (int64_t at : {0, 3, 5}) {
        CAPTURE(rows);
        CAPTURE(at);
        std::atomic<int64_t> blocks{0};
        const auto fail = [&](const cpu::GemmBlock&) {
          if (blocks++ == at) throw std::bad_alloc();
        };
        CHECK_THROWS_AS(cpu::gemm(pool, rows, kColumns, kColumns, left, right, c.data(), kColumns, fail),
                        std::bad_alloc);
      }
    }
  }

  TEST_CASE("the result does not depend on the number of threads") {
    ThreadPool one(1), two(2), three(3);
    const int64_t shapes[][3] = {{130, 140, 500}, {1, 3001, 150}, {5, 1111, 99},
                                 {2000, 1, 200},  {500, 33, 77},  {70, 1600, 800}};
    for (const auto& [m, n, k] : shapes)
      for (bool transposed : {false, true}) {
        const Values a(DType::f32, static_cast<size_t>(m * k), 1),
            b(DType::f32, static_cast<size_t>(k * n), 2);
        const GemmOperand left{a.bytes.data(), DType::f32, k, 1};
        const GemmOperand right{b.bytes.data(), DType::f32, transposed ? 1 : n, transposed ? k : 1};
        std::vector<std::vector<float>> results;
        for (ThreadPool* pool : {&one, &two, &three}) {
          results.emplace_back(static_cast<size_t>(m * n));
          cpu::gemm(*pool, m, n, k, left, right, results.back().data(), n);
        }
        CHECK(results[0] == results[1]);
        CHECK(results[0] == results[2]);
      }
  }

  TEST_CASE("NaN and infinity stay in their row and column") {
    ThreadPool pool(2);
    constexpr int64_t kSize = 37;
    Values a(DType::f32, kSize * kSize, 1), b(DType::f32, kSize * kSize, 2);
    a.set(5 * kSize + 7, std::numeric_limits<float>::quiet_NaN());
    b.set(3 * kSize + 36, std::numeric_limits<float>::infinity());
    std::vector<float> c(kSize * kSize);
    cpu::gemm(pool, kSize, kSize, kSize, {a.bytes.data(), DType::f32, kSize, 1},
              {b.bytes.data(), DType::f32, kSize, 1}, c.data(), kSize);
    int wrong = 0;
    for (int64_t i = 0; i < kSize; ++i)
      for (int64_t j = 0; j < kSize; ++j)
        wrong += std::isfinite(c[static_cast<size_t>(i * kSize + j)]) != (i != 5 && j != 36);
    CHECK(wrong == 0);
  }

  TEST_CASE("two callers at once, and products inside a loop") {
    ThreadPool pool(3);
    const auto caller = [&](size_t seed) {
      const int64_t size = 110 + static_cast<int64_t>(seed);
      const Values a(DType::f32, static_cast<size_t>(size * size), 1);
      const GemmOperand x{a.bytes.data(), DType::f32, size, 1};
      std::vector<float> first(static_cast<size_t>(size * size)), again(first.size());
      cpu::gemm(pool, size, size, size, x, x, first.data(), size);
      int wrong = 0;
      for (int round = 0; round < 20; ++round) {
        cpu::gemm(pool, size, size, size, x, x, again.data(), size);
        wrong += first != again;
      }
      return wrong;
    };
    std::atomic<int> wrong{0};
    {
      const std::jthread first([&] { wrong += caller(1); }), second([&] { wrong += caller(2); });
    }
    pool.for_each(4, 1, [&](size_t i, size_t) { wrong += caller(i); });
    CHECK(wrong == 0);
  }

  TEST_CASE("matmul: batches, broadcast, strides, types") {
    ThreadPool one(1), two(2), three(3);
    const auto plain = [](const Shape& shape) { return Layout::contiguous(shape); };
    for (ThreadPool* pool : {&one, &two, &three})
      for (DType in : {DType::f32, DType::f16, DType::bf16})
        for (DType out : {in, DType::f32}) {
          check_matmul(*pool, in, out, plain({7, 9}), plain({9, 5}));
          check_matmul(*pool, in, out, plain({11, 3, 5}), plain({11, 5, 4}));
          check_matmul(*pool, in, out, plain({2, 3, 40, 33}), plain({2, 3, 33, 35}));
          check_matmul(*pool, in, out, plain({2, 110, 120}), plain({2, 120, 110}));
          // weights: one b for all of a, which folds into a tall matrix
          check_matmul(*pool, in, out, plain({2, 3, 4, 33}), plain({33, 35}).expanded({2, 3, 33, 35}));
          check_matmul(*pool, in, out, plain({6, 1, 33}), plain({33, 40}).expanded({6, 33, 40}));
          // ... and one that does not: a transposed, a's batches backwards
          check_matmul(*pool, in, out, plain({3, 20, 12}).permuted({0, 2, 1}),
                       plain({20, 7}).expanded({3, 20, 7}));
          check_matmul(*pool, in, out, plain({4, 6, 9}).sliced({3, 0, 0}, {-1, 1, 1}, {4, 6, 9}),
                       plain({9, 8}).expanded({4, 9, 8}));
          check_matmul(*pool, in, out, plain({5, 1, 4, 6}).expanded({5, 3, 4, 6}),
                       plain({1, 3, 6, 8}).expanded({5, 3, 6, 8}));
          // heads: (batch, tokens, heads, dim) seen as (batch, heads, tokens, dim) x (.., dim, tokens)
          check_matmul(*pool, in, out, plain({2, 10, 3, 16}).permuted({0, 2, 1, 3}),
                       plain({2, 10, 3, 16}).permuted({0, 2, 3, 1}));
          check_matmul(*pool, in, out, plain({12, 20}).sliced({1, 19}, {2, -1}, {5, 17}),
                       plain({17, 9}).permuted({0, 1}));
        }
  }

  TEST_CASE("matmul: empty operands") {
    ThreadPool pool(2);
    for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u32}) {
      std::vector<uint32_t> out(24, 0xabababab);
      const auto run = [&](const Shape& a, const Shape& b, const Shape& c) {
        const cpu::Tensor inputs[] = {{nullptr, dtype, Layout::contiguous(a)},
                                      {nullptr, dtype, Layout::contiguous(b)}};
        const cpu::Tensor output{reinterpret_cast<std::byte*>(out.data()), dtype, Layout::contiguous(c)};
        cpu::matmul(pool, inputs, {&output, 1}, {});
      };
      run({2, 0, 3}, {2, 3, 4}, {2, 0, 4});
      run({0, 2, 3}, {0, 3, 4}, {0, 2, 4});
      CHECK(out == std::vector<uint32_t>(24, 0xabababab));
      run({2, 3, 0}, {2, 0, 4}, {2, 3, 4});
      const size_t words = 24 * size_of(dtype) / 4;
      CHECK(std::all_of(out.begin(), out.begin() + static_cast<ptrdiff_t>(words),
                        [](uint32_t x) { return x == 0; }));
    }
  }

  TEST_CASE("matmul: integers are exact and wrap around") {
    ThreadPool pool(3);
    constexpr int64_t kBatch = 3, kRows = 40, kDepth = 50, kColumns = 60;
    std::mt19937 random(1);
    std::vector<uint32_t> a(kBatch * kRows * kDepth), b(kDepth * kColumns), c(kBatch * kRows * kColumns);
    for (uint32_t& x : a) x = static_cast<uint32_t>(random());
    for (uint32_t& x : b) x = static_cast<uint32_t>(random());
    for (DType dtype : {DType::i32, DType::u32}) {
      std::fill(c.begin(), c.end(), 7u);
      // b is stored as (columns, depth) and shared by the batch
      const cpu::Tensor inputs[] = {
          {reinterpret_cast<std::byte*>(a.data()), dtype, Layout::contiguous({kBatch, kRows, kDepth})},
          {reinterpret_cast<std::byte*>(b.data()), dtype, {{kBatch, kDepth, kColumns}, {0, 1, kDepth}, 0}}};
      const cpu::Tensor output{reinterpret_cast<std::byte*>(c.data()), dtype,
                               Layout::contiguous({kBatch, kRows, kColumns})};
      cpu::matmul(pool, inputs, {&output, 1}, {});
      int wrong = 0;
      for (size_t row = 0; row < kBatch * kRows; ++row)
        for (size_t j = 0; j < kColumns; ++j) {
          uint32_t sum = 0;
          for (size_t p = 0; p < kDepth; ++p) sum += a[row * kDepth + p] * b[j * kDepth + p];
          wrong += c[row * kColumns + j] != sum;
        }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("matmul: what the kernel does not take") {
    ThreadPool pool(1);
    std::vector<float> data(64);
    const auto run = [&](DType dtype, const Shape& a, const Shape& b) {
      const auto tensor = [&](const Shape& shape) {
        return cpu::Tensor{reinterpret_cast<std::byte*>(data.data()), dtype, Layout::contiguous(shape)};
      };
      const cpu::Tensor inputs[] = {tensor(a), tensor(b)}, output = tensor({2, 2});
      cpu::matmul(pool, inputs, {&output, 1}, {});
    };
    CHECK_THROWS_WITH_AS(
        run(DType::f32, {2, 3}, {4, 2}),
        "[matmul] kernel got (2,3) x (4,2), expected (..,m,k) x (..,k,n) with equal batch dims", Error);
    CHECK_THROWS_WITH_AS(run(DType::boolean, {2, 3}, {3, 2}), "[matmul] no kernel for bool x bool -> bool",
                         Error);
  }
}
