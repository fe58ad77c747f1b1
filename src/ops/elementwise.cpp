// Elementwise ops: how each is computed for every kind of operand, and its derivative.
#include <bit>
#include <cmath>
#include <limits>

#include "array/math.h"
#include "backend/cpu/tabled.h"
#include "backend/cpu/wide.h"
#include "base/error.h"
#include "ops/op.h"
#include "ops/shorthand.h"

namespace weft {
namespace {

// ---- Loops over a scalar function given as a template argument.
// ------------------------------------------------

template <typename In, typename Out, auto f>
void map1(const void* const* in, void* out, int64_t n, const double* attrs) {
  const auto* x = static_cast<const In*>(in[0]);
  auto* y = static_cast<Out*>(out);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_invocable_v<decltype(f), In, const double*>)
      y[i] = static_cast<Out>(f(x[i], attrs));
    else
      y[i] = static_cast<Out>(f(x[i]));
  }
}

template <typename In, typename Out, auto f>
void map2(const void* const* in, void* out, int64_t n, const double*) {
  const auto *a = static_cast<const In*>(in[0]), *b = static_cast<const In*>(in[1]);
  auto* y = static_cast<Out*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(f(a[i], b[i]));
}

/// sin and cos: large angles are rare, and left to the C library.
template <int32_t quarters, float (*exact)(float)>
void map_angle(const void* const* in, void* out, int64_t n, const double*) {
  const auto* x = static_cast<const float*>(in[0]);
  auto* y = static_cast<float*>(out);
  bool large = false;
  for (int64_t i = 0; i < n; ++i) large |= std::fabs(x[i]) > math::kMaxAngle;
  if (large)
    for (int64_t i = 0; i < n; ++i) y[i] = exact(x[i]);
  else
    for (int64_t i = 0; i < n; ++i) y[i] = math::sin_turned(x[i], quarters);
}

template <typename T>
void select3(const void* const* in, void* out, int64_t n, const double*) {
  const auto* condition = static_cast<const int32_t*>(in[0]);
  const auto *a = static_cast<const T*>(in[1]), *b = static_cast<const T*>(in[2]);
  auto* y = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = condition[i] ? a[i] : b[i];
}

struct Lanes {
  std::array<LaneFunction, 5> functions;
  std::array<LaneFunction, 3> streamed{};
};

/// Lane functions that are null or loops, each in its fastest form.
template <auto... loops>
Lanes lanes() {
  const auto best = []<auto loop>() -> LaneFunction {
    if constexpr (std::is_null_pointer_v<decltype(loop)>)
      return nullptr;
    else
      return cpu::Wide<loop>::best();
  };
  return { {best.template operator()<loops>()...} };
}

/// The same where the first is of floats that stay floats.
template <auto first, auto... rest>
Lanes float_lanes() {
  Lanes all = lanes<first, rest...>();
  all.streamed = cpu::Streamed<first>::all();
  return all;
}

// Booleans travel as 32-bit 0 and 1.
template <auto f>
Lanes float1() {
  constexpr LaneFunction loop = map1<float, float, f>, in_512 = cpu::with_tables<f>(loop);
  return {{cpu::Wide<loop, in_512>::best()}, cpu::Streamed<loop, in_512>::all()};
}
template <auto f>
Lanes number1() {
  return float_lanes<map1<float, float, f>, map1<int32_t, int32_t, f>, map1<uint32_t, uint32_t, f>,
                     map1<int64_t, int64_t, f>>();
}
template <auto f>
Lanes test1() {
  return lanes<map1<float, int32_t, f>, map1<int32_t, int32_t, f>, map1<uint32_t, int32_t, f>,
               map1<int64_t, int32_t, f>, map1<int32_t, int32_t, f>>();
}
template <auto f>
Lanes float2() {
  return float_lanes<map2<float, float, f>>();
}
template <auto f>
Lanes number2() {
  return float_lanes<map2<float, float, f>, map2<int32_t, int32_t, f>, map2<uint32_t, uint32_t, f>,
                     map2<int64_t, int64_t, f>>();
}
template <auto f>
Lanes test2() {
  return lanes<map2<float, int32_t, f>, map2<int32_t, int32_t, f>, map2<uint32_t, int32_t, f>,
               map2<int64_t, int32_t, f>, map2<int32_t, int32_t, f>>();
}
template <auto f>
Lanes bits2() {
  return lanes<nullptr, map2<int32_t, int32_t, f>, map2<uint32_t, uint32_t, f>, map2<int64_t, int64_t, f>,
               map2<int32_t, int32_t, f>>();
}
template <auto f>
Lanes words2() {
  return lanes<nullptr, map2<int32_t, int32_t, f>, map2<uint32_t, uint32_t, f>, map2<int64_t, int64_t, f>>();
}

