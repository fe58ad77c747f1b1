#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// Float functions without branches, tables or calls, so that compilers vectorise loops over them; at
/// most 2.5 units in the last place off (silu 3.5; tanh 5; gelu 3, below 0 10 and more where it vanishes),
/// and right for infinities, NaN and subnormals. The polynomials are near-minimax fits. Some have another
/// form for AVX-512 (backend/cpu/tabled.h).
namespace weft::math {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// c[0] + c[1] x + c[2] x^2 ...
template <typename... Rest>
inline float polynomial(float x, float c, Rest... rest) {
  if constexpr (sizeof...(rest) == 0)
    return c;
  else
    return c + x * polynomial(x, rest...);
}

inline float power_of_two(int32_t exponent) {  // -126 .. 127
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

/// x rounded to a whole number, |x| < 2^21. A float of this size has no bits left for a fraction; its last
/// bits are the number plus `offset`.
struct Rounded {
  explicit Rounded(float x, float offset = 0)
      : shifted(x + (kShift + offset)), value(shifted - (kShift + offset)) {}
  int32_t integer() const {  // of NaN: any, but no undefined conversion
    return static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kShift));
  }
  uint32_t exponent() const { return std::bit_cast<uint32_t>(shifted) << 23; }  // where a float has it
  float power() const { return std::bit_cast<float>(exponent()); }              // 2^(x + offset - 127)
  static constexpr float kShift = 0x1.8p23f;
  float shifted, value;
};

/// x = n ln 2 + r, |r| <= ln(2)/2. The first part of ln 2 has 9 bits: its product with n is exact.
inline float exp_rest(float x, float n) {
  return (x - n * 0.693359375f) + n * 2.12194440e-4f;
}

/// exp(r) - 1 for |r| <= ln(2)/2.
inline float expm1_rest(float r) {
  return r + r * r *
                 polynomial(r, 0.5f, 0.166666672f, 0.0416664667f, 0.00833328627f, 0.00139336498f,
                            0.000199075803f);
}

/// exp(r) for |r| <= ln(2)/2.
inline float exp_near_zero(float r) {
  return polynomial(r, 1.0f, 1.0f, 0.499999921f, 0.166664201f, 0.0416682261f, 0.00837482411f, 0.00138368396f);
}

/// p 2^n for p in 1/2 .. 2 and n from -150 on. `small`: n is below -100, where a product has to round.
inline float scale(float p, const Rounded& n, bool small) {
  const uint32_t bits = std::bit_cast<uint32_t>(p) + n.exponent();
  return small ? std::bit_cast<float>(bits + (32u << 23)) * 0x1p-32f : std::bit_cast<float>(bits);
}

