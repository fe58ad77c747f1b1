// Reductions, scans and the walk they share; the other families are in primitives_move_test.cpp and
// primitives_index_test.cpp.
#include <limits>
#include <map>

#include "backend/cpu/iterate.h"
#include "primitives_support.h"

using namespace weft;
using namespace weft::test::primitives;

namespace {

constexpr Number kNan = std::numeric_limits<Number>::quiet_NaN(),
                 kInf = std::numeric_limits<Number>::infinity();

const std::vector<DType> kNumeric(kAllTypes.begin(), kAllTypes.end() - 1);
const std::vector<Shape> kShapes = {{},       {1},       {7},          {300},        {3, 5},
                                    {40, 33}, {5, 0, 3}, {2, 3, 4, 5}, {3, 1, 70, 2}};

using Reference = Number (*)(const std::vector<Number>&);

Number sum_of(const std::vector<Number>& x) {
  Number total = 0;
  for (Number v : x) total += v;
  return total;
}
Number product_of(const std::vector<Number>& x) {
  Number total = 1;
  for (Number v : x) total *= v;
  return total;
}
Number largest_of(const std::vector<Number>& x) {
  Number best = -kInf;
  for (Number v : x)
    if (std::isnan(v) || v > best) best = v;
  return best;
}
Number smallest_of(const std::vector<Number>& x) {
  Number best = kInf;
  for (Number v : x)
    if (std::isnan(v) || v < best) best = v;
  return best;
}
Number any_of(const std::vector<Number>& x) {
  for (Number v : x)
    if (v != 0) return 1;
  return 0;
}
Number all_of(const std::vector<Number>& x) {
  for (Number v : x)
    if (v == 0) return 0;
  return 1;
}
Number place_of(const std::vector<Number>& x, Number value) {
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] == value || (std::isnan(x[i]) && std::isnan(value))) return static_cast<Number>(i);
  return -1;
}
Number place_of_largest(const std::vector<Number>& x) {
  for (size_t i = 0; i < x.size(); ++i)
    if (std::isnan(x[i])) return static_cast<Number>(i);
  return place_of(x, largest_of(x));
}
Number place_of_smallest(const std::vector<Number>& x) {
  for (size_t i = 0; i < x.size(); ++i)
    if (std::isnan(x[i])) return static_cast<Number>(i);
  return place_of(x, smallest_of(x));
}

Shape without(const Shape& shape, const std::vector<int64_t>& dims) {
  Shape kept;
  for (size_t d = 0; d < shape.size(); ++d)
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end()) kept.push_back(shape[d]);
  return kept;
}

/// The reference over the elements of each output.
std::vector<Number> reduced(const Sample& x, const std::vector<int64_t>& dims, Reference reference) {
  const Shape& shape = x.layout.shape;
  const Shape kept = without(shape, dims);
  std::vector<std::vector<Number>> groups(static_cast<size_t>(element_count(kept)));
  const std::vector<Number> values = x.values();
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), group = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d])
      if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end()) {
        group += rest % shape[d] * stride;
        stride *= shape[d];
      }
    groups[static_cast<size_t>(group)].push_back(values[i]);
  }
  std::vector<Number> results;
  for (const std::vector<Number>& group : groups) results.push_back(reference(group));
  return results;
}

/// Every subset of the dims.
std::vector<std::vector<int64_t>> subsets(size_t rank) {
  std::vector<std::vector<int64_t>> result;
  for (size_t mask = 0; mask < size_t{1} << rank; ++mask) {
    result.emplace_back();
    for (size_t d = 0; d < rank; ++d)
      if (mask >> d & 1) result.back().push_back(static_cast<int64_t>(d));
  }
  return result;
}

void check_reduction(cpu::Kernel kernel, Reference reference, const Sample& x,
                     const std::vector<int64_t>& dims, DType to, Number tolerance) {
  const Shape kept = without(x.layout.shape, dims);
  std::vector<Number> want = reduced(x, dims, reference);
  for (Number& v : want) v = stored(to, v);
  check_values(call(kernel, {&x}, {{to, kept}}, {{"dims", dims}})[0], want, tolerance);
}