// Integers wrap: compute in the unsigned type of the same width.
template <typename T>
constexpr auto wrap(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<std::make_unsigned_t<T>>(x);
  else
    return x;
}

constexpr auto kAdd = [](auto a, auto b) { return wrap(a) + wrap(b); };
constexpr auto kSub = [](auto a, auto b) { return wrap(a) - wrap(b); };
constexpr auto kMul = [](auto a, auto b) { return wrap(a) * wrap(b); };
constexpr auto kNeg = [](auto x) {
  if constexpr (std::is_floating_point_v<decltype(x)>)
    return -x;
  else
    return wrap(decltype(x){}) - wrap(x);
};
constexpr auto kAbs = [](auto x) {
  if constexpr (std::is_floating_point_v<decltype(x)>)
    return std::fabs(x);
  else
    return x < 0 ? wrap(decltype(x){}) - wrap(x) : wrap(x);
};
constexpr auto kSign = [](auto x) {
  if constexpr (std::is_floating_point_v<decltype(x)>)
    return std::isnan(x) ? x : static_cast<decltype(x)>((x > 0) - (x < 0));
  else
    return static_cast<int>(x > 0) - static_cast<int>(x < 0);
};
constexpr auto kSquare = [](auto x) { return wrap(x) * wrap(x); };
constexpr auto kMaximum = [](auto a, auto b) { return a != a ? a : b != b ? b : a > b ? a : b; };
constexpr auto kMinimum = [](auto a, auto b) { return a != a ? a : b != b ? b : a < b ? a : b; };
constexpr auto kFloorDivide = [](auto a, auto b) {
  using T = decltype(a);
  if constexpr (std::is_floating_point_v<T>) {
    return std::floor(a / b);
  } else {
    if (b == 0) return T{};
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return static_cast<T>(wrap(T{}) - wrap(a));  // the one quotient that overflows
      const T q = a / b;
      return static_cast<T>(a % b != 0 && ((a < 0) != (b < 0)) ? q - 1 : q);
    } else {
      return static_cast<T>(a / b);
    }
  }
};
constexpr auto kRemainder = [](auto a, auto b) {
  using T = decltype(a);
  if constexpr (std::is_floating_point_v<T>) {
    if (b == 0) return std::numeric_limits<T>::quiet_NaN();
    const T r = std::fmod(a, b);
    return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
  } else {
    if (b == 0) return T{};
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return T{};
      const T r = a % b;
      return static_cast<T>(r != 0 && ((r < 0) != (b < 0)) ? r + b : r);
    } else {
      return static_cast<T>(a % b);
    }
  }
};
constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kLessEqual = [](auto a, auto b) { return a <= b; };
constexpr auto kGreater = [](auto a, auto b) { return a > b; };
constexpr auto kGreaterEqual = [](auto a, auto b) { return a >= b; };
constexpr auto kIsInf = [](auto x) {
  if constexpr (std::is_floating_point_v<decltype(x)>)
    return std::isinf(x);
  else
    return false;
};
template <typename T>
constexpr auto kLastBit = static_cast<T>(8 * sizeof(T) - 1);
constexpr auto kShiftLeft = [](auto a, auto b) { return wrap(a) << (b & kLastBit<decltype(a)>); };
constexpr auto kShiftRight = [](auto a, auto b) { return a >> (b & kLastBit<decltype(a)>); };
constexpr auto kClamp = [](auto x, const double* attrs) {
  using T = decltype(x);
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return x;
    const T low = static_cast<T>(attrs[0]), high = static_cast<T>(attrs[1]);
    return std::min(std::max(x, low), high);
  } else {
    const double low = std::max(x < attrs[0] ? attrs[0] : static_cast<double>(x), attrs[0]);
    return static_cast<T>(std::min(low, attrs[1]));
  }
};

