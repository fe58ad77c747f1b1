// Kernels of the GPU against those of the CPU: the same arrays, the same ops, on every library.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "array/element.h"
#include "backend/webgpu/webgpu_backend.h"
#include "ops/shorthand.h"
#include "support/gpus.h"

using namespace weft;

namespace {

using Make = std::function<std::vector<Array>(const Device&)>;

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::i32,
                             DType::u32, DType::u8,  DType::i8,   DType::boolean};

/// Small whole numbers and quarters, exact in every dtype; the same for the same seed.
Array numbers(const Device& device, const Shape& shape, DType dtype = DType::f32, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (float& v : values) {
    v = static_cast<float>(random() % 33) / 4 - 4;
    if (!is_float(dtype))
      v = dtype == DType::u8 || dtype == DType::u32 || dtype == DType::boolean ? std::abs(std::trunc(v))
                                                                               : std::trunc(v);
  }
  // Converted on the CPU, so that what is tested is not what makes the input.
  return Array::from_host(as(Array::from_vector(values, shape), dtype).to_host(), device);
}

void check_same(const HostTensor& got, const HostTensor& want, double tolerance) {
  REQUIRE(got.dtype == want.dtype);
  REQUIRE(got.shape == want.shape);
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < static_cast<size_t>(element_count(want.shape)); ++i) {
    const double a = number_at(got, i), b = number_at(want, i);
    const bool close = std::isfinite(b) && std::abs(a - b) <= tolerance * (1 + std::abs(b)),
               same = std::isnan(b) ? std::isnan(a) : a == b || close;
    if (!same && wrong++ == 0) first = i;
  }
  if (wrong == 0) return;
  CAPTURE(first);
  CAPTURE(number_at(got, first));
  CAPTURE(number_at(want, first));
  FAIL_CHECK(wrong, " of ", element_count(want.shape), " elements differ");
}

enum class Forms { of_adapter, of_hardware };

/// Makes arrays on the CPU and on every GPU; they must be the same within the tolerance. Forms of kernels
/// that only a real GPU would get can be asked for: all on the first library, one on the others,
/// since software adapters take long to compile them.
void check(const Make& make, double tolerance = 0, Forms forms = Forms::of_adapter) {
  std::vector<HostTensor> want;
  for (const Array& array : make(Device())) want.push_back(array.to_host());
  size_t checked = want.size();
  test::on_every_gpu([&](const test::TestGpu& gpu) {
    const Device device(forms == Forms::of_adapter ? std::make_shared<WebgpuBackend>(gpu.open())
                                                   : std::make_shared<WebgpuBackend>(gpu.open(), false));
    const std::vector<Array> got = make(device);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < checked; ++i) {
      CAPTURE(i);
      check_same(got[i].to_host(), want[i], tolerance);
    }
    if (forms == Forms::of_hardware) checked = std::min<size_t>(checked, 1);
  });
}

Array along(std::string_view op, std::vector<Array> inputs, int64_t dim, Attrs attrs = {}) {
  attrs.set("dim", dim);
  return call(op, std::move(inputs), attrs);
}

}  // namespace

