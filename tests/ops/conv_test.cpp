#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "ops/shorthand.h"
#include "weft/error.h"
#include "weft/grad.h"

using namespace weft;

namespace {

using Floats = std::vector<float>;
constexpr float kInf = std::numeric_limits<float>::infinity();

/// Small integers: sums are exact in f32.
Array counted(const Shape& shape, int start = 0) {
  Floats v;
  for (int64_t i = 0; i < element_count(shape); ++i)
    v.push_back(static_cast<float>((i * 7 + start) % 11 - 5));
  return Array::from_vector(v, shape);
}

struct Conv {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  Attrs attrs() const {
    return {{"stride", Ints{stride}},
            {"padding", Ints{padding}},
            {"dilation", Ints{dilation}},
            {"groups", groups}};
  }
};

/// sum g y over y = conv1d(x, w), the slow way. With one of the three all zero but for a 1, it is an element
/// of the convolution, of the gradient of x (a transposed convolution) or of that of w.
float pairing(const Conv& c, const Array& x, const Array& w, const Array& g) {
  const Floats xs = x.to_vector(), ws = w.to_vector(), gs = g.to_vector();
  const int64_t ci = x.shape(1), n = x.shape(2), co = w.shape(0), cig = w.shape(1), k = w.shape(2),
                o = g.shape(2);
  float total = 0;
  for (int64_t b = 0; b < x.shape(0); ++b)
    for (int64_t out = 0; out < co; ++out)
      for (int64_t in = 0; in < cig; ++in)
        for (int64_t i = 0; i < o; ++i)
          for (int64_t j = 0; j < k; ++j) {
            const int64_t at = i * c.stride + j * c.dilation - c.padding,
                          channel = out / (co / c.groups) * cig + in;
            if (at < 0 || at >= n) continue;
            total += xs[static_cast<size_t>((b * ci + channel) * n + at)] *
                     ws[static_cast<size_t>((out * cig + in) * k + j)] *
                     gs[static_cast<size_t>((b * co + out) * o + i)];
          }
  return total;
}

Array unit(const Shape& shape, int64_t at) {
  Floats v(static_cast<size_t>(element_count(shape)), 0);
  v[static_cast<size_t>(at)] = 1;
  return Array::from_vector(v, shape);
}

Floats values(const Array& x) {
  return x.to_vector();
}

Array pool(const char* op, const Floats& x, const Attrs& attrs) {
  return call(op, {Array::from_vector(x, {1, 1, static_cast<int64_t>(x.size())})}, attrs);
}

}  // namespace