// ---- Shape and dtype rules.
// ------------------------------------------------------------------------------------

void check_lane(const OpCall& call, DType dtype) {
  if (!call.op.scalar.cpu[static_cast<size_t>(lane_of(dtype))])
    fail(ErrorKind::invalid, "[{}] does not take {}", call.op.name, name_of(dtype));
}

Shape common_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  for (const Array& input : call.inputs) shape = broadcast_shapes(call.op.name, shape, input.shape());
  return shape;
}

std::vector<OutputSpec> same_dtype(const OpCall& call) {
  const DType dtype = call.inputs[0].dtype();
  check_lane(call, dtype);
  return {{common_shape(call), dtype}};
}

std::vector<OutputSpec> to_bool(const OpCall& call) {
  check_lane(call, call.inputs[0].dtype());
  return {{common_shape(call), DType::boolean}};
}

// ---- Rows.
// -----------------------------------------------------------------------------------------------------

using Texts = std::array<std::string_view, 5>;

constexpr Texts float_text(std::string_view text) {
  return {text};
}
constexpr Texts number_text(std::string_view text) {
  return {text, text, text};
}

Op unary(std::string name, const Lanes& cpu, const Texts& wgsl, Gradient gradient,
         const std::vector<AttrSpec>& attrs = {}) {
  Op op{.name = std::move(name),
        .kind = OpKind::elementwise,
        .attrs = attrs,
        .infer = same_dtype,
        .gradient = std::move(gradient)};
  op.scalar = {.arity = 1, .cpu = cpu.functions, .cpu_streamed = cpu.streamed, .wgsl = wgsl};
  for (const AttrSpec& attr : attrs) op.scalar_attrs.push_back(attr.name);
  return op;
}

Op binary(std::string name, const Lanes& cpu, const Texts& wgsl, Gradient gradient) {
  Op op{.name = std::move(name),
        .kind = OpKind::elementwise,
        .min_inputs = 2,
        .max_inputs = 2,
        .promotes_from = 0,
        .infer = same_dtype,
        .gradient = std::move(gradient)};
  op.scalar = {.arity = 2, .cpu = cpu.functions, .cpu_streamed = cpu.streamed, .wgsl = wgsl};
  return op;
}

Op test(Op op) {
  op.infer = to_bool;
  op.gradient = {};
  return op;
}

/// d(y)/d(x) as a function of (x, y): the gradient of a unary op. Halves are differentiated in f32: their y
/// is rounded.
template <typename Derivative>
Gradient times(Derivative derivative) {
  return [derivative](const GradCall& c) -> std::vector<Array> {
    const Array &x = c.inputs[0], &g = c.output_grads[0];
    if (!is_half(x.dtype())) return {g * derivative(x, c.outputs[0])};
    const Array wide = as(x, DType::f32);
    return {as(as(g, DType::f32) * derivative(wide, call(c.op.name, {wide}, c.attrs)), x.dtype())};
  };
}

const Gradient kZero = [](const GradCall& c) -> std::vector<Array> { return {zeros_like(c.inputs[0])}; };

