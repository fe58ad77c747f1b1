#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "array/host_tensor.h"
#include "backend/cpu/kernel.h"
#include "ops/shorthand.h"
#include "weft/error.h"
#include "weft/grad.h"

using namespace weft;

namespace {

using Floats = std::vector<float>;

Array floats(const Floats& values, const Shape& shape) {
  return Array::from_vector(values, shape);
}

Array ints(const std::vector<int32_t>& values, const Shape& shape) {
  HostTensor host{DType::i32, shape, std::vector<std::byte>(values.size() * 4)};
  if (!values.empty()) std::memcpy(host.bytes.data(), values.data(), host.bytes.size());
  return Array::from_host(host);
}

Floats values(const Array& x) {
  return as(x, DType::f32).to_vector();
}

/// d sum(g y) / d x.
Floats gradient(const Array& y, const Floats& g, const Array& x) {
  return vjp({y}, {floats(g, y.shape())}, {x})[0].to_vector();
}

const Floats kSix = {1, 2, 3, 4, 5, 6};

}  // namespace

TEST_SUITE("base: ops indexing") {
  TEST_CASE("index_select picks slices, its gradient adds up repeats") {
    const Array x = floats(kSix, {3, 2}),
                y = call("index_select", {x, ints({2, 0, 2}, {3})}, {{"dim", int64_t{0}}});
    const Floats dx = gradient(y, {1, 2, 3, 4, 5, 6}, x);
    CHECK(values(y) == Floats{5, 6, 1, 2, 5, 6});
    CHECK(dx == Floats{3, 4, 0, 0, 6, 8});
    CHECK(values(call("index_select", {x, ints({1}, {})}, {{"dim", int64_t{-1}}})) == Floats{2, 4, 6});
    CHECK(call("index_select", {x, ints({}, {0})}, {{"dim", int64_t{0}}}).shape() == Shape{0, 2});
  }

  TEST_CASE("gather takes indices that are smaller than x") {
    const Array x = floats(kSix, {2, 3}),
                y = call("gather", {x, ints({2, 0, 2, 2}, {1, 4})}, {{"dim", int64_t{1}}});
    const Floats dx = gradient(y, {1, 2, 3, 4}, x);
    CHECK(values(y) == Floats{3, 1, 3, 3});
    CHECK(dx == Floats{2, 0, 8, 0, 0, 0});
  }

  TEST_CASE("scatter overwrites, scatter_add adds; src may be larger than the indices") {
    const Array x = floats(kSix, {2, 3}), src = floats({10, 20, 30, 40}, {2, 2}), idx = ints({2, 0}, {2, 1});
    const Attrs dim = {{"dim", int64_t{1}}};
    const Array set = call("scatter", {x, idx, src}, dim), added = call("scatter_add", {x, idx, src}, dim);
    const Floats dx = gradient(set, kSix, x), dsrc = gradient(set, kSix, src),
                 dx_added = gradient(added, kSix, x), dsrc_added = gradient(added, kSix, src);
    CHECK(values(set) == Floats{1, 2, 10, 30, 5, 6});
    CHECK(dx == Floats{1, 2, 0, 0, 5, 6});
    CHECK(dsrc == Floats{3, 0, 4, 0});
    CHECK(values(added) == Floats{1, 2, 13, 34, 5, 6});
    CHECK(dx_added == kSix);
    CHECK(dsrc_added == Floats{3, 0, 4, 0});
  }

  TEST_CASE("index_add accumulates") {
    const Array x = floats(kSix, {3, 2}), src = floats({1, 1, 10, 10, 100, 100}, {3, 2});
    const Array y = call("index_add", {x, ints({0, 2, 0}, {3}), src}, {{"dim", int64_t{0}}});
    const Floats dx = gradient(y, kSix, x), dsrc = gradient(y, kSix, src);
    CHECK(values(y) == Floats{102, 103, 3, 4, 15, 16});
    CHECK(dx == kSix);
    CHECK(dsrc == Floats{1, 2, 5, 6, 1, 2});
  }

  TEST_CASE("embedding and one_hot") {
    const Array w = floats(kSix, {3, 2}), y = call("embedding", {w, ints({1, 1, 0, 2}, {2, 2})});
    const Floats dw = gradient(y, {1, 2, 3, 4, 5, 6, 7, 8}, w);
    CHECK(y.shape() == Shape{2, 2, 2});
    CHECK(values(y) == Floats{3, 4, 3, 4, 1, 2, 5, 6});
    CHECK(dw == Floats{5, 6, 4, 6, 7, 8});
    const Array hot = call("one_hot", {ints({2, 0}, {2})}, {{"num_classes", int64_t{3}}});
    CHECK(hot.dtype() == DType::i32);
    CHECK(values(hot) == Floats{0, 0, 1, 1, 0, 0});
  }

  TEST_CASE("sort, argsort and topk; the gradient goes back to where a value came from") {
    const Array x = floats({3, 1, 2, 9, 7, 8}, {2, 3});
    const std::vector<Array> down = apply("sort", {x}, {{"descending", true}});
    const Floats dx = gradient(down[0], kSix, x);
    CHECK(values(down[0]) == Floats{3, 2, 1, 9, 8, 7});
    CHECK(values(down[1]) == Floats{0, 2, 1, 0, 2, 1});
    CHECK(dx == Floats{1, 3, 2, 4, 6, 5});
    CHECK(values(call("argsort", {x}, {{"dim", int64_t{0}}})) == Floats{0, 0, 0, 1, 1, 1});

    const std::vector<Array> low = apply("topk", {x}, {{"k", int64_t{2}}, {"largest", false}});
    const Floats dlow = gradient(low[0], {1, 2, 3, 4}, x);
    CHECK(values(low[0]) == Floats{1, 2, 7, 8});
    CHECK(values(low[1]) == Floats{1, 2, 1, 2});
    CHECK(dlow == Floats{0, 1, 2, 0, 3, 4});
    CHECK(values(apply("sort", {floats({5}, {})})[0]) == Floats{5});
  }

  TEST_CASE("the largest of long lines, equal ones in their order") {
    constexpr int64_t kSize = 9001;
    Floats line;
    for (int64_t i = 0; i < 2 * kSize; ++i) line.push_back(static_cast<float>(i * 7919 % 613));
    line[77] = std::numeric_limits<float>::quiet_NaN();  // counts as the largest
    const Array x = floats(line, {2, kSize});
    for (int64_t k : {1, 40, 256}) {
      CAPTURE(k);
      const Sorted best = topk(x, k), all = sort(x, -1, true);
      CHECK(values(best.indices) == values(slice_dim(all.indices, 1, 0, k)));
      const Floats got = values(best.values), want = values(slice_dim(all.values, 1, 0, k));
      CHECK(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0);
    }
    CHECK(gradient(topk(x, 2).values, {1, 2, 3, 4}, x)[77] == 1);
  }

  TEST_CASE("searchsorted on both sides of equal values") {
    const Array sorted = floats({1, 2, 2, 4}, {4}), wanted = floats({0, 2, 5}, {3});
    CHECK(values(call("searchsorted", {sorted, wanted})) == Floats{0, 1, 4});
    CHECK(values(call("searchsorted", {sorted, wanted}, {{"right", true}})) == Floats{0, 3, 4});
    const Array rows = floats({1, 2, 10, 20}, {2, 2});
    CHECK(values(call("searchsorted", {rows, floats({2, 15}, {2, 1})})) == Floats{1, 1});
  }

  TEST_CASE("mistakes are named") {
    const Array x = floats(kSix, {2, 3}), idx = ints({0}, {1});
    const Attrs dim = {{"dim", int64_t{0}}};
    CHECK_THROWS_WITH_AS(call("gather", {x, idx}, dim),
                         "[gather] indices of shape (1) do not fit (2,3) along dim 0", Error);
    CHECK_THROWS_WITH_AS(call("index_select", {x, x}, dim),
                         "[index_select] indices are f32, not i32; convert them with to_dtype", Error);
    CHECK_THROWS_WITH_AS(call("scatter", {x, ints({0, 0}, {1, 2}), floats({1}, {1, 1})}, dim),
                         "[scatter] src of shape (1,1) is smaller than the indices of shape (1,2)", Error);
    CHECK_THROWS_WITH_AS(apply("topk", {x}, {{"k", int64_t{4}}}), "[topk] k is 4, dim 1 has 3 elements",
                         Error);
    CHECK_THROWS_AS(call("index_select", {x, ints({7}, {1})}, dim).to_host(), Error);
  }

  TEST_CASE("the CPU has a kernel for every primitive, but for what it is better off to compose") {
    for (const Op* op : all_ops()) {
      CAPTURE(op->name);
      const bool composed = op->name == "qmatmul_halves";  // it has no matrices of halves
      if (composed) CHECK(op->compose);
      if (op->kind == OpKind::primitive) CHECK(cpu::has_kernel(op->name) != composed);
    }
    CHECK_THROWS_WITH_AS(cpu::find_kernel("nothing"), "[cpu] there is no kernel 'nothing'", Error);
  }
}
