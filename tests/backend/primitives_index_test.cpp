// gather, index_select, scatter, index_add and searchsorted.
#include <limits>

#include "primitives_support.h"

using namespace weft;
using namespace weft::test::primitives;

namespace {

constexpr Number kNan = std::numeric_limits<Number>::quiet_NaN();

/// x with the slices or elements of src written (or added) at the indices, one after the other.
std::vector<Number> scattered(const Sample& x, const Sample& indices, const Sample& src, size_t dim,
                              bool add) {
  const Shape& shape = x.layout.shape;
  std::vector<Number> result = x.values();
  for (int64_t i = 0; i < indices.count(); ++i) {
    const Shape from = index_at(i, indices.layout.shape);
    Shape to = from;
    if (!to.empty()) to[dim] = static_cast<int64_t>(indices.at(from));
    Number& value = result[static_cast<size_t>(flat_at(to, shape))];
    value = add ? value + src.at(from) : src.at(from);
  }
  for (Number& value : result) value = stored(x.dtype, value);
  return result;
}

Shape with_size(Shape shape, size_t dim, int64_t size) {
  if (dim < shape.size()) shape[dim] = size;
  return shape;
}

/// Sizes of indices that are smaller than x in the other dims.
Shape smaller(Shape shape, size_t dim) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != dim && shape[d] > 2) --shape[d];
  return shape;
}

const std::vector<Shape> kShapes = {{1}, {7}, {3, 5}, {2, 3, 4, 5}, {40, 33}, {3, 1, 300}};

}  // namespace