std::vector<Op> float_unary_ops() {
  using A = const Array&;
  return {
      unary("exp", float1<math::exp>(), float_text("exp({0})"), times([](A, A y) { return y; })),
      unary("exp2", float1<math::exp2>(), float_text("exp2({0})"),
            times([](A, A y) { return y * 0.6931471805599453; })),
      unary("expm1", float1<math::expm1>(), float_text("weft_expm1({0})"),
            times([](A, A y) { return y + 1.0; })),
      unary("log", float1<math::log>(), float_text("weft_log({0})"), times([](A x, A) { return 1.0 / x; })),
      unary("log2", float1<math::log2>(), float_text("(weft_log({0}) * 1.4426950408889634)"),
            times([](A x, A) { return 1.4426950408889634 / x; })),
      unary("log1p", float1<math::log1p>(), float_text("weft_log1p({0})"),
            times([](A x, A) { return 1.0 / (x + 1.0); })),
      unary("sqrt", float1<[](float x) { return std::sqrt(x); }>(), float_text("weft_sqrt({0})"),
            times([](A, A y) { return 0.5 / y; })),
      unary("rsqrt", float1<[](float x) { return 1 / std::sqrt(x); }>(), float_text("weft_rsqrt({0})"),
            times([](A, A y) { return y * y * y * -0.5; })),
      unary("reciprocal", float1<[](float x) { return 1 / x; }>(), float_text("(1.0 / {0})"),
            times([](A, A y) { return -(y * y); })),
      unary("sin", float_lanes<map_angle<0, std::sin>>(), float_text("sin({0})"),
            times([](A x, A) { return call("cos", {x}); })),
      unary("cos", float_lanes<map_angle<1, std::cos>>(), float_text("cos({0})"),
            times([](A x, A) { return -call("sin", {x}); })),
      unary("tan", float1<[](float x) { return std::tan(x); }>(), float_text("tan({0})"),
            times([](A, A y) { return y * y + 1.0; })),
      unary("asin", float1<[](float x) { return std::asin(x); }>(), float_text("weft_asin({0})"),
            times([](A x, A) { return call("rsqrt", {1.0 - x * x}); })),
      unary("acos", float1<[](float x) { return std::acos(x); }>(),
            float_text("(1.5707963267948966 - weft_asin({0}))"),
            times([](A x, A) { return -call("rsqrt", {1.0 - x * x}); })),
      unary("atan", float1<[](float x) { return std::atan(x); }>(), float_text("atan({0})"),
            times([](A x, A) { return 1.0 / (x * x + 1.0); })),
      unary("sinh", float1<[](float x) { return std::sinh(x); }>(), float_text("weft_sinh({0})"),
            times([](A x, A) { return call("cosh", {x}); })),
      unary("cosh", float1<[](float x) { return std::cosh(x); }>(), float_text("weft_cosh({0})"),
            times([](A x, A) { return call("sinh", {x}); })),
      unary("asinh", float1<[](float x) { return std::asinh(x); }>(), float_text("weft_asinh({0})"),
            times([](A x, A) { return call("rsqrt", {x * x + 1.0}); })),
      unary("acosh", float1<[](float x) { return std::acosh(x); }>(), float_text("weft_acosh({0})"),
            times([](A x, A) { return call("rsqrt", {x * x - 1.0}); })),
      unary("atanh", float1<[](float x) { return std::atanh(x); }>(), float_text("weft_atanh({0})"),
            times([](A x, A) { return 1.0 / (1.0 - x * x); })),
      unary("tanh", float1<math::tanh>(), float_text("weft_tanh({0})"),
            times([](A, A y) { return 1.0 - y * y; })),
      unary("erf", float1<math::erf>(), float_text("weft_erf({0})"),
            times([](A x, A) { return call("exp", {-(x * x)}) * 1.1283791670955126; })),
      unary("sigmoid", float1<math::sigmoid>(), float_text("weft_sigmoid({0})"),
            times([](A, A y) { return y * (1.0 - y); })),
      unary("silu", float1<math::silu>(), float_text("({0} * weft_sigmoid({0}))"), times([](A x, A) {
              const Array gate = call("sigmoid", {x});
              return gate * (x * (1.0 - gate) + 1.0);
            })),
      unary("gelu_erf", float1<math::gelu>(),
            float_text("({0} * 0.5 * (weft_erf({0} * 0.7071067811865476) + 1.0))"), times([](A x, A) {
              const Array below = (call("erf", {x * 0.7071067811865476}) + 1.0) * 0.5;
              return below + x * call("exp", {x * x * -0.5}) * 0.3989422804014327;
            })),
      unary("gelu_tanh", float1<math::gelu_tanh>(),
            float_text("({0} * weft_sigmoid({0} * (1.5957691216057308 + 0.07135481627159612 * {0} * {0})))"),
            times([](A x, A) {
              const Array z = x * x;
              const Array gate = call("sigmoid", {x * (z * 0.07135481627159612 + 1.5957691216057308)});
              return gate * (x * (1.0 - gate) * (z * 0.21406444881478836 + 1.5957691216057308) + 1.0);
            })),
      unary("softplus", float1<math::softplus>(), float_text("weft_softplus({0})"),
            times([](A x, A) { return call("sigmoid", {x}); })),
      unary("floor", float1<[](float x) { return std::floor(x); }>(), float_text("floor({0})"), kZero),
      unary("ceil", float1<[](float x) { return std::ceil(x); }>(), float_text("ceil({0})"), kZero),
      unary("round", float1<[](float x) { return std::nearbyint(x); }>(), float_text("round({0})"), kZero),
      unary("trunc", float1<[](float x) { return std::trunc(x); }>(), float_text("trunc({0})"), kZero),
  };
}

