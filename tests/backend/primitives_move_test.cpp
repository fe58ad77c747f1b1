// copy, pad, cat, tril, triu and sort. Results are compared as values; dtypes with fewer bits take the same
// paths by size.
#include <limits>
#include <numeric>

#include "primitives_support.h"

using namespace weft;
using namespace weft::test::primitives;

namespace {

constexpr Number kNan = std::numeric_limits<Number>::quiet_NaN(),
                 kInf = std::numeric_limits<Number>::infinity();

/// NaN is the largest value.
bool before(Number a, Number b) {
  return a < b || (!std::isnan(a) && std::isnan(b));
}

void check_sort(const Sample& x, size_t dim, bool descending) {
  const Shape &shape = x.layout.shape, lines = shape.empty() ? Shape{1} : shape;
  const std::vector<Number> values = x.values();
  std::vector<Number> want(values.size()), places(values.size());
  for (int64_t i = 0; i < x.count(); ++i) {
    Shape index = index_at(i, lines);
    if (index[dim] != 0) continue;
    const auto flat = [&](size_t k) {
      index[dim] = static_cast<int64_t>(k);
      return static_cast<size_t>(flat_at(index, lines));
    };
    std::vector<size_t> order(static_cast<size_t>(lines[dim]));
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<Number> line;
    for (size_t k : order) line.push_back(values[flat(k)]);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return descending ? before(line[b], line[a]) : before(line[a], line[b]);
    });
    for (size_t k = 0; k < order.size(); ++k) {
      want[flat(k)] = line[order[k]];
      places[flat(k)] = static_cast<Number>(order[k]);
    }
  }
  const std::vector<Sample> got = call(cpu::sort, {&x}, {{x.dtype, shape}, {DType::i32, shape}},
                                       {{"dim", static_cast<int64_t>(dim)}, {"descending", descending}});
  check_values(got[0], want);
  check_values(got[1], places);
}

}  // namespace

