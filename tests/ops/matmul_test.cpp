#include <doctest/doctest.h>

#include <cstring>

#include "array/host_tensor.h"
#include "ops/shorthand.h"
#include "weft/error.h"
#include "weft/grad.h"

using namespace weft;

namespace {

using Floats = std::vector<float>;

/// Small integers that repeat late: sums are exact in f32 and in f16.
Array counted(const Shape& shape, int start = 0) {
  Floats v;
  for (int64_t i = 0; i < element_count(shape); ++i)
    v.push_back(static_cast<float>((i * 7 + start) % 11 - 5));
  return Array::from_vector(v, shape);
}

/// The slow way for letters only: for every value of every letter, the product of the operands is added to
/// the output.
Floats by_loops(const std::vector<std::string>& names, const std::string& output,
                const std::vector<Array>& inputs) {
  std::string letters;
  Shape sizes;
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t d = 0; d < names[i].size(); ++d)
      if (letters.find(names[i][d]) == std::string::npos)
        letters += names[i][d], sizes.push_back(inputs[i].shape()[d]);
  const auto place = [&](const std::string& labels, const std::vector<int64_t>& at) {
    int64_t offset = 0;
    for (char l : labels) offset = offset * sizes[letters.find(l)] + at[letters.find(l)];
    return static_cast<size_t>(offset);
  };
  int64_t results = 1;
  for (char l : output) results *= sizes[letters.find(l)];
  Floats out(static_cast<size_t>(results), 0);
  std::vector<Floats> in;
  for (const Array& x : inputs) in.push_back(x.to_vector());
  for (int64_t n = 0; n < element_count(sizes); ++n) {
    std::vector<int64_t> at(letters.size());
    int64_t rest = n;
    for (size_t d = letters.size(); d-- > 0; rest /= sizes[d]) at[d] = rest % sizes[d];
    float product = 1;
    for (size_t i = 0; i < in.size(); ++i) product *= in[i][place(names[i], at)];
    out[place(output, at)] += product;
  }
  return out;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i ? "," : "") + names[i];
  return text;
}

Array bytes(std::vector<uint8_t> values, const Shape& shape) {
  HostTensor host{DType::u8, shape, std::vector<std::byte>(values.size())};
  std::memcpy(host.bytes.data(), values.data(), values.size());
  return Array::from_host(host);
}

Array index(int32_t i) {
  HostTensor host{DType::i32, {1}, std::vector<std::byte>(4)};
  std::memcpy(host.bytes.data(), &i, 4);
  return Array::from_host(host);
}

}  // namespace