/// It passes where min <= x <= max; with min > max that is nowhere, though x may be the one value there is.
std::vector<Array> clamp_gradient(const GradCall& c) {
  if (c.attrs.number("min") > c.attrs.number("max")) return kZero(c);
  const Array x = widened(c.inputs[0]), &g = c.output_grads[0];  // a half's result is a rounded bound
  return {where(eq(x, call("clamp", {x}, c.attrs)), g, zeros_like(g))};
}

std::vector<Op> number_unary_ops() {
  using A = const Array&;
  return {
      unary("neg", number1<kNeg>(), {"(-{0})", "(-{0})", "(0u - {0})"},
            times([](A x, A) { return scalar_like(x, -1); })),
      unary("abs", number1<kAbs>(), {"abs({0})", "abs({0})", "{0}"},
            times([](A x, A) { return call("sign", {x}); })),
      unary("sign", number1<kSign>(), {"sign({0})", "sign({0})", "min({0}, 1u)"}, kZero),
      unary("square", number1<kSquare>(), number_text("({0} * {0})"), times([](A x, A) { return x * 2.0; })),
      unary("clamp", number1<kClamp>(), {"weft_clamp({0}, {a}, {b})"}, clamp_gradient,
            {{"min", -std::numeric_limits<double>::infinity()},
             {"max", std::numeric_limits<double>::infinity()}}),
      test(unary("logical_not", test1<[](auto x) { return x == 0; }>(),
                 {"({0} == 0.0)", "({0} == 0)", "({0} == 0u)", "", "(!{0})"}, {})),
      test(unary("isnan", test1<[](auto x) { return x != x; }>(),
                 {"weft_isnan({0})", "false", "false", "", "false"}, {})),
      test(unary("isinf", test1<kIsInf>(), {"weft_isinf({0})", "false", "false", "", "false"}, {})),
  };
}

/// Gradient of a binary op from the two partial derivatives, each a function of (a, b, y). Halves are
/// differentiated in f32.
template <typename Da, typename Db>
Gradient partials(Da da, Db db) {
  return [da, db](const GradCall& c) -> std::vector<Array> {
    const Array a = widened(c.inputs[0]), b = widened(c.inputs[1]), g = widened(c.output_grads[0]);
    const Array y = is_half(c.inputs[0].dtype()) ? call(c.op.name, {a, b}) : c.outputs[0];
    return {unbroadcast(g * da(a, b, y), a.shape()), unbroadcast(g * db(a, b, y), b.shape())};
  };
}

