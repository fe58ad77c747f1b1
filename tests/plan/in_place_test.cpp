// Ops that change an input where nobody else sees it.
#include <doctest/doctest.h>

#include "array/node.h"
#include "backend/webgpu/webgpu_backend.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "weft/error.h"

using namespace weft;

namespace {

using Floats = std::vector<float>;

Array table(const Device& device) {
  return Array::from_vector(Floats{0, 1, 2, 3, 4, 5}, {3, 2}, device);
}
Array at(std::vector<int32_t> places, const Device& device) {
  return Array::from_span(std::span<const int32_t>(places), {static_cast<int64_t>(places.size())}, device);
}
Array rows(const Device& device) {
  return Array::from_vector(Floats{10, 11, 12, 13}, {2, 2}, device);
}

const void* memory_of(const Array& x) {
  return value_of(x).storage.get();
}

void check_on(const Device& device) {
  // Nobody holds the table: its memory is written to.
  Array x = table(device);
  const void* memory = memory_of(x);
  x = call("put_rows", {x, at({2, 0}, device), rows(device)});
  CHECK(x.to_vector() == Floats{12, 13, 2, 3, 10, 11});
  CHECK(memory_of(x) == memory);

  // Somebody does: it stays as it was.
  Array y = call("put_rows", {x, at({1, 0}, device), rows(device)});
  CHECK(y.to_vector() == Floats{12, 13, 10, 11, 10, 11});
  CHECK(x.to_vector() == Floats{12, 13, 2, 3, 10, 11});
  CHECK(memory_of(y) != memory);

  // One after the other, with readers of the last, in one evaluation. Halves go two to a word.
  Array z = as(table(device), DType::f16);
  eval(z);
  memory = memory_of(z);
  z = call("put_rows", {z, at({0}, device), as(slice(rows(device), {{0, 1}}), DType::f16)});
  z = call("put_rows", {z, at({1, 2}, device), as(transpose(rows(device), 0, 1), DType::f16)});
  const Array sums = sum(z, {1});
  eval(std::vector{sums, z});
  CHECK(z.to_vector() == Floats{10, 11, 10, 12, 11, 13});
  CHECK(sums.to_vector() == Floats{21, 22, 24});
  CHECK(memory_of(z) == memory);

  // A view of another array's memory is no place to write to.
  const Array whole = table(device);
  Array part = slice(whole, {{1, 3}});
  part = call("put_rows", {part, at({1, 0}, device), rows(device)});
  CHECK(part.to_vector() == Floats{12, 13, 10, 11});
  CHECK(whole.to_vector() == Floats{0, 1, 2, 3, 4, 5});

  // Neither is what the new rows come from, whether it is there or still to be made.
  for (const bool is_there : {false, true}) {
    Array made = matmul(table(device), Array::from_vector(Floats{1, 0, 0, 1}, {2, 2}, device));
    if (is_there) eval(made);
    const Array turned = call("put_rows", {made, at({1, 2, 0}, device), made});
    made = {};
    CHECK(turned.to_vector() == Floats{4, 5, 0, 1, 2, 3});
  }
}

}  // namespace

TEST_SUITE("base: in place") {
  TEST_CASE("rows are replaced in place where nobody sees it") {
    check_on({});
  }

  TEST_CASE("wrong rows are an error") {
    const auto message = [](const Array& x, const Array& places, const Array& src) {
      return test::error_of([&] { eval(call("put_rows", {x, places, src})); }).message;
    };
    const Device cpu;
    CHECK(message(table(cpu), at({0}, cpu), rows(cpu)) ==
          "[put_rows] rows (2,2) at (1) places do not fit into (3,2)");
    CHECK(message(table(cpu), at({0, 1}, cpu), as(rows(cpu), DType::f16)) ==
          "[put_rows] f16 rows at i32 places go into f32");
    CHECK(message(table(cpu), at({0, 3}, cpu), rows(cpu)) ==
          "[put_rows] index 3 is outside of dim 0 of size 3");
  }
}

TEST_SUITE("gpu in place") {
  TEST_CASE("rows are replaced in place where nobody sees it") {
    test::on_every_gpu(
        [](const test::TestGpu& gpu) { check_on(Device(std::make_shared<WebgpuBackend>(gpu.open()))); });
  }
}