TEST_SUITE("base: primitives") {
  TEST_CASE("copy: every dtype and style") {
    every_case(
        kAllTypes,
        {{}, {0}, {1}, {7}, {3, 5}, {4, 0, 3}, {2, 3, 4, 5}, {9, 70}, {70, 9, 33}, {300, 257}, {70001}},
        [](DType dtype, Style style, const Shape& shape) {
          const Sample x = random(dtype, shape, style);
          check_values(call(cpu::copy, {&x}, {{dtype, shape}}, {})[0], x.values());
        });
  }

  TEST_CASE("copy: every permutation of four dims") {
    const Sample base = random(DType::i32, {9, 11, 34, 13});
    std::vector<int64_t> dims = {0, 1, 2, 3};
    do {
      Sample x = base;
      x.layout = base.layout.permuted(dims);
      check_values(call(cpu::copy, {&x}, {{x.dtype, x.layout.shape}}, {})[0], x.values());
    } while (std::next_permutation(dims.begin(), dims.end()));
  }

  TEST_CASE("pad: grows, crops, both, and past the input") {
    every_case(kAllTypes, {{}, {0}, {1}, {7}, {3, 5}, {4, 0, 3}, {2, 3, 4, 5}},
               [](DType dtype, Style style, const Shape& shape) {
                 const Sample x = random(dtype, shape, style);
                 for (const auto& [lo, hi] : std::vector<std::pair<int64_t, int64_t>>{
                          {0, 0}, {2, 3}, {-1, 2}, {3, -1}, {-1, -1}, {-9, 12}, {12, -9}}) {
                   CAPTURE(lo);
                   Shape to = shape;
                   for (int64_t& size : to) size = std::max<int64_t>(size + lo + hi, 0);
                   std::vector<Number> want;
                   for (int64_t i = 0; i < element_count(to); ++i) {
                     Shape index = index_at(i, to);
                     bool inside = true;
                     for (size_t d = 0; d < shape.size(); ++d) {
                       index[d] -= lo;
                       inside = inside && index[d] >= 0 && index[d] < shape[d];
                     }
                     want.push_back(inside ? x.at(index) : stored(dtype, 3));
                   }
                   const Attrs attrs{{"lo", std::vector<int64_t>(shape.size(), lo)}, {"value", 3.0}};
                   check_values(call(cpu::pad_constant, {&x}, {{dtype, to}}, attrs)[0], want);
                 }
               });
  }

  TEST_CASE("pad: a long row, and values that need care") {
    const Sample x = random(DType::f32, {2, 70001}, Style::flipped);
    const Attrs attrs{{"lo", std::vector<int64_t>{0, 5}}, {"value", -static_cast<double>(kInf)}};
    const Sample got = call(cpu::pad_constant, {&x}, {{DType::f32, {2, 70011}}}, attrs)[0];
    CHECK(got.at({1, 4}) == -kInf);
    CHECK(got.at({1, 5}) == x.at({1, 0}));
    CHECK(got.at({1, 70005}) == x.at({1, 70000}));
    CHECK(got.at({1, 70006}) == -kInf);
    const Sample whole = make(DType::i64, {1}), small = make(DType::i32, {1});
    const int64_t large = (int64_t{1} << 53) + 1;
    const Attrs exact{{"lo", std::vector<int64_t>{1}}, {"value", large}};
    CHECK(call(cpu::pad_constant, {&whole}, {{DType::i64, {2}}}, exact)[0].at({0}) == large);
    const Attrs endless{{"lo", std::vector<int64_t>{1}}, {"value", static_cast<double>(kInf)}};
    CHECK(message_of([&] { call(cpu::pad_constant, {&small}, {{DType::i32, {2}}}, endless); }) ==
          "[pad] inf is not a value of i32");
  }

  TEST_CASE("cat: every dim, any number of inputs, sizes 0 and 1") {
    every_case(kAllTypes, {{1}, {7}, {3, 5}, {2, 3, 4, 5}, {40, 33}},
               [](DType dtype, Style style, const Shape& shape) {
                 for (size_t d = 0; d < shape.size(); ++d)
                   for (const std::vector<int64_t>& sizes :
                        {std::vector<int64_t>{3}, {2, 0, 1, 5}, {0}, {1, 1}, {9, 20, 1}}) {
                     std::vector<Sample> inputs;
                     std::vector<const Sample*> pointers;
                     Shape to = shape;
                     to[d] = 0;
                     for (int64_t size : sizes) {
                       Shape one = shape;
                       one[d] = size;
                       to[d] += size;
                       inputs.push_back(random(dtype, one, style, static_cast<uint32_t>(inputs.size() + 1)));
                     }
                     for (const Sample& input : inputs) pointers.push_back(&input);
                     std::vector<Number> want;
                     for (int64_t i = 0; i < element_count(to); ++i) {
                       Shape index = index_at(i, to);
                       size_t k = 0;
                       for (; index[d] >= sizes[k]; ++k) index[d] -= sizes[k];
                       want.push_back(inputs[k].at(index));
                     }
                     check_values(
                         call(cpu::cat, pointers, {{dtype, to}}, {{"dim", static_cast<int64_t>(d)}})[0],
                         want);
                   }
               });
  }

  TEST_CASE("tril and triu: every diagonal") {
    every_case(kAllTypes, {{1, 1}, {3, 5}, {5, 3}, {0, 4}, {4, 0}, {2, 3, 4, 5}, {2, 0, 3, 3}},
               [](DType dtype, Style style, const Shape& shape) {
                 const Sample x = random(dtype, shape, style);
                 for (int64_t diagonal = -6; diagonal <= 6; ++diagonal) {
                   std::vector<Number> lower, upper;
                   for (int64_t i = 0; i < x.count(); ++i) {
                     const Shape index = index_at(i, shape);
                     const int64_t across = index.back() - index[shape.size() - 2];
                     lower.push_back(across <= diagonal ? x.at(index) : 0);
                     upper.push_back(across >= diagonal ? x.at(index) : 0);
                   }
                   check_values(call(cpu::tril, {&x}, {{dtype, shape}}, {{"diagonal", diagonal}})[0], lower);
                   check_values(call(cpu::triu, {&x}, {{dtype, shape}}, {{"diagonal", diagonal}})[0], upper);
                 }
               });
    const Sample row = make(DType::f32, {3});
    CHECK(message_of([&] { call(cpu::tril, {&row}, {{DType::f32, {3}}}, {}); }) ==
          "[tril] needs 2 dims, got (3)");
  }

  TEST_CASE("sort: every dtype, style, dim and direction") {
    every_case(kAllTypes, {{}, {0}, {1}, {7}, {3, 5}, {4, 0, 3}, {2, 3, 4, 5}, {3, 1500}},
               [](DType dtype, Style style, const Shape& shape) {
                 const Sample x = random(dtype, shape, style);
                 for (size_t d = 0; d < std::max<size_t>(shape.size(), 1); ++d)
                   for (bool descending : {false, true}) check_sort(x, d, descending);
               });
  }

  TEST_CASE("sort: one long line, many different values") {
    std::mt19937 generator(11);
    for (DType dtype : {DType::f32, DType::i64, DType::u32, DType::bf16, DType::i8})
      for (const Shape& shape : {Shape{140001}, Shape{2, 131072}, Shape{131072, 1}}) {
        if (dtype != DType::f32 && shape.size() > 1) continue;
        Sample x = make(dtype, shape);
        for (int64_t i = 0; i < x.count(); ++i) {
          const auto draw = static_cast<Number>(static_cast<int32_t>(generator()));
          write(dtype, x.storage.data(), i,
                dtype == DType::i64   ? draw * 1e9L
                : dtype == DType::u32 ? draw + 0x1p31L
                                      : draw / 16777216);
        }
        for (bool descending : {false, true})
          check_sort(x, shape.size() - 1 - (shape.back() == 1), descending);
      }
  }

  TEST_CASE("sort: NaN is the largest, zeros of both signs are equal, limits") {
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Sample x = make(dtype, {9});
      const std::vector<Number> values = {0, kNan, -kInf, -0.0L, kInf, -kNan, -1, 0, kInf};
      for (size_t i = 0; i < values.size(); ++i) x.set({static_cast<int64_t>(i)}, values[i]);
      for (bool descending : {false, true}) check_sort(x, 0, descending);
    }
    for (DType dtype : {DType::i32, DType::u32, DType::i64, DType::i8, DType::u8}) {
      Sample x = make(dtype, {4});
      const bool is_signed = dtype == DType::i32 || dtype == DType::i64 || dtype == DType::i8;
      const Number half = std::exp2(static_cast<Number>(8 * size_of(dtype) - 1));
      const std::vector<Number> values = {is_signed ? half - 1 : 2 * half - 1, 0, is_signed ? -half : half,
                                          1};
      for (size_t i = 0; i < values.size(); ++i) x.set({static_cast<int64_t>(i)}, values[i]);
      for (bool descending : {false, true}) check_sort(x, 0, descending);
    }
  }
}
