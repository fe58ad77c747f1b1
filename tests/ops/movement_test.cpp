#include <doctest/doctest.h>

#include "ops/shorthand.h"
#include "support/gpus.h"
#include "weft/grad.h"

using namespace weft;
using test::error_of;
using Floats = std::vector<float>;

namespace {

Array row(const Floats& values) {
  return Array::from_vector(values, {static_cast<int64_t>(values.size())});
}

/// The gradient of <weights 1, 2, 3.., op(x)>: which outputs each element went to.
Floats gradient(std::string_view op, const Array& x, const Attrs& attrs) {
  const Array y = call(op, {x}, attrs);
  Floats weights;
  for (int64_t i = 0; i < y.size(); ++i) weights.push_back(static_cast<float>(i + 1));
  return vjp({y}, {Array::from_vector(weights, y.shape())}, {x})[0].to_vector();
}

}  // namespace

TEST_SUITE("base: ops movement") {
  TEST_CASE("movement: pad in its modes") {
    const Array x = row({1, 2, 3});
    const auto pad = [](const char* mode, int64_t lo, int64_t hi) {
      return Attrs{{"pads", Ints{lo, hi}}, {"value", 9.0}, {"mode", std::string(mode)}};
    };
    CHECK((call("pad", {x}, pad("constant", 1, 2)).to_vector() == Floats{9, 1, 2, 3, 9, 9}));
    CHECK((call("pad", {x}, pad("constant", -1, 1)).to_vector() == Floats{2, 3, 9}));
    CHECK((call("pad", {x}, pad("reflect", 2, 1)).to_vector() == Floats{3, 2, 1, 2, 3, 2}));
    CHECK((call("pad", {x}, pad("reflect", -1, 2)).to_vector() == Floats{2, 3, 2, 1}));
    CHECK((call("pad", {x}, pad("replicate", 2, 1)).to_vector() == Floats{1, 1, 1, 2, 3, 3}));
    CHECK((gradient("pad", x, pad("constant", -1, 1)) == Floats{0, 1, 2}));
    CHECK((gradient("pad", x, pad("reflect", 2, 1)) == Floats{3, 2 + 4 + 6, 1 + 5}));
    CHECK((gradient("pad", x, pad("replicate", 2, 1)) == Floats{1 + 2 + 3, 4, 5 + 6}));
    CHECK(error_of([&] { call("pad", {x}, pad("reflect", 3, 0)); }).message ==
          "[pad] reflecting 3 and 0 elements of dim 0 needs more than its 3");
    CHECK(error_of([&] { call("pad", {x}, pad("wrap", 1, 0)); }).message ==
          "[pad] mode is constant, reflect or replicate, not wrap");
    CHECK(error_of([&] { call("pad", {x}, {{"pads", Ints{1}}}); }).kind == "invalid");
  }

  TEST_CASE("movement: expand keeps what is there, and makes no size below 0") {
    const Array x = row({1, 2});
    CHECK((call("expand", {x}, {{"shape", Ints{2, -1}}}).to_vector() == Floats{1, 2, 1, 2}));
    CHECK(error_of([&] { call("expand", {x}, {{"shape", Ints{-1, 2}}}); }).message ==
          "[expand] (2) to (-1,2): -1 keeps a dim that is there, no size is below 0");
    CHECK(error_of([&] { call("expand", {row({1})}, {{"shape", Ints{-3}}}); }).kind == "invalid");
  }

  TEST_CASE("movement: stack and split") {
    const Array a = row({1, 2}), b = row({3, 4});
    CHECK((call("stack", {a, b}, {{"dim", int64_t{-1}}}).to_vector() == Floats{1, 3, 2, 4}));
    CHECK(error_of([&] { call("stack", {a, row({1})}, {{"dim", int64_t{0}}}); }).message ==
          "[stack] shapes (2) and (1) differ");
    const Array x = row({1, 2, 3, 4, 5});
    const std::vector<Array> parts = apply("split", {x}, {{"sizes", Ints{2, 0, 3}}});
    REQUIRE(parts.size() == 3);
    CHECK(parts[1].size() == 0);
    // Only the last part is used: the others get no gradient.
    CHECK((vjp({parts[2]}, {row({1, 2, 3})}, {x})[0].to_vector() == Floats{0, 0, 1, 2, 3}));
    CHECK(error_of([&] { apply("split", {x}, {{"sizes", Ints{2, 2}}}); }).message ==
          "[split] sizes add up to 4, dim 0 has 5");
  }

  TEST_CASE("movement: flip, roll, triangles, repeats") {
    const Array x = Array::from_vector({1, 2, 3, 4, 5, 6}, {2, 3});
    CHECK((call("flip", {x}, {{"dims", Ints{0, -1}}}).to_vector() == Floats{6, 5, 4, 3, 2, 1}));
    CHECK((gradient("flip", x, {{"dims", Ints{1}}}) == Floats{3, 2, 1, 6, 5, 4}));
    CHECK((call("roll", {x}, {{"shifts", Ints{4}}, {"dims", Ints{1}}}).to_vector() ==
           Floats{3, 1, 2, 6, 4, 5}));
    CHECK((call("roll", {x}, {{"shifts", Ints{-1}}}).to_vector() == Floats{2, 3, 4, 5, 6, 1}));
    CHECK((gradient("roll", x, {{"shifts", Ints{-1}}, {"dims", Ints{1}}}) == Floats{3, 1, 2, 6, 4, 5}));
    CHECK((call("tril", {x}, {{"diagonal", int64_t{1}}}).to_vector() == Floats{1, 2, 0, 4, 5, 6}));
    CHECK((gradient("triu", x, {}) == Floats{1, 2, 3, 0, 5, 6}));
    CHECK(error_of([] { call("tril", {row({1})}); }).message == "[tril] shape (1) has no two dims");
    CHECK((call("repeat", {row({1, 2})}, {{"repeats", Ints{2, 2}}}).to_vector() ==
           Floats{1, 2, 1, 2, 1, 2, 1, 2}));
    CHECK((call("repeat", {x}, {{"repeats", Ints{1, 0}}}).shape() == Shape{2, 0}));
    CHECK((gradient("repeat", row({1, 2}), {{"repeats", Ints{3}}}) == Floats{1 + 3 + 5, 2 + 4 + 6}));
    CHECK((call("repeat_interleave", {x}, {{"repeats", int64_t{2}}, {"dim", int64_t{0}}}).to_vector() ==
           Floats{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
    CHECK((gradient("repeat_interleave", row({1, 2}), {{"repeats", int64_t{2}}}) == Floats{1 + 2, 3 + 4}));
  }

  TEST_CASE("movement: every dtype, exactly") {
    for (DType dtype :
         {DType::f16, DType::bf16, DType::i32, DType::u32, DType::u8, DType::i8, DType::boolean}) {
      CAPTURE(name_of(dtype));
      const Array x = as(Array::from_vector({1, 0, 1, 1, 0, 0}, {2, 3}), dtype);
      const auto same = [&](std::string_view op, const Attrs& attrs) {
        const Array moved = call(op, {x}, attrs);
        CHECK(moved.dtype() == dtype);
        return as(moved, DType::f32).to_vector() == call(op, {as(x, DType::f32)}, attrs).to_vector();
      };
      CHECK(same("pad", {{"pads", Ints{1, 0, 0, 2}}, {"value", int64_t{1}}}));
      CHECK(same("pad", {{"pads", Ints{1, 1, 2, 1}}, {"mode", std::string("reflect")}}));
      CHECK(same("flip", {{"dims", Ints{1}}}));
      CHECK(same("roll", {{"shifts", Ints{1}}, {"dims", Ints{1}}}));
      CHECK(same("tril", {}));
      CHECK(same("repeat", {{"repeats", Ints{2, 2}}}));
      CHECK(same("repeat_interleave", {{"repeats", int64_t{3}}, {"dim", int64_t{1}}}));
    }
  }
}