std::vector<Op> binary_ops() {
  using A = const Array&;
  const auto one = [](A a, A, A) { return scalar_like(a, 1); };
  const auto chosen = [](std::string_view test, bool first) {  // 1 where chosen, half at a tie
    return [test, first](A a, A b, A) {
      const Array strict = as(call(test, first ? std::vector{a, b} : std::vector{b, a}), a.dtype());
      return strict + as(call("eq", {a, b}), a.dtype()) * 0.5;
    };
  };
  const auto base = [](A a, A b) {  // of a power; 0^0 has no slope, like 1^0
    const Array zeros = call("logical_and", {eq(a, scalar_like(a, 0)), eq(b, scalar_like(b, 0))});
    return where(zeros, scalar_like(a, 1), a);
  };
  const auto squares = [](A a, A b) {  // 1 instead of 0: the angle of nothing has no slope
    const Array sum = a * a + b * b;
    return where(eq(sum, scalar_like(sum, 0)), scalar_like(sum, 1), sum);
  };
  return {
      binary("add", number2<kAdd>(), number_text("({0} + {1})"), partials(one, one)),
      binary("sub", number2<kSub>(), number_text("({0} - {1})"),
             partials(one, [](A a, A, A) { return scalar_like(a, -1); })),
      binary("mul", number2<kMul>(), number_text("({0} * {1})"),
             partials([](A, A b, A) { return b; }, [](A a, A, A) { return a; })),
      binary("divide", float2<[](float a, float b) { return a / b; }>(), float_text("({0} / {1})"),
             partials([](A, A b, A) { return 1.0 / b; }, [](A, A b, A y) { return -(y / b); })),
      binary("pow", float2<[](float a, float b) { return std::pow(a, b); }>(),
             float_text("weft_pow({0}, {1})"),
             partials([=](A a, A b, A) { return b * call("pow", {base(a, b), b - 1.0}); },
                      [=](A a, A b, A y) {  // 0 for negative a
                        const Array x = base(a, b), negative = lt(x, scalar_like(x, 0));
                        return where(eq(y, scalar_like(y, 0)), zeros_like(y),
                                     y * log(where(negative, scalar_like(x, 1), x)));
                      })),
      binary("maximum", number2<kMaximum>(), {"weft_max({0}, {1})", "max({0}, {1})", "max({0}, {1})"},
             partials(chosen("gt", true), chosen("gt", false))),
      binary("minimum", number2<kMinimum>(), {"weft_min({0}, {1})", "min({0}, {1})", "min({0}, {1})"},
             partials(chosen("lt", true), chosen("lt", false))),
      binary("remainder", number2<kRemainder>(),
             {"weft_remainder({0}, {1})", "weft_remainder_i({0}, {1})", "({0} % {1})"},
             partials(one, [](A a, A b, A) { return -call("floor", {a / b}); })),
      binary("floor_divide", number2<kFloorDivide>(),
             {"floor({0} / {1})", "weft_floor_divide({0}, {1})", "({0} / {1})"}, {}),
      binary("atan2", float2<[](float a, float b) { return std::atan2(a, b); }>(),
             float_text("weft_atan2({0}, {1})"),
             partials([=](A a, A b, A) { return b / squares(a, b); },
                      [=](A a, A b, A) { return -(a / squares(a, b)); })),
      test(binary("eq", test2<[](auto a, auto b) { return a == b; }>(),
                  {"({0} == {1})", "({0} == {1})", "({0} == {1})", "", "({0} == {1})"}, {})),
      test(binary("ne", test2<[](auto a, auto b) { return a != b; }>(),
                  {"weft_ne({0}, {1})", "({0} != {1})", "({0} != {1})", "", "({0} != {1})"}, {})),
      test(binary("lt", test2<kLess>(), {"({0} < {1})", "({0} < {1})", "({0} < {1})", "", "(!{0} && {1})"},
                  {})),
      test(binary("le", test2<kLessEqual>(),
                  {"({0} <= {1})", "({0} <= {1})", "({0} <= {1})", "", "(!{0} || {1})"}, {})),
      test(binary("gt", test2<kGreater>(), {"({0} > {1})", "({0} > {1})", "({0} > {1})", "", "({0} && !{1})"},
                  {})),
      test(binary("ge", test2<kGreaterEqual>(),
                  {"({0} >= {1})", "({0} >= {1})", "({0} >= {1})", "", "({0} || !{1})"}, {})),
      binary("bitwise_and", bits2<[](auto a, auto b) { return a & b; }>(),
             {"", "({0} & {1})", "({0} & {1})", "", "({0} && {1})"}, {}),
      binary("bitwise_or", bits2<[](auto a, auto b) { return a | b; }>(),
             {"", "({0} | {1})", "({0} | {1})", "", "({0} || {1})"}, {}),
      binary("bitwise_xor", bits2<[](auto a, auto b) { return a ^ b; }>(),
             {"", "({0} ^ {1})", "({0} ^ {1})", "", "({0} != {1})"}, {}),
      binary("shift_left", words2<kShiftLeft>(), {"", "({0} << u32({1}))", "({0} << {1})"}, {}),
      binary("shift_right", words2<kShiftRight>(), {"", "({0} >> u32({1}))", "({0} >> {1})"}, {}),
  };
}