TEST_SUITE("base: primitives") {
  TEST_CASE("gather: every dtype, style and dim") {
    every_case(kAllTypes, kShapes, [](DType dtype, Style style, const Shape& shape) {
      for (Style index_style : {Style::plain, style})
        for (size_t d = 0; d < shape.size(); ++d)
          for (int64_t size : {int64_t{0}, int64_t{1}, shape[d], shape[d] + 3}) {
            const Sample x = random(dtype, shape, style);
            const Sample indices =
                random_indices(smaller(with_size(shape, d, size), d), shape[d], index_style);
            std::vector<Number> want;
            for (int64_t i = 0; i < indices.count(); ++i) {
              Shape index = index_at(i, indices.layout.shape);
              index[d] = static_cast<int64_t>(indices.at(index));
              want.push_back(x.at(index));
            }
            check_values(call(cpu::gather, {&x, &indices}, {{dtype, indices.layout.shape}},
                              {{"dim", static_cast<int64_t>(d)}})[0],
                         want);
          }
    });
  }

  TEST_CASE("index_select: every dtype, style and dim") {
    every_case(kAllTypes, kShapes, [](DType dtype, Style style, const Shape& shape) {
      for (size_t d = 0; d < shape.size(); ++d)
        for (int64_t k : {0, 1, 6}) {
          const Sample x = random(dtype, shape, style), indices = random_indices({k}, shape[d], style);
          const Shape to = with_size(shape, d, k);
          std::vector<Number> want;
          for (int64_t i = 0; i < element_count(to); ++i) {
            Shape index = index_at(i, to);
            index[d] = static_cast<int64_t>(indices.at({index[d]}));
            want.push_back(x.at(index));
          }
          check_values(
              call(cpu::index_select, {&x, &indices}, {{dtype, to}}, {{"dim", static_cast<int64_t>(d)}})[0],
              want);
        }
    });
  }

  TEST_CASE("scatter: set and add, indices smaller than src and x, repeats in order") {
    every_case(kAllTypes, kShapes, [](DType dtype, Style style, const Shape& shape) {
      for (size_t d = 0; d < shape.size(); ++d)
        for (int64_t size : {int64_t{0}, int64_t{1}, shape[d] + 3}) {
          const Sample x = random(dtype, shape, style),
                       src = random(dtype, with_size(shape, d, size), style, 5);
          const Sample indices = random_indices(smaller(with_size(shape, d, size), d), shape[d], style);
          for (bool add : {false, true}) {
            if (add && dtype == DType::boolean) continue;
            const Attrs attrs{{"dim", static_cast<int64_t>(d)}, {"mode", std::string(add ? "add" : "set")}};
            check_values(call(cpu::scatter, {&x, &indices, &src}, {{dtype, shape}}, attrs)[0],
                         scattered(x, indices, src, d, add));
          }
        }
    });
  }

  TEST_CASE("index_add: every dtype, style and dim") {
    every_case({kAllTypes.begin(), kAllTypes.end() - 1}, kShapes,
               [](DType dtype, Style style, const Shape& shape) {
                 for (size_t d = 0; d < shape.size(); ++d)
                   for (int64_t k : {0, 1, 6}) {
                     const Sample x = random(dtype, shape, style),
                                  src = random(dtype, with_size(shape, d, k), style, 5);
                     const Sample indices = random_indices({k}, shape[d], style);
                     Sample spread = make(DType::i32, src.layout.shape);
                     for (int64_t i = 0; i < spread.count(); ++i) {
                       const Shape index = index_at(i, spread.layout.shape);
                       spread.set(index, indices.at({index[d]}));
                     }
                     check_values(call(cpu::index_add, {&x, &indices, &src}, {{dtype, shape}},
                                       {{"dim", static_cast<int64_t>(d)}})[0],
                                  scattered(x, spread, src, d, true));
                   }
               });
  }

  TEST_CASE("large shapes are cut without a change of order") {
    for (const Shape& shape : {Shape{70001}, Shape{3, 40000}, Shape{40000, 3}, Shape{100, 20, 60}})
      for (size_t d = 0; d < shape.size(); ++d) {
        CAPTURE(to_string(shape));
        CAPTURE(d);
        const Attrs dim{{"dim", static_cast<int64_t>(d)}};
        const Sample x = random(DType::i32, shape, Style::transposed),
                     src = random(DType::i32, shape, Style::flipped, 5);
        const Sample indices = random_indices(shape, shape[d], Style::sliced);
        for (const char* mode : {"set", "add"}) {
          const Attrs attrs{{"dim", static_cast<int64_t>(d)}, {"mode", std::string(mode)}};
          check_values(call(cpu::scatter, {&x, &indices, &src}, {{DType::i32, shape}}, attrs)[0],
                       scattered(x, indices, src, d, mode == std::string("add")));
        }
        const Sample back = call(cpu::gather, {&x, &indices}, {{DType::i32, shape}}, dim)[0];
        Shape index = index_at(x.count() - 1, shape), from = index;
        from[d] = static_cast<int64_t>(indices.at(index));
        CHECK(back.at(index) == x.at(from));
      }
  }

  TEST_CASE("half sums are rounded once") {
    const Sample x = make(DType::f16, {1});
    Sample src = make(DType::f16, {4096}), indices = make(DType::i32, {4096});
    for (int64_t i = 0; i < 4096; ++i) src.set({i}, 1);
    const Attrs attrs{{"dim", int64_t{0}}, {"mode", std::string("add")}};
    CHECK(call(cpu::scatter, {&x, &indices, &src}, {{DType::f16, {1}}}, attrs)[0].at({0}) == 4096);
  }

  TEST_CASE("an index outside of the dim is an error that names it") {
    const Sample x = random(DType::f32, {5, 2});
    Sample indices = make(DType::i32, {1, 2}), one = make(DType::i32, {1});
    const Attrs dim{{"dim", int64_t{0}}}, set{{"dim", int64_t{0}}, {"mode", std::string("set")}};
    indices.set({0, 1}, 7);
    one.set({0}, -1);
    CHECK(message_of([&] { call(cpu::gather, {&x, &indices}, {{DType::f32, {1, 2}}}, dim); }) ==
          "[gather] index 7 is outside of dim 0 of size 5");
    CHECK(message_of([&] { call(cpu::scatter, {&x, &indices, &x}, {{DType::f32, {5, 2}}}, set); }) ==
          "[scatter] index 7 is outside of dim 0 of size 5");
    CHECK(message_of([&] { call(cpu::index_select, {&x, &one}, {{DType::f32, {1, 2}}}, dim); }) ==
          "[index_select] index -1 is outside of dim 0 of size 5");
    const Sample src = random(DType::f32, {1, 2});
    CHECK(message_of([&] { call(cpu::index_add, {&x, &one, &src}, {{DType::f32, {5, 2}}}, dim); }) ==
          "[index_add] index -1 is outside of dim 0 of size 5");
  }

  TEST_CASE("searchsorted: both sides, one row for all or one for each") {
    every_case(kAllTypes, {{}, {0}, {1}, {7}, {3, 5}, {2, 3, 4}, {2, 3000}},
               [](DType dtype, Style style, const Shape& shape) {
                 for (bool shared : {true, false})
                   for (int64_t size : {0, 1, 9}) {
                     if (shape.empty() && !shared) continue;
                     const Shape rows = shared ? Shape{size} : with_size(shape, shape.size() - 1, size);
                     const Sample values = random(dtype, shape, style);
                     const Sample unsorted = random(dtype, rows, Style::plain, 3);
                     Sample sorted = call(cpu::sort, {&unsorted}, {{dtype, rows}, {DType::i32, rows}},
                                          {{"dim", int64_t{-1}}})[0];
                     Sample strided = make(dtype, rows, style == Style::expanded ? Style::plain : style);
                     for (int64_t i = 0; i < sorted.count(); ++i)
                       strided.set(index_at(i, rows), sorted.at(index_at(i, rows)));
                     for (bool right : {false, true}) {
                       std::vector<Number> want;
                       for (int64_t i = 0; i < values.count(); ++i) {
                         Shape index = index_at(i, shape);
                         const Number v = values.at(index);
                         if (shared) index = {0};
                         int64_t& k = index.back();
                         for (k = 0; k < size; ++k)
                           if (right ? strided.at(index) > v : strided.at(index) >= v) break;
                         want.push_back(static_cast<Number>(k));
                       }
                       check_values(call(cpu::searchsorted, {&strided, &values}, {{DType::i32, shape}},
                                         {{"right", right}})[0],
                                    want);
                     }
                   }
               });
    Sample sorted = make(DType::f32, {3}), value = make(DType::f32, {2});
    sorted.set({1}, 2);
    sorted.set({2}, kNan);
    value.set({0}, kNan);
    value.set({1}, 9);
    check_values(call(cpu::searchsorted, {&sorted, &value}, {{DType::i32, {2}}}, {})[0], {2, 2});
    check_values(call(cpu::searchsorted, {&sorted, &value}, {{DType::i32, {2}}}, {{"right", true}})[0],
                 {3, 2});
  }
}