/// Comparisons are written so that NaN passes.
inline float clamped(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

/// The same for a negative limit and all but NaN. Bits are compared: GCC makes three comparisons and three
/// blends of a clamp whose limit is a constant, and this is one instruction.
inline float at_least(float x, float low) {
  return std::bit_cast<float>(std::min(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(low)));
}

inline float exp(float x) {
  const float in_range = at_least(x, -104);  // less is 0
  const Rounded n(in_range * 1.44269504f);
  const float y = scale(exp_near_zero(exp_rest(in_range, n.value)), n, in_range < -80);
  return x < 88.722836f ? y : x + kInfinity;  // NaN too
}

inline float exp2(float x) {
  const float in_range = at_least(x, -151);
  const Rounded n(in_range);
  const float y = scale(exp_near_zero((in_range - n.value) * 0.693147181f), n, in_range < -115);
  return x < 128 ? y : x + kInfinity;
}

inline float expm1(float x) {
  const float in_range = clamped(x, -30, 89);
  const Rounded n(in_range * 1.44269504f);
  const float half = power_of_two(n.integer() - 1);  // 2^n would overflow before the result does
  const float y = (half * expm1_rest(exp_rest(in_range, n.value)) + (half - 0.5f)) * 2;
  return std::fabs(x) < 0x1p-25f ? x : y;  // -0 and subnormals
}

/// x = 2^exponent m with m in sqrt(1/2) .. sqrt(2), for finite x > 0.
struct Split {
  explicit Split(float x) {
    const bool tiny = x < std::numeric_limits<float>::min();
    const uint32_t bits = std::bit_cast<uint32_t>(tiny ? x * 0x1p25f : x);
    const int32_t whole = static_cast<int32_t>(bits - 0x3f3504f3) >> 23;
    mantissa = std::bit_cast<float>(bits - (static_cast<uint32_t>(whole) << 23));
    exponent = static_cast<float>(tiny ? whole - 25 : whole);
  }
  float exponent, mantissa;
};

/// log(1 + f) - f for 1 + f a mantissa of Split.
inline float log1p_rest(float f) {
  const float p = polynomial(f, 0.333333105f, -0.249999866f, 0.200021535f, -0.166691899f, 0.142198712f,
                             -0.123859115f, 0.118665323f, -0.117791221f, 0.0691609085f);
  return f * f * (f * p - 0.5f);
}

/// What a logarithm is outside of 0 < x < infinity; else y.
inline float log_result(float x, float y) {
  y = x == 0 ? -kInfinity : y;
  y = x < 0 ? kNaN : y;
  return x < kInfinity ? y : x;
}

inline float log(float x) {
  const Split s(x);
  const float f = s.mantissa - 1;
  return log_result(x, s.exponent * 0.693359375f + (f + (log1p_rest(f) - s.exponent * 2.12194440e-4f)));
}

inline float log2(float x) {
  const Split s(x);
  const float f = s.mantissa - 1;
  return log_result(x, s.exponent + (f + log1p_rest(f)) * 1.44269504f);
}

inline float log1p(float x) {
  const float u = 1 + x, lost = x - (u - 1);  // by rounding u; NaN for infinity
  const float y = log(u) + (u - 1 == x ? 0 : lost / u);
  return x == 0 ? x : y;  // -0
}

/// exp(-x) = power (1 + rest) for 0 <= x <= 87.
struct Decay {
  explicit Decay(float x) {
    const Rounded n(x * -1.44269504f, 127);
    const float r = exp_rest(-x, n.value);
    power = n.power();
    rest =
        r + r * r * polynomial(r, 0.499999981f, 0.166665062f, 0.0416671364f, 0.00836907572f, 0.00138888719f);
  }
  float less_than_one() const { return (1 - power) - power * rest; }  // 1 - exp(-x)
  float power, rest;
};

/// x P(x^2) / Q(x^2): a quotient of polynomials needs no exponent. Roundings alone may pass 1.
inline float tanh(float x) {
  const float square = x * x;
  const float p = polynomial(square, 1.0f, 0.133825796f, 0.00349732486f, 2.06334405e-05f, 1.33806307e-08f),
              q = polynomial(square, 1.0f, 0.46715901f, 0.0258838685f, 0.000328829161f, 7.78882669e-07f);
  const float y = std::fabs(x) * p / q;
  return std::copysign(std::fabs(x) > 9.02f || y > 1 ? 1.0f : y, x);
}

/// 2^64 exp(-|x|), so that only the product with 2^-64 rounds what is subnormal. Of NaN: any.
inline float scaled_decay(float x) {
  const float negative = -std::fabs(x);
  const Rounded n(negative * 1.44269504f, 64);
  const uint32_t bits = std::bit_cast<uint32_t>(exp_near_zero(exp_rest(negative, n.value))) + n.exponent();
  return std::bit_cast<float>(negative < -110 ? 0 : bits);
}

/// x sigmoid(y). NaN if x is.
inline float gated(float x, float y) {
  const float e = scaled_decay(y);
  return (y < 0 ? x * e * 0x1p-64f : x) / (1 + e * 0x1p-64f);
}

inline float sigmoid(float x) {
  const float y = gated(1, x);
  return x != x ? x : y;
}

inline float silu(float x) {
  return gated(x, x);
}

inline float softplus(float x) {
  return x > 20 ? x : log1p(exp(x));
}

/// 1 - exp(-w): w is smooth, and nearly a parabola.
inline float erf(float x) {
  const float size = std::fabs(x);
  const float w = size + size * polynomial(size, 0.128379172f, 0.636619382f, 0.102777831f, -0.0191530641f,
                                           -0.000160395574f, 0.0016670268f, -0.000632836414f, 0.000117641127f,
                                           -9.25624692e-06f);
  return std::copysign(size > 3.925f ? 1 : Decay(w).less_than_one(), x);
}

/// x times the part of a normal distribution below x: 1 - p, or p below 0. log2(p) is smooth, and splits into
/// an exponent and a rest without a product: 0.37 ns an element instead of 0.47 with erf.
inline float gelu(float x) {
  const float size = std::fabs(x);
  const float logarithm =
      polynomial(size, -1.0f, -1.15110718f, -0.459191948f, -0.052535926f, 0.00709734728f, -0.000134658481f,
                 -0.00020665364f, 5.18356317e-05f, -5.89924339e-06f, 2.75001946e-07f);
  const Rounded n(logarithm);
  const float power = polynomial(logarithm - n.value, 1.0f, 0.693147206f, 0.240226469f, 0.0555032871f,
                                 0.00961848924f, 0.00133999576f, 0.000153457889f);
  const float p = size > 7.5f ? 0 : scale(power, n, false);
  return x * (x < 0 ? p : 1 - p);
}

/// The same with an approximation of p that models were trained with: (1 + tanh(y)) / 2 = sigmoid(2 y).
inline float gelu_tanh(float x) {
  return gated(x, x * (1.59576912f + 0.0713548163f * x * x));
}

/// Beyond this sin and cos lose digits, and are asked of the C library.
inline constexpr float kMaxAngle = 1e5f;

/// sin(x + quarters pi/2) for |x| <= kMaxAngle. pi/2 in two parts: the product of n and the first is exact.
inline float sin_turned(float x, int32_t quarters) {
  const Rounded n(x * 0.636619772f);
  const double turns = n.value, near = static_cast<double>(x) - turns * 0x1.921fb544p+0;
  const auto r = static_cast<float>(near - turns * 0x1.0b4611a626331p-34);
  const float z = r * r;
  const float sine =
      r + r * z * polynomial(z, -0.166666672f, 0.00833332911f, -0.000198393347f, 2.71831141e-06f);
  const float cosine =
      1 - 0.5f * z + z * z * polynomial(z, 0.0416666679f, -0.00138888834f, 2.47995195e-05f, -2.72102341e-07f);
  const auto turn = static_cast<uint32_t>(n.integer() + quarters);
  const float y = (turn & 1) != 0 ? cosine : sine;
  return (turn & 2) != 0 ? -y : y;
}

}  // namespace weft::math