TEST_SUITE("gpu ops") {
  TEST_CASE("elementwise: every dtype, broadcast, strided") {
    check([](const Device& d) {
      std::vector<Array> results;
      for (DType dtype : kDTypes) {
        if (dtype == DType::boolean) continue;
        const Array a = numbers(d, {3, 1, 5}, dtype), b = numbers(d, {4, 1}, dtype, 2),
                    c = numbers(d, {5, 4, 3}, dtype, 3);
        results.push_back(a * b + permute(c, {2, 1, 0}));
        results.push_back(call("maximum", {a, b}) - slice_dim(permute(c, {2, 1, 0}), 0, 2, kNone, -1));
        results.push_back(call("lt", {a, b}));
        results.push_back(call("remainder", {a, call("maximum", {b, scalar_like(b, 1)})}));
        results.push_back(where(call("ge", {a, b}), expand(a, {3, 4, 5}), expand(b, {3, 4, 5})));
      }
      return results;
    });
  }

  TEST_CASE("elementwise: conversions between all dtypes") {
    check([](const Device& d) {
      std::vector<Array> results;
      for (DType from : kDTypes)
        for (DType to : kDTypes) results.push_back(as(numbers(d, {37}, from), to));
      return results;
    });
  }

  TEST_CASE("elementwise: functions") {
    constexpr const char* kNames[] = {
        "exp",   "exp2",  "expm1", "log",  "log2",    "log1p",    "sqrt",     "rsqrt", "reciprocal",
        "sin",   "cos",   "tan",   "asin", "acos",    "atan",     "sinh",     "cosh",  "asinh",
        "acosh", "atanh", "tanh",  "erf",  "sigmoid", "softplus", "floor",    "ceil",  "round",
        "trunc", "abs",   "sign",  "neg",  "silu",    "gelu_erf", "gelu_tanh"};
    constexpr float kInf = std::numeric_limits<float>::infinity(),
                    kNan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> values = {0,      -0.0f, 1,      -1,     0.5f, -0.5f, 1.5f, 2.5f, 1e-6f,
                                 -1e-6f, 1e-3f, 20,     -20,    88,   -88,   100,  -100, 1e4f,
                                 -1e4f,  1e10f, -1e10f, 1e-30f, kInf, -kInf, kNan};
    for (int i = 0; i < 200; ++i) values.push_back(static_cast<float>(i - 100) * 0.0617f);
    for (const char* name : kNames) {
      CAPTURE(name);
      const bool wave = std::string_view("sin cos tan").find(name) != std::string_view::npos;
      std::vector<float> own = values;
      if (wave) std::erase_if(own, [](float x) { return std::abs(x) > 1e5f && !std::isinf(x); });
      const auto n = static_cast<int64_t>(own.size());
      check([&](const Device& d) { return std::vector{call(name, {Array::from_vector(own, {n}, d)})}; },
            1e-6);
    }
    const auto n = static_cast<int64_t>(values.size());
    for (const char* name : {"pow", "atan2", "maximum", "minimum", "divide", "eq", "ne", "lt", "remainder"}) {
      CAPTURE(name);
      std::vector<float> own = values;
      if (std::string_view(name) == "remainder")
        std::erase_if(own, [](float x) { return std::abs(x) > 1e4f || (x != 0 && std::abs(x) < 1e-2f); });
      const auto count = static_cast<int64_t>(own.size());
      check(
          [&](const Device& d) {
            const Array x = Array::from_vector(own, {count}, d);
            return std::vector{call(name, {reshape(x, {count, 1}), x})};
          },
          4e-6);
    }
    check([&](const Device& d) {
      const Array x = Array::from_vector(values, {n}, d);
      return std::vector{
          call("isnan", {x}), call("isinf", {x}), call("logical_not", {x}),
          call("clamp", {x}, {{"min", -0.75}, {"max", 2.0}}),
          call("clamp", {as(numbers(d, {50}), DType::i32)}, {{"min", int64_t{-2}}, {"max", int64_t{1}}})};
    });
  }

  TEST_CASE("elementwise: halves round to nearest even and overflow to infinity") {
    std::vector<float> values;
    for (int e = -30; e < 20; ++e)
      for (float m : {1.0f, 1.00048828125f, 1.000244140625f, 1.000732421875f, 1.9997f})
        values.push_back(std::ldexp(m, e));
    for (float v : {65504.0f, 65519.0f, 65520.0f, 1e30f}) values.push_back(-v);
    const auto n = static_cast<int64_t>(values.size());
    check([&](const Device& d) {
      const Array x = Array::from_vector(values, {n}, d);
      return std::vector{as(x, DType::f16), as(as(x, DType::f16), DType::f32), as(x, DType::bf16),
                         as(x, DType::f16) + as(x, DType::f16)};
    });
  }

  TEST_CASE("elementwise: more numbers than Params hold, more workgroups than a row of the grid") {
    check([](const Device& d) {
      const Shape shape(9, 2);
      const auto turned = [&](unsigned seed) {
        Ints dims(shape.size());
        for (size_t i = 0; i < dims.size(); ++i)
          dims[i] = static_cast<int64_t>((i * (seed + 1) * 2 + seed) % 9);
        if (seed % 3 == 2)
          for (size_t i = 0; i < dims.size(); ++i) dims[i] = 8 - static_cast<int64_t>(i);
        return permute(numbers(d, shape, DType::f32, seed), dims);
      };
      return std::vector{(turned(0) + turned(1) * turned(2)) * (turned(3) - turned(4) * turned(5))};
    });
    test::on_every_gpu([](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      constexpr int64_t kCount = 65535 * 256 + 1000;
      const Array x =
          expand(numbers(device, {1}), {kCount}) + as(iota(kCount, numbers(device, {1})), DType::f32);
      const std::vector<float> first = numbers(device, {1}).to_vector(),
                               last = slice_dim(x, 0, kCount - 3, kCount).to_vector();
      for (int i = 0; i < 3; ++i)
        CHECK(last[static_cast<size_t>(i)] == first[0] + static_cast<float>(kCount - 3 + i));
    });
  }

  TEST_CASE("moves: every dtype, odd sizes") {
    check([](const Device& d) {
      std::vector<Array> results;
      for (DType dtype : kDTypes) {
        const Array x = numbers(d, {3, 5, 7}, dtype), y = numbers(d, {3, 2, 7}, dtype, 2);
        results.push_back(reshape(permute(x, {2, 0, 1}), {105}));
        results.push_back(reshape(slice_dim(slice_dim(x, 2, 6, 0, -2), 0, 1, 3), {30}));
        results.push_back(cat({x, y, x}, 1));
        results.push_back(cat({permute(x, {0, 2, 1}), permute(y, {0, 2, 1})}, 2));
        results.push_back(pad_dim(x, 1, 2, -3, 1));
        results.push_back(pad_dim(x, -1, -1, 4));
        results.push_back(call("tril", {x}, {{"diagonal", int64_t{-1}}}));
        results.push_back(call("triu", {x}, {{"diagonal", int64_t{2}}}));
      }
      std::vector<Array> many;
      for (unsigned i = 0; i < 40; ++i)
        many.push_back(numbers(d, {static_cast<int64_t>(i % 3), 2}, DType::u8, i));
      results.push_back(cat(many, 0));
      return results;
    });
  }

  TEST_CASE("reductions: every dtype and every way") {
    check([](const Device& d) {
      std::vector<Array> results;
      for (DType dtype : kDTypes) {
        const std::vector<Ints> ways = dtype == DType::f32
                                           ? std::vector<Ints>{{0}, {1}, {2}, {0, 2}, {0, 1, 2}, {}}
                                           : std::vector<Ints>{{1}};
        for (const Ints& dims : ways) {
          const Array x = numbers(d, {3, 130, 5}, dtype);
          if (dims == Ints{1}) results.push_back(call("any", {x}, {{"dims", dims}}));
          if (dims == Ints{1} && dtype != DType::i8) results.push_back(call("all", {x}, {{"dims", dims}}));
          if (dtype == DType::boolean) continue;
          results.push_back(call("max", {x}, {{"dims", dims}}));
          results.push_back(call("min", {permute(x, {1, 2, 0})}, {{"dims", dims}}));
        }
        const Array small = numbers(d, {7, 9}, dtype);
        results.push_back(along("argmax", {small}, 0));
        if (dtype == DType::boolean) continue;
        results.push_back(sum(small, {0}));
        results.push_back(call("prod", {slice_dim(small, 0, 0, 3)}, {{"dims", Ints{0}}}));
      }
      for (DType dtype : {DType::f32, DType::i8}) {
        results.push_back(along("argmin", {numbers(d, {5, 3000}, dtype)}, 1));
        results.push_back(along("argmax", {numbers(d, {70000}, dtype)}, 0));
        results.push_back(sum(numbers(d, {70001}, dtype), {0}));
        results.push_back(sum(numbers(d, {300, 300}, dtype), {1}));
      }
      return results;
    });
  }

  TEST_CASE("reductions: NaN, infinity, empty") {
    constexpr float kInf = std::numeric_limits<float>::infinity(),
                    kNan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> values(3 * 500, 1);
    values[100] = kNan, values[300] = kNan, values[700] = kInf, values[1200] = -kInf, values[1300] = kInf;
    check([&](const Device& d) {
      const Array x = Array::from_vector(values, {3, 500}, d), none = Array::from_vector({}, {4, 0}, d);
      return std::vector{call("max", {x}, {{"dims", Ints{1}}}),
                         call("min", {x}, {{"dims", Ints{1}}}),
                         sum(x, {1}),
                         along("argmax", {x}, 1),
                         along("argmin", {x}, 1),
                         max(x, {0}),
                         sum(none, {1}),
                         call("prod", {none}, {{"dims", Ints{1}}}),
                         call("all", {none}, {{"dims", Ints{1}}})};
    });
  }

  TEST_CASE("vectors: elementwise and copies of every dtype, broadcast, strided, beside a word") {
    check(
        [](const Device& d) {
          std::vector<Array> results;
          for (DType dtype : kDTypes) {
            const Array a = numbers(d, {6, 24}, dtype), row = numbers(d, {16}, dtype, 2),
                        turned = transpose(numbers(d, {16, 6}, dtype, 3), 0, 1);
            for (const int64_t begin : {0, 4, 3}) {
              const Array x = slice_dim(a, 1, begin, begin + 16);
              if (dtype != DType::boolean) results.push_back(x * row + turned);
              if (begin > 0) continue;
              results.push_back(reshape(x, {96}));
              results.push_back(where(call("ge", {x, expand(row, {6, 16})}), as(x, DType::f32),
                                      as(expand(slice_dim(x, 1, 1, 2), {6, 16}), DType::f32)));
            }
            results.push_back(as(slice_dim(reshape(a, {144}), 0, 0, 44), DType::bf16));
          }
          return results;
        },
        0, Forms::of_hardware);
  }

  TEST_CASE("copies of transposed arrays through tiles") {
    check(
        [](const Device& d) {
          std::vector<Array> results;
          for (DType dtype : {DType::f32, DType::f16}) {
            results.push_back(reshape(transpose(numbers(d, {70, 130}, dtype), 0, 1), {9100}));
            results.push_back(reshape(permute(numbers(d, {3, 20, 2, 66}, dtype), {3, 0, 2, 1}), {7920}));
            results.push_back(
                reshape(transpose(slice_dim(numbers(d, {40, 30}, dtype), 1, 3, 25), 0, 1), {880}));
          }
          return results;
        },
        0, Forms::of_hardware);
  }

  TEST_CASE("vectors: rows in registers, rows in pieces, columns") {
    const auto check_rows = [](const Make& make) { check(make, 2e-6, Forms::of_hardware); };
    check_rows([](const Device& d) {
      std::vector<Array> results;
      for (const auto& [shape, dtype] : {std::pair{Shape{3, 8}, DType::bf16},
                                         {Shape{2, 1000}, DType::f32},
                                         {Shape{600, 40}, DType::f16}}) {
        const Array x = numbers(d, shape, dtype);
        results.push_back(along("softmax", {as(x, DType::f32)}, -1));
        results.push_back(max(x, {1}));
        results.push_back(sum(x * x, {1}));
        results.push_back(x - max(x, {1}, true));
        results.push_back(apply("layer_norm", {as(x, DType::f32), numbers(d, {shape[1]}, dtype, 2)})[0]);
      }
      return results;
    });
    check_rows([](const Device& d) {
      const Array x = numbers(d, {2, 40'000}), half = numbers(d, {3, 16'384}, DType::f16);
      return std::vector{sum(x, {1}), max(x, {0, 1}), sum(half * half, {1}), along("softmax", {x}, 1),
                         along("softmax", {slice_dim(x, 1, 0, 12'288)}, 1)};
    });
    check_rows([](const Device& d) {
      std::vector<Array> results;
      for (DType dtype : {DType::f32, DType::f16}) {
        const Array x = numbers(d, {5, 60, 24}, dtype), y = numbers(d, {24}, dtype, 2);
        results.push_back(sum(x, {0, 1}));
        results.push_back(sum(x * y, {1}) + y);
        results.push_back(max(slice_dim(x, 2, 8, 24), {0}));
        results.push_back(call("min", {slice_dim(x, 1, 0, 1)}, {{"dims", Ints{0}}}));
      }
      return results;
    });
  }

  TEST_CASE("matmul: tiles, slivers, batches, transposed, halves, integers") {
    check(
        [](const Device& d) {
          std::vector<Array> results;
          for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u32}) {
            results.push_back(matmul(numbers(d, {70, 33}, dtype), numbers(d, {33, 66}, dtype, 2)));
            results.push_back(
                matmul(numbers(d, {9, 20}, dtype), transpose(numbers(d, {65, 20}, dtype, 2), 0, 1)));
            if (dtype == DType::bf16 || dtype == DType::u32) continue;
            results.push_back(
                matmul(transpose(numbers(d, {20, 9}, dtype), 0, 1), numbers(d, {20, 1}, dtype, 2)));
            results.push_back(matmul(numbers(d, {2, 3, 10, 8}, dtype), numbers(d, {3, 8, 12}, dtype, 2)));
            results.push_back(matmul(numbers(d, {2, 3, 10, 8}, dtype), numbers(d, {8, 11}, dtype, 2)));
            results.push_back(matmul(numbers(d, {17}, dtype), numbers(d, {17, 5}, dtype, 2)));
            results.push_back(matmul(numbers(d, {9, 0}, dtype), numbers(d, {0, 10}, dtype, 2)));
          }
          return results;
        },
        1e-6);
  }

  TEST_CASE("scans") {
    check([](const Device& d) {
      std::vector<Array> results;
      for (const bool reverse : {false, true})
        for (DType dtype : {DType::f32, DType::f16, DType::i32, DType::u8}) {
          const Array x = numbers(d, {3, 9, 4}, dtype),
                      row = numbers(d, {2, 1500}, dtype == DType::f16 ? DType::f32 : dtype);
          const Attrs attrs = {{"reverse", reverse}};
          for (const char* name : {"cumsum", "cummax", "cummin"}) {
            results.push_back(along(name, {x}, 1, attrs));
            results.push_back(along(name, {permute(x, {2, 1, 0})}, 0, attrs));
            results.push_back(along(name, {row}, 1, attrs));
          }
          results.push_back(along("cumsum", {row}, 1, {{"reverse", reverse}, {"exclusive", true}}));
          results.push_back(
              along("cumprod", {slice_dim(x, 1, 0, 4)}, 1, {{"reverse", reverse}, {"exclusive", true}}));
        }
      return results;
    });
    check(
        [](const Device& d) {
          return std::vector{along("logcumsumexp", {numbers(d, {3, 9, 4})}, 1),
                             along("logcumsumexp", {numbers(d, {2, 1500})}, 1, {{"reverse", true}})};
        },
        1e-5);
  }

  TEST_CASE("indexing: every dtype") {
    check([](const Device& d) {
      std::vector<Array> results;
      const Array few = Array::from_host(as(Array::from_vector({4, 0, 4, 2}, {4}), DType::i32).to_host(), d);
      const Array places =
          Array::from_host(as(Array::from_vector({0, 1, 4, 4, 2, 0, 3, 2}, {2, 4}), DType::i32).to_host(), d);
      const Array apart =
          Array::from_host(as(Array::from_vector({0, 4, 3, 1, 2, 0, 4, 3}, {4, 2}), DType::i32).to_host(), d);
      for (DType dtype : kDTypes) {
        const Array x = numbers(d, {5, 6}, dtype), src = numbers(d, {4, 6}, dtype, 2);
        results.push_back(along("index_select", {x, few}, 0));
        results.push_back(along("index_select", {transpose(x, 0, 1), few}, 1));
        results.push_back(along("gather", {x, places}, 1));
        results.push_back(along("scatter", {x, apart, src}, 0));
        if (dtype == DType::boolean) continue;
        results.push_back(along("scatter_add", {x, places, slice_dim(src, 0, 0, 3)}, 0));
        results.push_back(along("index_add", {x, few, src}, 0));
      }
      return results;
    });
  }

  TEST_CASE("indexing: long lists are added in ranges") {
    std::vector<float> list(5000);
    for (size_t i = 0; i < list.size(); ++i) list[i] = static_cast<float>(i % 7 == 0 ? 3 : i * i % 11);
    const HostTensor places = as(Array::from_vector(list, {5000}), DType::i32).to_host();
    check(
        [&](const Device& d) {
          const Array indices = Array::from_host(places, d), some = slice_dim(indices, 0, 10, 4010, 2);
          std::vector<Array> results;
          for (DType dtype : {DType::f32, DType::i32}) {
            results.push_back(
                along("index_add", {numbers(d, {11, 6}, dtype), indices, numbers(d, {5000, 6}, dtype)}, 0));
            results.push_back(along("index_add",
                                    {numbers(d, {2, 11, 130}, dtype), some,
                                     permute(numbers(d, {2000, 2, 130}, dtype), {1, 0, 2})},
                                    1));
          }
          return results;
        },
        0, Forms::of_hardware);
  }

  TEST_CASE("sort and searchsorted") {
    constexpr float kInf = std::numeric_limits<float>::infinity(),
                    kNan = std::numeric_limits<float>::quiet_NaN();
    check([](const Device& d) {
      std::vector<Array> results;
      const auto sorted = [&](const Array& x, int64_t dim, bool descending) {
        for (const Array& y : apply("sort", {x}, {{"dim", dim}, {"descending", descending}}))
          results.push_back(y);
      };
      for (DType dtype : kDTypes) sorted(numbers(d, {3, 7, 5}, dtype), 1, false);
      for (const bool descending : {false, true}) {
        sorted(transpose(numbers(d, {33, 3}), 0, 1), 1, descending);
        sorted(numbers(d, {2, 3000}), 1, descending);
      }
      const Array special = Array::from_vector({1, kNan, -kInf, 0, -0.0f, kInf, kNan, -1, 0}, {9}, d);
      sorted(special, 0, false);
      sorted(special, 0, true);
      const Array row = Array::from_vector({-1, 0, 0, 2, 5, kInf, kNan}, {7}, d),
                  values = Array::from_vector({0, -3, 2, 7, kNan, kInf}, {2, 3}, d);
      for (const bool right : {false, true})
        results.push_back(call("searchsorted", {row, values}, {{"right", right}}));
      return results;
    });
  }

  TEST_CASE("i64 and unknown kernels are refused by name") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      WebgpuBackend backend(gpu.open());
      const Operand in{backend.alloc(64, "x"), DType::i64, Layout::contiguous({8})},
          out{backend.alloc(64, "y"), DType::i64, Layout::contiguous({8})};
      const auto run = [&](std::string_view kernel) {
        const Step step{.kernel = kernel, .inputs = {in}, .outputs = {out}};
        return test::error_of([&] { backend.run(std::span(&step, 1)); });
      };
      CHECK(run("copy").kind == "unsupported");
      CHECK(run("copy").message.find("[copy]") == 0);
      CHECK(run("fold_space").message == "[webgpu] there is no kernel 'fold_space'");
    });
  }

  TEST_CASE("one pipeline serves every shape of a rank") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device opened = gpu.open();
      const Device device(std::make_shared<WebgpuBackend>(opened));
      const auto work = [&](int64_t n, double by) {
        return (numbers(device, {n, 3}) * by + numbers(device, {n, 1}, DType::f32, 2)).to_vector();
      };
      work(4, 2);
      const uint64_t made = opened.counters().pipelines;
      work(9, 3);
      work(70, 0.5);
      CHECK(opened.counters().pipelines == made);
    });
  }
}