/// The values of each line along `dim`, through `line` and back.
template <typename Line>
std::vector<Number> by_line(const Sample& x, size_t dim, const Line& line) {
  const Shape shape = x.layout.shape.empty() ? Shape{1} : x.layout.shape;
  std::vector<Number> values = x.values(), results(values.size());
  for (int64_t i = 0; i < x.count(); ++i) {
    Shape index = index_at(i, shape);
    if (index[dim] != 0) continue;
    std::vector<Number> elements;
    for (index[dim] = 0; index[dim] < shape[dim]; ++index[dim])
      elements.push_back(values[static_cast<size_t>(flat_at(index, shape))]);
    elements = line(elements);
    for (index[dim] = 0; index[dim] < shape[dim]; ++index[dim])
      results[static_cast<size_t>(flat_at(index, shape))] = elements[static_cast<size_t>(index[dim])];
  }
  return results;
}

/// Element i = the reference over the elements up to it (or before it).
std::vector<Number> scanned(std::vector<Number> x, Reference reference, bool reverse, bool exclusive) {
  if (reverse) std::reverse(x.begin(), x.end());
  std::vector<Number> results;
  for (size_t i = 0; i < x.size(); ++i)
    results.push_back(reference({x.begin(), x.begin() + static_cast<int64_t>(i + (exclusive ? 0 : 1))}));
  if (reverse) std::reverse(results.begin(), results.end());
  return results;
}

Number log_sum_exp(const std::vector<Number>& x) {
  const Number largest = largest_of(x);
  if (std::isinf(largest) || std::isnan(largest)) return largest;
  Number total = 0;
  for (Number v : x) total += std::exp(v - largest);
  return largest + std::log(total);
}

Sample with_values(DType dtype, const std::vector<Number>& values) {
  Sample sample = make(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) sample.set({static_cast<int64_t>(i)}, values[i]);
  return sample;
}

}  // namespace