TEST_SUITE("base: ops matmul") {
  TEST_CASE("einsum and its gradients are what loops give") {
    struct Case {
      std::vector<std::string> names;
      std::string output;
      std::vector<Shape> shapes;
    };
    const Case cases[] = {
        {{"ij", "jk"}, "ik", {{3, 4}, {4, 5}}},
        {{"bij", "bjk"}, "kbi", {{2, 3, 4}, {2, 4, 5}}},
        {{"bqhd", "bkhd"}, "bhqk", {{2, 3, 2, 4}, {2, 5, 2, 4}}},
        {{"i", "j"}, "ji", {{3}, {4}}},
        {{"ij", "ij"}, "i", {{3, 4}, {3, 4}}},
        {{"ij", "ij"}, "ji", {{3, 4}, {3, 4}}},
        {{"ijk", "lk"}, "il", {{2, 3, 4}, {5, 4}}},  // j is only summed
        {{"abij", "jiab"}, "ba", {{2, 3, 4, 5}, {5, 4, 2, 3}}},
        {{"ij", "kl", "jk", "l"}, "i", {{2, 3}, {4, 5}, {3, 4}, {5}}},
        {{"ijk"}, "ki", {{2, 3, 4}}},
        {{"", "ij"}, "j", {{}, {2, 3}}},
        {{"ij", "jk"}, "ik", {{3, 0}, {0, 2}}},
        {{"ij", "jk"}, "ik", {{0, 3}, {3, 2}}},
    };
    for (const Case& c : cases) {
      const std::string equation = joined(c.names) + "->" + c.output;
      CAPTURE(equation);
      std::vector<Array> inputs;
      for (size_t i = 0; i < c.shapes.size(); ++i)
        inputs.push_back(counted(c.shapes[i], static_cast<int>(i) * 3));
      const Array y = einsum(equation, inputs), g = counted(y.shape(), 5);
      const std::vector<Array> grads = vjp({y}, {g}, inputs);
      CHECK(y.to_vector() == by_loops(c.names, c.output, inputs));
      for (size_t i = 0; i < inputs.size(); ++i) {  // the gradient of an operand: g takes its place
        CAPTURE(i);
        std::vector<std::string> names = c.names;
        std::vector<Array> others = inputs;
        names[i] = c.output, others[i] = g;
        names.push_back(c.names[i]),
            others.push_back(
                Array::from_vector(Floats(static_cast<size_t>(inputs[i].size()), 1), inputs[i].shape()));
        CHECK(grads[i].to_vector() == by_loops(names, c.names[i], others));
      }
    }
  }

  TEST_CASE("einsum: repeated letters, ..., implicit outputs, sizes of 1") {
    const Array square = counted({3, 3}), cube = counted({2, 3, 3}), other = counted({3, 4}, 2);
    const Floats v = square.to_vector();
    const Array trace = einsum("ii", {square});
    const Array d = vjp({trace}, {scalar_like(trace, 2)}, {square})[0];
    CHECK(trace.item() == v[0] + v[4] + v[8]);
    CHECK(d.to_vector() == Floats{2, 0, 0, 0, 2, 0, 0, 0, 2});
    CHECK(einsum("ii->i", {square}).to_vector() == Floats{v[0], v[4], v[8]});
    CHECK(einsum("ba", {other}).to_vector() == transpose(other, 0, 1).to_vector());
    CHECK(einsum(" ij , jk ", {square, other}).to_vector() == matmul(square, other).to_vector());
    CHECK(einsum("...ij,jk", {cube, other}).to_vector() == matmul(cube, other).to_vector());
    CHECK(einsum("...ii->...", {cube}).shape() == Shape{2});
    CHECK(einsum("...i->i", {cube}).to_vector() == sum(cube, {0, 1}).to_vector());
    CHECK(einsum("ij,jk->ik", {counted({2, 1}), other}).to_vector() ==
          matmul(expand(counted({2, 1}), {2, 3}), other).to_vector());
    CHECK_THROWS_WITH_AS(einsum("ij,jk", {square}), "[einsum] 'ij,jk' has 2 operands, 1 were given", Error);
    CHECK_THROWS_WITH_AS(einsum("ij,jk->ik", {other, other}),
                         "[einsum] 'ij,jk->ik' gives one letter to dims of 4 and 3", Error);
    CHECK_THROWS_AS(einsum("ij->ik", {square}), Error);
    CHECK_THROWS_AS(einsum("i.j", {square}), Error);
  }

  TEST_CASE("matmul: vectors, broadcasting, gradients") {
    struct Case {
      Shape a, b;
      std::string equation;
    };
    const Case cases[] = {
        {{4}, {4}, "k,k->"},
        {{3, 4}, {4}, "mk,k->m"},
        {{4}, {4, 5}, "k,kn->n"},
        {{3, 4}, {4, 5}, "mk,kn->mn"},
        {{2, 3, 4}, {4, 5}, "bmk,kn->bmn"},
        {{3, 4}, {2, 4, 5}, "mk,bkn->bmn"},
        {{4}, {2, 4, 5}, "k,bkn->bn"},
        {{2, 3, 4}, {4}, "bmk,k->bm"},
        {{2, 1, 3, 4}, {6, 4, 5}, "bcmk,dkn->bdmn"},
        {{2, 0}, {0, 3}, "mk,kn->mn"},
        {{0, 2, 3}, {3, 2}, "bmk,kn->bmn"},
    };
    for (const Case& c : cases) {
      CAPTURE(c.equation);
      const Array a = counted(c.a), b = counted(c.b, 4);
      const Array y = matmul(a, b), same = einsum(c.equation, {a, b}), g = counted(y.shape(), 1);
      const std::vector<Array> grads = vjp({y}, {g}, {a, b}), expected = vjp({same}, {g}, {a, b});
      CHECK(y.shape() == same.shape());
      CHECK(y.to_vector() == same.to_vector());
      for (size_t i = 0; i < 2; ++i) CHECK(grads[i].to_vector() == expected[i].to_vector());
    }
    CHECK(call("outer", {counted({3}), counted({2})}).to_vector() ==
          einsum("i,j->ij", {counted({3}), counted({2})}).to_vector());
    CHECK_THROWS_WITH_AS(matmul(counted({4, 3}), counted({5, 2})),
                         "[matmul] inner dimensions differ: (4,3) x (5,2)", Error);
    CHECK_THROWS_AS(matmul(counted({}), counted({2})), Error);
    CHECK_THROWS_AS(matmul(counted({2, 2, 3}), counted({4, 3, 2})), Error);
    CHECK_THROWS_AS(matmul(as(counted({2, 2}), DType::u8), as(counted({2, 2}), DType::u8)), Error);
  }

  TEST_CASE("linear rounds halves once, after the bias") {
    const Array x = counted({2, 3, 4}), w = counted({5, 4}, 3), b = counted({5}, 6);
    const Array y = call("linear", {x, w, b});
    CHECK(y.to_vector() == (matmul(x, transpose(w, 0, 1)) + b).to_vector());
    const auto half = [](const Array& a) { return as(a, DType::f16); };
    // f16 has no 2049: rounded before the bias, 2048 - 1.5 gives 2046; rounded after it, 2047.5 gives 2048.
    const Array hx = half(Array::from_vector({2048, 1}, {1, 2})),
                hw = half(Array::from_vector({1, 1}, {1, 2})), hb = half(Array::from_vector({-1.5}, {1}));
    const Array hy = call("linear", {hx, hw, hb});
    const std::vector<Array> grads = vjp({hy}, {half(Array::from_vector({2}, {1, 1}))}, {hx, hw, hb});
    CHECK(hy.dtype() == DType::f16);
    CHECK(as(hy, DType::f32).item() == 2048);
    CHECK(grads[0].dtype() == DType::f16);
    CHECK(as(grads[0], DType::f32).to_vector() == Floats{2, 2});
    CHECK(as(grads[1], DType::f32).to_vector() == Floats{4096, 2});
    CHECK(as(grads[2], DType::f32).item() == 2);
    CHECK_THROWS_WITH_AS(call("linear", {x, w, counted({4})}),
                         "[linear] the bias has shape (4), expected (5)", Error);
  }

  TEST_CASE("quantised: blocks of f16 and q8_0") {
    // q8_0: a half scale, 32 signed bytes. Row r: scale 0.5 (0x3800), values i + r.
    std::vector<uint8_t> blocks;
    for (int r = 0; r < 3; ++r) {
      blocks.insert(blocks.end(), {0x00, 0x38});
      for (int i = 0; i < 32; ++i) blocks.push_back(static_cast<uint8_t>(i + r));
    }
    const Array w = bytes(blocks, {3, 34});
    const Attrs type = {{"type", std::string("q8_0")}};
    const Array all = call("dequantize", {w}, {{"type", std::string("q8_0")}, {"shape", Ints{3, 32}}});
    CHECK(all.to_vector()[33] == 1.0f);
    CHECK(call("qembedding", {w, index(2)}, type).to_vector() == slice_dim(all, 0, 2, 3).to_vector());
    // Rows that are not side by side, and bytes that are not.
    CHECK(call("dequantize", {slice_dim(w, 0, 0, 3, 2)}, {{"type", std::string("q8_0")}, {"shape", Ints{64}}})
              .to_vector() == cat({slice_dim(all, 0, 0, 1), slice_dim(all, 0, 2, 3)}, 0).to_vector());
    const Array turned = transpose(bytes({0, 0, 0x3c, 0x40}, {2, 2}), 0, 1);  // f16 1, 2
    CHECK(call("dequantize", {turned}, {{"type", std::string("f16")}, {"shape", Ints{2}}}).to_vector() ==
          Floats{1, 2});

    const Array x = counted({2, 1, 32}),
                y = call("qmatmul", {x, w},
                         {{"type", std::string("q8_0")}, {"n", int64_t{3}}, {"k", int64_t{32}}});
    const Array g = counted(y.shape()), dx = vjp({y}, {g}, {x})[0];
    CHECK(y.shape() == Shape{2, 1, 3});
    CHECK(y.to_vector() == matmul(x, transpose(all, 0, 1)).to_vector());
    CHECK(dx.to_vector() == matmul(g, all).to_vector());
    CHECK_THROWS_WITH_AS(call("dequantize", {w}, {{"type", std::string("q8_0")}, {"shape", Ints{3, 31}}}),
                         "[dequantize] (3,34) of q8_0 hold 96 elements, not (3,31)", Error);
    CHECK_THROWS_AS(call("dequantize", {w}, {{"type", std::string("q4_0")}, {"shape", Ints{3, 32}}}), Error);
  }
}
