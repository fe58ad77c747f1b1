// Elementwise ops that are written in others.
#include "base/error.h"
#include "ops/op.h"
#include "ops/shorthand.h"

namespace weft {
namespace {

Op composed(std::string name, int inputs, std::vector<AttrSpec> attrs,
            std::function<Array(const OpCall&)> f) {
  return composed1(std::move(name), inputs, inputs, std::move(attrs), std::move(f));
}

/// f16 and bf16 are computed in f32 and rounded once, at the end.
Op in_f32(std::string name, int inputs, std::vector<AttrSpec> attrs, std::function<Array(const OpCall&)> f) {
  return composed(std::move(name), inputs, std::move(attrs), [f = std::move(f)](const OpCall& c) {
    DType dtype = c.inputs[0].dtype();
    for (const Array& x : c.inputs) dtype = promote(dtype, x.dtype());
    if (!is_half(dtype)) return f(c);
    std::vector<Array> wide;
    for (const Array& x : c.inputs) wide.push_back(as(x, DType::f32));
    return as(f({c.op, wide, c.attrs, c.device}), dtype);
  });
}

Array truth(const Array& x) {
  return x.dtype() == DType::boolean ? x : as(x, DType::boolean);
}

}  // namespace

std::vector<Op> composed_elementwise_ops() {
  const auto zero = [](const Array& x) { return scalar_like(x, 0); };
  return {
      composed("relu", 1, {},
               [=](const OpCall& c) {  // gradient 0 at the kink, NaN stays
                 const Array& x = c.inputs[0];
                 return call("where", {call("le", {x, zero(x)}), zero(x), x});
               }),
      composed("relu6", 1, {},
               [=](const OpCall& c) {
                 const Array& x = c.inputs[0];
                 const Array low = call("where", {call("le", {x, zero(x)}), zero(x), x});
                 return call("where", {call("ge", {low, scalar_like(x, 6)}), scalar_like(x, 6), low});
               }),
      in_f32("log_sigmoid", 1, {}, [](const OpCall& c) { return -call("softplus", {-c.inputs[0]}); }),
      in_f32("mish", 1, {},
             [](const OpCall& c) { return c.inputs[0] * call("tanh", {call("softplus", {c.inputs[0]})}); }),
      composed("gelu", 1, {{"approximate", std::string("none")}},
               [](const OpCall& c) {
                 const Array& x = c.inputs[0];
                 if (c.attrs.text("approximate") == "tanh") return call("gelu_tanh", {x});
                 if (c.attrs.text("approximate") != "none")
                   fail(ErrorKind::invalid, "[gelu] approximate is none or tanh, not {}",
                        c.attrs.text("approximate"));
                 return call("gelu_erf", {x});
               }),
      in_f32("elu", 1, {{"alpha", 1.0}},
             [=](const OpCall& c) {
               const Array& x = c.inputs[0];
               const Array positive = call("gt", {x, zero(x)});  // expm1 only sees what it is used for
               return call("where", {positive, x,
                                     call("expm1", {call("where", {positive, zero(x), x})}) *
                                         c.attrs.number("alpha")});
             }),
      in_f32("leaky_relu", 1, {{"negative_slope", 0.01}},
             [=](const OpCall& c) {
               const Array& x = c.inputs[0];
               return call("where", {call("gt", {x, zero(x)}), x, x * c.attrs.number("negative_slope")});
             }),
      in_f32("hardswish", 1, {},
             [](const OpCall& c) { return c.inputs[0] * call("relu6", {c.inputs[0] + 3.0}) / 6.0; }),
      in_f32("affine", 1, {{"mul", 1.0}, {"add", 0.0}},
             [](const OpCall& c) {  // attributes are numbers of x's dtype
               const Array& x = c.inputs[0];
               return x * scalar_like(x, c.attrs.number("mul")) + scalar_like(x, c.attrs.number("add"));
             }),
      in_f32("pow_scalar", 1, {{"exponent", {}, true}},
             [](const OpCall& c) {
               const double e = c.attrs.number("exponent");
               const Array& x = c.inputs[0];
               if (e == 0) return expand(scalar_like(x, 1), x.shape());
               if (e == 1) return x;
               if (e == 2) return call("square", {x});
               if (e == 0.5) return call("sqrt", {x});
               if (e == -0.5) return call("rsqrt", {x});
               if (e == -1) return call("reciprocal", {x});
               return call("pow", {x, scalar_like(x, e)});
             }),
      composed("div", 2, {},
               [](const OpCall& c) {
                 const Array &a = c.inputs[0], &b = c.inputs[1];
                 const DType common = promote(a.dtype(), b.dtype());
                 const DType real = is_float(common) ? common : DType::f32;
                 return call("divide", {as(a, real), as(b, real)});
               }),
      in_f32("addcmul", 3, {{"value", 1.0}},
             [](const OpCall& c) {
               const Array& a = c.inputs[1];
               return c.inputs[0] + a * c.inputs[2] * scalar_like(a, c.attrs.number("value"));
             }),
      in_f32("lerp", 3, {},
             [](const OpCall& c) { return c.inputs[0] + c.inputs[2] * (c.inputs[1] - c.inputs[0]); }),
      composed("logical_and", 2, {},
               [](const OpCall& c) { return call("bitwise_and", {truth(c.inputs[0]), truth(c.inputs[1])}); }),
      composed("logical_or", 2, {},
               [](const OpCall& c) { return call("bitwise_or", {truth(c.inputs[0]), truth(c.inputs[1])}); }),
      composed("logical_xor", 2, {},
               [](const OpCall& c) { return call("bitwise_xor", {truth(c.inputs[0]), truth(c.inputs[1])}); }),
      composed("masked_fill", 2, {{"value", {}, true}},
               [](const OpCall& c) {
                 return call("where",
                             {c.inputs[1], scalar_like(c.inputs[0], c.attrs.number("value")), c.inputs[0]});
               }),
  };
}

}  // namespace weft