TEST_SUITE("base: primitives") {
  TEST_CASE("a walk visits every element once, in order, from any place") {
    for (Style style : kStyles)
      for (const Shape& shape : {Shape{}, Shape{6}, Shape{3, 4}, Shape{2, 1, 3, 2}, Shape{2, 0}}) {
        const Sample a = make(DType::u8, shape, style), b = make(DType::u8, shape, Style::transposed);
        const cpu::Walk walk(shape, {&a.layout, &b.layout});
        for (int64_t begin = 0; begin <= a.count(); ++begin)
          for (int64_t end = begin; end <= a.count(); ++end) {
            int64_t next = begin, wrong = 0;
            walk.runs(begin, end, [&](int64_t position, const cpu::Walk::Offsets& at, int64_t count) {
              for (int64_t i = 0; i < count; ++i, ++next) {
                const Shape index = index_at(next, shape);
                wrong += position + i != next || at[0] + i * walk.inner().strides[0] != a.place(index) ||
                         at[1] + i * walk.inner().strides[1] != b.place(index);
              }
            });
            CHECK(wrong == 0);
            CHECK(next == end);
          }
      }
  }

  TEST_CASE("a walk merges what is evenly strided") {
    const Layout x = Layout::contiguous({4, 1, 5, 6});
    CHECK(cpu::Walk(x.shape, {&x}).dims().size() == 1);
    const Layout flipped = x.sliced({3, 0, 4, 5}, {-1, -1, -1, -1}, x.shape);
    CHECK(cpu::Walk(x.shape, {&flipped}).dims().size() == 1);
    CHECK(cpu::Walk(x.shape, {&x, &flipped}).inner().size == 120);
    const Layout expanded = Layout::contiguous({1, 1, 5, 6}).expanded(x.shape);
    CHECK(cpu::Walk(x.shape, {&x, &expanded}).dims().size() == 2);
  }

  TEST_CASE("reductions: every dtype, style and set of dims") {
    every_case(kNumeric, kShapes, [](DType dtype, Style style, const Shape& shape) {
      const Sample x = random(dtype, shape, style);
      for (const std::vector<int64_t>& dims : subsets(shape.size())) {
        check_reduction(cpu::reduce_sum, sum_of, x, dims, dtype, 0);
        check_reduction(cpu::reduce_any, any_of, x, dims, DType::boolean, 0);
        check_reduction(cpu::reduce_all, all_of, x, dims, DType::boolean, 0);
        bool nothing = false;
        for (int64_t d : dims) nothing = nothing || shape[static_cast<size_t>(d)] == 0;
        if (nothing) continue;
        check_reduction(cpu::reduce_max, largest_of, x, dims, dtype, 0);
        check_reduction(cpu::reduce_min, smallest_of, x, dims, dtype, 0);
      }
    });
  }

  TEST_CASE("prod wraps in its dtype, and keeps floats exact where they are") {
    every_case(kNumeric, {{}, {1}, {12}, {0}, {3, 0}, {5, 4}, {3, 2, 20}},
               [](DType dtype, Style style, const Shape& shape) {
                 Sample x = random(dtype, shape, style);
                 const auto elements = static_cast<int64_t>(x.storage.size() / size_of(dtype));
                 for (int64_t i = 0; i < elements; ++i) write(dtype, x.storage.data(), i, i % 3 == 0 ? 2 : 1);
                 for (const std::vector<int64_t>& dims : subsets(shape.size()))
                   check_reduction(cpu::reduce_prod, product_of, x, dims, dtype, 0);
               });
    CHECK(call(cpu::reduce_prod, {&*std::make_unique<Sample>(with_values(DType::i8, {100, 3}))},
               {{DType::i8, {}}}, {{"dims", std::vector<int64_t>{0}}})[0]
              .at({}) == 44);
  }

  TEST_CASE("reductions of large shapes: in pieces, by columns and by rows") {
    for (const Shape& shape :
         {Shape{100003}, Shape{66001, 2}, Shape{2, 66001}, Shape{257, 300}, Shape{9000, 9}})
      for (Style style : kStyles)
        for (DType dtype : {DType::f32, DType::i32, DType::bf16}) {
          if (dtype != DType::f32 && style != Style::plain && style != Style::transposed) continue;
          CAPTURE(to_string(shape));
          const Sample x = random(dtype, shape, style);
          for (const std::vector<int64_t>& dims : subsets(shape.size())) {
            if (dims.empty()) continue;
            check_reduction(cpu::reduce_sum, sum_of, x, dims, dtype, epsilon(dtype));
            check_reduction(cpu::reduce_max, largest_of, x, dims, dtype, 0);
            if (dims.size() > 1) continue;
            const Shape kept = without(shape, dims);
            check_values(call(cpu::argmax, {&x}, {{DType::i32, kept}}, {{"dim", dims[0]}})[0],
                         reduced(x, dims, place_of_largest));
          }
        }
  }

  TEST_CASE("a sum of 1e6 floats keeps 1e-6 of relative accuracy") {
    for (const Shape& shape : {Shape{1000000, 1}, Shape{125000, 8}}) {
      Sample x = make(DType::f32, shape);
      std::mt19937 generator(3);
      for (int64_t i = 0; i < x.count(); ++i)
        write(DType::f32, x.storage.data(), i, 0.1L + static_cast<Number>(generator() % 1000) / 1e6L);
      const Sample got =
          call(cpu::reduce_sum, {&x}, {{DType::f32, {}}}, {{"dims", std::vector<int64_t>{0, 1}}})[0];
      CHECK(got.at({}) == doctest::Approx(static_cast<double>(sum_of(x.values()))).epsilon(1e-6));
      if (shape[1] != 8) continue;
      const Sample columns =
          call(cpu::reduce_sum, {&x}, {{DType::f32, {8}}}, {{"dims", std::vector<int64_t>{0}}})[0];
      check_values(columns, reduced(x, {0}, sum_of), 1e-6L);
    }
  }

  TEST_CASE("argmax and argmin: first on ties, first NaN, every dtype") {
    every_case(kAllTypes, {{1}, {7}, {3, 5}, {40, 33}, {2, 3, 4, 5}, {2, 0, 4}},
               [](DType dtype, Style style, const Shape& shape) {
                 for (bool with_nan : {false, true}) {
                   Sample x = random(dtype, shape, style);
                   if (with_nan && !is_float(dtype)) continue;
                   const auto elements = static_cast<int64_t>(x.storage.size() / size_of(dtype));
                   for (int64_t i = 3; with_nan && i < elements; i += 11)
                     write(dtype, x.storage.data(), i, kNan);
                   for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
                     if (shape[static_cast<size_t>(d)] == 0) continue;
                     const Shape kept = without(shape, {d});
                     check_values(call(cpu::argmax, {&x}, {{DType::i32, kept}}, {{"dim", d}})[0],
                                  reduced(x, {d}, place_of_largest));
                     check_values(call(cpu::argmin, {&x}, {{DType::i32, kept}}, {{"dim", d}})[0],
                                  reduced(x, {d}, place_of_smallest));
                     if (!with_nan) continue;
                     check_reduction(cpu::reduce_max, largest_of, x, {d}, dtype, 0);
                     check_reduction(cpu::reduce_min, smallest_of, x, {d}, dtype, 0);
                     check_reduction(cpu::reduce_any, any_of, x, {d}, DType::boolean, 0);
                   }
                 }
               });
    const Sample scalar = random(DType::f32, {}), low = with_values(DType::f32, {-kInf, -kInf});
    CHECK(call(cpu::argmax, {&scalar}, {{DType::i32, {}}}, {{"dim", int64_t{0}}})[0].at({}) == 0);
    CHECK(call(cpu::argmax, {&low}, {{DType::i32, {}}}, {{"dim", int64_t{-1}}})[0].at({}) == 0);
  }

  TEST_CASE("argmax: one place among 2100") {
    for (const Number value : {Number{5}, kInf, kNan})
      for (int64_t place = 0; place < 2100; place += 13) {
        Sample x = make(DType::f32, {2100});
        for (int64_t i = 0; i < 2100; ++i)
          write(DType::f32, x.storage.data(), i, i < place ? -kInf : Number{1} / (i + 1));
        write(DType::f32, x.storage.data(), place, value);
        CHECK(call(cpu::argmax, {&x}, {{DType::i32, {}}}, {{"dim", int64_t{0}}})[0].at({}) == place);
      }
  }

  TEST_CASE("extremes of nothing are errors") {
    const Sample x = make(DType::f32, {3, 0});
    const Attrs dims{{"dims", std::vector<int64_t>{1}}}, dim{{"dim", int64_t{1}}};
    CHECK(message_of([&] { call(cpu::reduce_max, {&x}, {{DType::f32, {3}}}, dims); }) ==
          "[max] reduction over an empty dim");
    CHECK(message_of([&] { call(cpu::reduce_min, {&x}, {{DType::f32, {3}}}, dims); }) ==
          "[min] reduction over an empty dim");
    CHECK(message_of([&] { call(cpu::argmin, {&x}, {{DType::i32, {3}}}, dim); }) ==
          "[argmin] reduction over an empty dim");
  }

  TEST_CASE("integers at their limits") {
    const Sample x = with_values(
        DType::i64, {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), 2});
    const Attrs dims{{"dims", std::vector<int64_t>{0}}};
    CHECK(call(cpu::reduce_sum, {&x}, {{DType::i64, {}}}, dims)[0].at({}) == 1);
    CHECK(call(cpu::reduce_max, {&x}, {{DType::i64, {}}}, dims)[0].at({}) ==
          std::numeric_limits<int64_t>::max());
    CHECK(call(cpu::reduce_min, {&x}, {{DType::i64, {}}}, dims)[0].at({}) ==
          std::numeric_limits<int64_t>::min());
    const Sample u = with_values(DType::u32, {4294967295.0L, 2});
    CHECK(call(cpu::reduce_sum, {&u}, {{DType::u32, {}}}, dims)[0].at({}) == 1);
    CHECK(call(cpu::reduce_max, {&u}, {{DType::u32, {}}}, dims)[0].at({}) == 4294967295.0L);
    check_values(call(cpu::cumsum, {&u}, {{DType::u32, {2}}}, {{"dim", int64_t{0}}})[0], {4294967295.0L, 1});
  }

  TEST_CASE("scans: every dtype, style, dim and direction") {
    const std::map<cpu::Kernel, Reference> scans = {{cpu::cumsum, sum_of},
                                                    {cpu::cumprod, product_of},
                                                    {cpu::cummax, largest_of},
                                                    {cpu::cummin, smallest_of},
                                                    {cpu::logcumsumexp, log_sum_exp}};
    every_case(kNumeric, {{}, {1}, {7}, {0}, {3, 5}, {40, 33}, {2, 0, 4}, {2, 3, 4, 5}, {1, 300}},
               [&](DType dtype, Style style, const Shape& shape) {
                 for (const auto& [kernel, reference] : scans) {
                   Sample x = random(dtype, shape, style);
                   if (kernel == cpu::logcumsumexp && !is_float(dtype)) continue;
                   if (kernel == cpu::cumprod) {  // exact: powers of two, none too large
                     const auto elements = static_cast<int64_t>(x.storage.size() / size_of(dtype));
                     for (int64_t i = 0; i < elements; ++i)
                       write(dtype, x.storage.data(), i, i % 40 == 3 ? 2 : 1);
                   }
                   for (size_t d = 0; d < std::max<size_t>(shape.size(), 1); ++d)
                     for (bool reverse : {false, true})
                       for (bool exclusive : {false, true}) {
                         if (exclusive && kernel != cpu::cumsum && kernel != cpu::cumprod) continue;
                         std::vector<Number> want = by_line(x, d, [&](const std::vector<Number>& line) {
                           return scanned(line, reference, reverse, exclusive);
                         });
                         for (Number& v : want) v = stored(dtype, v);
                         Attrs attrs{{"dim", static_cast<int64_t>(d)}, {"reverse", reverse}};
                         if (exclusive) attrs.set("exclusive", true);
                         check_values(call(kernel, {&x}, {{dtype, shape}}, attrs)[0], want,
                                      kernel == cpu::logcumsumexp ? epsilon(dtype) : 0);
                       }
                 }
               });
  }

  TEST_CASE("a long cumsum, along rows and across them") {
    for (const Shape& shape : {Shape{70001}, Shape{2, 40001}, Shape{20001, 5}, Shape{3, 700, 301}}) {
      const Sample x = random(DType::f32, shape, Style::sliced);
      for (size_t d = 0; d < shape.size(); ++d) {
        const std::vector<Number> want = by_line(x, d, [](std::vector<Number> line) {
          for (size_t i = 1; i < line.size(); ++i) line[i] += line[i - 1];
          return line;
        });
        check_values(call(cpu::cumsum, {&x}, {{DType::f32, shape}}, {{"dim", static_cast<int64_t>(d)}})[0],
                     want, 1e-6L);
      }
    }
  }

  TEST_CASE("scans of infinities, NaN and huge values") {
    const Attrs attrs{{"dim", int64_t{0}}};
    const std::vector<std::vector<Number>> rows = {{-kInf, -kInf, 1, 2}, {-kInf, kInf, kInf, 0},
                                                   {1000, 1000, -1000},  {1, kNan, 5},
                                                   {-kInf, kNan, 3},     {kInf, -kInf}};
    for (const std::vector<Number>& row : rows) {
      const Sample x = with_values(DType::f32, row);
      const auto run = [&](cpu::Kernel kernel) {
        return call(kernel, {&x}, {{DType::f32, x.layout.shape}}, attrs)[0];
      };
      check_values(run(cpu::logcumsumexp), scanned(row, log_sum_exp, false, false), 1e-6L);
      check_values(run(cpu::cummax), scanned(row, largest_of, false, false));
      check_values(run(cpu::cummin), scanned(row, smallest_of, false, false));
    }
    const Sample whole = make(DType::i32, {2});
    CHECK(message_of([&] { call(cpu::logcumsumexp, {&whole}, {{DType::i32, {2}}}, attrs); }) ==
          "[logcumsumexp] needs floats, got i32");
  }
}
