#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// Float functions without branches, tables or calls, so that compilers vectorise loops over them; at
/// most 2.5 units in the last place off, and right for infinities, NaN and subnormals. The polynomials are
/// near-minimax fits.
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

/// x rounded to a whole number, |x| < 2^21. A float of this size has no bits left for a fraction.
struct Rounded {
  explicit Rounded(float x) : shifted(x + kShift), value(shifted - kShift) {}
  int32_t integer() const {  // of NaN: any, but no undefined conversion
    return static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kShift));
  }
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

/// x 2^n in two steps: either alone would leave the range of a float.
inline float scale(float x, int32_t n) {
  return x * power_of_two(n >> 1) * power_of_two(n - (n >> 1));
}

/// Comparisons are written so that NaN passes.
inline float clamped(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

inline float exp(float x) {
  const float in_range = clamped(x, -104, 89);  // beyond: 0 and infinity
  const Rounded n(in_range * 1.44269504f);
  return scale(1 + expm1_rest(exp_rest(in_range, n.value)), n.integer());
}

inline float exp2(float x) {
  const float in_range = clamped(x, -151, 129);
  const Rounded n(in_range);
  return scale(1 + expm1_rest((in_range - n.value) * 0.693147181f), n.integer());
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

inline float tanh(float x) {
  const float size = std::fabs(x), z = x * x;
  const float small =
      size +
      size * z * polynomial(z, -0.333332837f, 0.133314908f, -0.0537434965f, 0.0206505787f, -0.00571703678f);
  const float large = 1 - 2 / (exp(2 * size) + 1);
  return std::copysign(size < 0.625f ? small : large, x);
}

inline float sigmoid(float x) {
  const float e = exp(-std::fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

inline float softplus(float x) {
  return x > 20 ? x : log1p(exp(x));
}

inline float erf(float x) {
  const float size = std::fabs(x), t = clamped(size, 0, 4), z = t * t;
  const float small = size + size * polynomial(z, 0.128379107f, -0.37612626f, 0.112836003f, -0.0268544443f,
                                               0.00518953521f, -0.000802084105f, 7.8891193e-05f);
  const float large = 1 - exp(-polynomial(t, -0.00018344415f, 1.12955678f, 0.633262634f, 0.10837248f,
                                          -0.025178967f, 0.00419361098f, -0.00043910637f, 2.14961128e-05f));
  return std::copysign(size < 1 ? small : large, x);
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