TEST_SUITE("base: ops conv") {
  TEST_CASE("conv1d, its gradients and conv_transpose1d against loops") {
    for (const Conv& c : {Conv{}, Conv{2, 1, 1, 1}, Conv{1, 3, 2, 2}, Conv{3, 0, 1, 2}, Conv{2, 2, 3, 4}}) {
      CAPTURE(c.stride);
      CAPTURE(c.dilation);
      const Array x = counted({2, 4, 9}), w = counted({4, 4 / c.groups, 3}, 3);
      const Array y = call("conv1d", {x, w}, c.attrs());
      const Array g = counted(y.shape(), 5);
      const auto grads = vjp({y}, {g}, {x, w});
      // A transposed convolution with g is the gradient of x, if output_padding makes up for what stride left
      // over.
      Attrs attrs = c.attrs();
      attrs.set("output_padding", Ints{(9 + 2 * c.padding - c.dilation * 2 - 1) % c.stride});
      const Array back = call("conv_transpose1d", {g, w}, attrs);
      CHECK(values(back) == values(grads[0]));
      const Floats ys = values(y), dx = values(grads[0]), dw = values(grads[1]);
      for (size_t i = 0; i < ys.size(); ++i)
        CHECK(ys[i] == pairing(c, x, w, unit(y.shape(), static_cast<int64_t>(i))));
      for (size_t i = 0; i < dx.size(); ++i)
        CHECK(dx[i] == pairing(c, unit(x.shape(), static_cast<int64_t>(i)), w, g));
      for (size_t i = 0; i < dw.size(); ++i)
        CHECK(dw[i] == pairing(c, x, unit(w.shape(), static_cast<int64_t>(i)), g));
    }
  }

  TEST_CASE("conv_transpose1d: a kernel of 1 leaves the output_padding 0") {
    const Array x = counted({2, 2, 3}), w = counted({2, 3, 1}, 3);
    const Attrs attrs = {{"dilation", Ints{2}}};
    Attrs padded = attrs;
    padded.set("output_padding", Ints{1});
    CHECK(values(call("conv_transpose1d", {x, w}, padded)) ==
          values(pad_dim(call("conv_transpose1d", {x, w}, attrs), 2, 0, 1)));
  }

  TEST_CASE("conv2d and conv3d are conv1d of one dim when the others are 1") {
    const Array x = counted({2, 4, 9}), w = counted({6, 2, 3}, 3), b = counted({6});
    const Floats want =
        values(call("conv1d", {x, w, b}, {{"stride", Ints{2}}, {"padding", Ints{1}}, {"groups", 2}}));
    CHECK(values(call("conv2d", {unsqueeze(x, 2), unsqueeze(w, 2), b},
                      {{"stride", Ints{1, 2}}, {"padding", Ints{0, 1}}, {"groups", 2}})) == want);
    CHECK(values(call("conv3d", {reshape(x, {2, 4, 1, 9, 1}), reshape(w, {6, 2, 1, 3, 1}), b},
                      {{"stride", Ints{3, 2, 1}}, {"padding", Ints{0, 1, 0}}, {"groups", 2}})) == want);
    CHECK(call("conv1d", {counted({0, 4, 9}), w}, {{"groups", 2}}).shape() == Shape{0, 6, 7});
    CHECK_THROWS_WITH_AS(call("conv1d", {x, w}),
                         "[conv1d] x (2,4,9) and w (6,2,3) do not go together in 1 groups", Error);
    CHECK_THROWS_AS(call("conv1d", {x, w}, {{"groups", 2}, {"dilation", Ints{5}}}), Error);
  }

  TEST_CASE("kernels compute what they are composed of") {
    struct Size {
      Shape x, w;
      Ints stride, padding, dilation;
      int64_t groups = 1;
    };
    const Size sizes[] = {
        {{2, 3, 40}, {7, 3, 5}, {1}, {2}, {1}},                                  // one dim
        {{2, 6, 9, 11}, {8, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},                // groups
        {{3, 5, 12, 33}, {6, 5, 3, 4}, {2, 3}, {1, 2}, {1, 1}},                  // strides
        {{1, 2, 17, 19}, {20, 2, 3, 3}, {1, 2}, {2, 0}, {3, 2}},                 // dilation
        {{2, 20, 6, 7}, {33, 20, 1, 1}, {1, 1}, {0, 0}, {1, 1}},                 // one tap
        {{2, 20, 6, 7}, {9, 20, 1, 1}, {2, 3}, {1, 0}, {1, 1}},                  // one tap, apart
        {{2, 6, 10, 70}, {6, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 6},               // depthwise
        {{2, 6, 10, 13}, {12, 1, 3, 5}, {2, 2}, {1, 2}, {1, 1}, 6},              // depthwise, apart
        {{1, 7, 9, 9}, {2, 7, 3, 3}, {1, 1}, {3, 3}, {1, 1}},                    // few outputs, wide padding
        {{1, 4, 9, 9}, {3, 4, 3, 3}, {4, 4}, {0, 0}, {1, 1}},                    // windows with gaps
        {{2, 3, 5, 6, 7}, {6, 3, 2, 3, 2}, {1, 2, 1}, {1, 0, 1}, {1, 1, 2}},     // three dims
        {{2, 4, 5, 6, 7}, {4, 1, 3, 2, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 4},  // three dims, depthwise
        {{1, 40, 30, 30}, {48, 40, 3, 3}, {1, 1}, {1, 1}, {1, 1}},               // several blocks
    };
    const auto composed = [](const char* name, const std::vector<Array>& inputs, const Attrs& attrs) {
      const Op& op = find_op(name);
      return values(op.compose({op, inputs, attrs, Device()})[0]);
    };
    for (const Size& size : sizes) {
      CAPTURE(to_string(size.x));
      CAPTURE(to_string(size.w));
      const Array x = counted(size.x), w = counted(size.w, 3);
      Attrs attrs = {{"stride", size.stride},
                     {"padding", size.padding},
                     {"dilation", size.dilation},
                     {"groups", size.groups}};
      const Array y = call("convolve", {x, w}, attrs), g = counted(y.shape(), 5);
      CHECK(values(y) == composed("convolve", {x, w}, attrs));
      const Array turned =
          transpose(counted({size.x[1], size.x[0], element_count(size.x) / size.x[0] / size.x[1]}), 0, 1);
      CHECK(values(call("convolve", {reshape(turned, size.x), w}, attrs)) ==
            composed("convolve", {reshape(turned, size.x), w}, attrs));
      attrs.set("size", Ints(size.x.begin() + 2, size.x.end()));
      CHECK(values(call("convolve_input", {g, w}, attrs)) == composed("convolve_input", {g, w}, attrs));
      attrs.set("size", Ints(size.w.begin() + 2, size.w.end()));
      CHECK(values(call("convolve_weight", {x, g}, attrs)) == composed("convolve_weight", {x, g}, attrs));
    }
  }

  TEST_CASE("an infinity stays in the windows that see it") {
    for (int64_t channels : {1, 6}) {  // direct, as a product
      Floats v(16, 0);
      v[5] = kInf;  // row 1, column 1
      const Array x = Array::from_vector(v, {1, 1, 4, 4});
      const Array w = Array::from_vector(Floats(static_cast<size_t>(channels), 1), {channels, 1, 1, 1});
      const Array y = call("conv2d", {x, expand(w, {channels, 1, 1, 2})});
      for (size_t i = 0; i < 12; ++i) CHECK(std::isinf(values(y)[i]) == (i == 3 || i == 4));
    }
  }

  TEST_CASE("max_pool: padding never wins, NaN does, the first of equals gets the gradient") {
    const Attrs attrs = {{"kernel", Ints{3}}, {"stride", Ints{2}}, {"padding", Ints{1}}};
    CHECK(values(pool("max_pool1d", {-5, -6, -7, -8}, attrs)) == Floats{-5, -6});
    const Floats y = values(pool("max_pool1d", {1, std::nanf(""), 3, kInf}, {{"kernel", Ints{2}}}));
    CHECK((std::isnan(y[0]) && y[1] == kInf));
    const Array x = Array::from_vector({0, 0, 0, 0}, {1, 1, 2, 2});
    const Array top = call("max_pool2d", {x}, {{"kernel", Ints{2, 2}}});
    CHECK(values(vjp({top}, {Array::from_vector({7}, {1, 1, 1, 1})}, {x})[0]) == Floats{7, 0, 0, 0});
    // ceil_mode adds a window that starts in the input, but not one that would start in the padding.
    const Floats ramp = {1, 2, 3, 4, 5, 6};
    CHECK(values(pool("max_pool1d", ramp, {{"kernel", Ints{3}}, {"stride", Ints{2}}})) == Floats{3, 5});
    CHECK(values(pool("max_pool1d", ramp, {{"kernel", Ints{3}}, {"stride", Ints{2}}, {"ceil_mode", true}})) ==
          Floats{3, 5, 6});
    CHECK(
        values(pool("max_pool1d", ramp,
                    {{"kernel", Ints{2}}, {"stride", Ints{3}}, {"padding", Ints{1}}, {"ceil_mode", true}})) ==
        Floats{1, 4, 6});
    CHECK(
        values(pool("max_pool1d", {1, 2, 3, 4, 5},
                    {{"kernel", Ints{2}}, {"stride", Ints{3}}, {"padding", Ints{1}}, {"ceil_mode", true}})) ==
        Floats{1, 4});
    CHECK_THROWS_AS(pool("max_pool1d", ramp, {{"kernel", Ints{7}}}), Error);
  }

  TEST_CASE("avg_pool: what the divisor counts") {
    const Floats x = {2, 4, 6, 8};
    Attrs attrs = {{"kernel", Ints{3}}, {"stride", Ints{2}}, {"padding", Ints{1}}, {"ceil_mode", true}};
    CHECK(values(pool("avg_pool1d", x, attrs)) ==
          Floats{2, 6, 4});  // the last window: 8 and a padding 0, clipped to 2
    attrs.set("count_include_pad", false);
    CHECK(values(pool("avg_pool1d", x, attrs)) == Floats{3, 6, 8});
    const Array image = counted({1, 2, 4, 4});
    CHECK(values(call("avg_pool2d", {image}, {{"kernel", Ints{4, 2}}})) ==
          values(call("adaptive_avg_pool2d", {image}, {{"output_size", Ints{1, 2}}})));
    // Windows 0..2, 1..4 and 3..5: an infinity stays in the windows that hold it.
    const Array row = Array::from_vector({1, 3, 5, 7, kInf}, {1, 1, 1, 5});
    const Array y = call("adaptive_avg_pool2d", {row}, {{"output_size", Ints{1, 3}}});
    const Array slope = vjp({y}, {Array::from_vector({6, 6, 6}, y.shape())}, {row})[0];
    CHECK(values(y) == Floats{2, 5, kInf});
    CHECK(values(slope) == Floats{3, 5, 2, 5, 3});
  }

  TEST_CASE("upsampling finds its sources") {
    const Array x = Array::from_vector({0, 1, 2}, {1, 1, 3});
    CHECK(values(call("upsample_nearest1d", {x}, {{"size", Ints{7}}})) == Floats{0, 0, 0, 1, 1, 2, 2});
    const Array image = Array::from_vector({0, 4, 8, 12}, {1, 1, 2, 2});
    CHECK(values(call("upsample_bilinear2d", {image}, {{"size", Ints{1, 4}}})) == Floats{4, 5, 7, 8});
    const Array corners =
        call("upsample_bilinear2d", {image}, {{"size", Ints{3, 3}}, {"align_corners", true}});
    const Array slope = vjp({corners}, {Array::from_vector(Floats(9, 4), corners.shape())}, {image})[0];
    CHECK(values(corners) == Floats{0, 2, 4, 4, 6, 8, 8, 10, 12});
    CHECK(values(slope) == Floats{9, 9, 9, 9});
  }
}
