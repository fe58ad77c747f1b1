#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "weft/create.h"
#include "weft/ops.h"

using namespace weft;

TEST_SUITE("base: print") {
  TEST_CASE("numbers are aligned, with as many digits as they need") {
    CHECK(to_string(Array::from_vector({1.5f, -22, 0.25f, 3}, {2, 2})) ==
          "array([[  1.5000, -22.0000],\n"
          "       [  0.2500,   3.0000]])");
    CHECK(to_string(arange(4)) == "array([0., 1., 2., 3.])");
    CHECK(to_string(Array::from_vector({1, NAN, -INFINITY}, {3})) == "array([  1.,  nan, -inf])");
    CHECK(to_string(Array::from_vector({1e-6f, 1, 0}, {3})) == "array([1.0000e-06, 1.0000e+00, 0.0000e+00])");
    CHECK(to_string(full({}, 2.5)) == "array(2.5000)");
  }

  TEST_CASE("what cannot be seen is told") {
    CHECK(to_string(arange(3, {.dtype = DType::i32}) - 1) == "array([-1,  0,  1])");
    CHECK(to_string(arange(2, {.dtype = DType::u8})) == "array([0, 1], dtype=u8)");
    CHECK(to_string(arange(2) > 0) == "array([false,  true])");
    CHECK(to_string(arange(2, {.dtype = DType::bf16})) == "array([0., 1.], dtype=bf16)");
    CHECK(to_string(zeros({0, 3})) == "array([], shape=(0,3))");
    CHECK(to_string(zeros({2, 0}, {.dtype = DType::i32})) == "array([], shape=(2,0), dtype=i32)");
    CHECK(to_string(Array()) == "array()");
  }

  TEST_CASE("matrices are parted by a blank line; long rows are broken") {
    CHECK(to_string(reshape(arange(8), {2, 2, 2})) ==
          "array([[[0., 1.],\n"
          "        [2., 3.]],\n"
          "\n"
          "       [[4., 5.],\n"
          "        [6., 7.]]])");
    CHECK(to_string(arange(20) + 100) ==
          "array([100., 101., 102., 103., 104., 105., 106., 107., 108., 109., 110., 111.,\n"
          "       112., 113., 114., 115., 116., 117., 118., 119.])");
  }

  TEST_CASE("of large arrays the ends are shown") {
    CHECK(to_string(arange(2000)) == "array([   0.,    1.,    2., ..., 1997., 1998., 1999.], shape=(2000))");
    CHECK(to_string(reshape(arange(2000), {500, 4})) ==
          "array([[   0.,    1.,    2.,    3.],\n"
          "       [   4.,    5.,    6.,    7.],\n"
          "       [   8.,    9.,   10.,   11.],\n"
          "       ...,\n"
          "       [1988., 1989., 1990., 1991.],\n"
          "       [1992., 1993., 1994., 1995.],\n"
          "       [1996., 1997., 1998., 1999.]], shape=(500,4))");
    std::ostringstream stream;
    stream << arange(1);
    CHECK(stream.str() == "array([0.])");
  }
}