std::vector<Op> other_ops() {
  Op where{
      .name = "where", .kind = OpKind::elementwise, .min_inputs = 3, .max_inputs = 3, .promotes_from = 1};
  const Lanes select =
      float_lanes<select3<float>, select3<int32_t>, select3<uint32_t>, select3<int64_t>, select3<int32_t>>();
  where.scalar = {.arity = 3,
                  .cpu = select.functions,
                  .cpu_streamed = select.streamed,
                  .wgsl = {"select({2}, {1}, {0})", "select({2}, {1}, {0})", "select({2}, {1}, {0})", "",
                           "select({2}, {1}, {0})"}};
  where.infer = [](const OpCall& c) -> std::vector<OutputSpec> {
    if (c.inputs[0].dtype() != DType::boolean)
      fail(ErrorKind::invalid, "[where] the condition is {}, not bool", name_of(c.inputs[0].dtype()));
    return {{common_shape(c), c.inputs[1].dtype()}};
  };
  where.gradient = [](const GradCall& c) -> std::vector<Array> {
    const Array &g = c.output_grads[0], zero = zeros_like(g);
    return {Array(), unbroadcast(call("where", {c.inputs[0], g, zero}), c.inputs[1].shape()),
            unbroadcast(call("where", {c.inputs[0], zero, g}), c.inputs[2].shape())};
  };

  Op to_dtype{.name = "to_dtype", .kind = OpKind::elementwise, .attrs = {{"dtype", {}, true}}};
  to_dtype.infer = [](const OpCall& c) -> std::vector<OutputSpec> {
    return {{c.inputs[0].shape(), dtype_from_name(c.attrs.text("dtype"))}};
  };
  to_dtype.gradient = [](const GradCall& c) -> std::vector<Array> {
    if (!is_float(c.inputs[0].dtype()) || !is_float(c.outputs[0].dtype())) return {Array()};
    return {as(c.output_grads[0], c.inputs[0].dtype())};
  };

  Op constant{.name = "constant",
              .kind = OpKind::elementwise,
              .min_inputs = 0,
              .max_inputs = 0,
              .attrs = {{"value", {}, true}, {"dtype", {}, true}}};
  constant.scalar.arity = 0;
  constant.scalar_attrs = {"value"};
  constant.infer = [](const OpCall& c) -> std::vector<OutputSpec> {
    return {{{}, dtype_from_name(c.attrs.text("dtype"))}};
  };
  constant.gradient = [](const GradCall&) -> std::vector<Array> { return {}; };
  return {where, to_dtype, constant};
}

}  // namespace

Lane lane_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return Lane::f32;
    case DType::i32:
    case DType::i8:
      return Lane::i32;
    case DType::u32:
    case DType::u8:
      return Lane::u32;
    case DType::i64:
      return Lane::i64;
    case DType::boolean:
      break;
  }
  return Lane::boolean;
}

std::vector<Op> elementwise_ops() {
  std::vector<Op> all;
  for (auto family : {float_unary_ops, number_unary_ops, binary_ops, other_ops, composed_elementwise_ops})
    for (Op& op : family()) all.push_back(std::move(op));
  return all;
}

}  // namespace weft
