#pragma once

#include <cstdint>

#include "array/math.h"
#include "backend/cpu/wide.h"
#include "backend/elementwise.h"

/// Functions of array/math.h that AVX-512 computes with tables: one instruction looks up 16 floats in a
/// register. Units in the last place off, at most: exp 1, erf 2.4, sigmoid 2.5, tanh 2.9, silu 3.2; gelu 1.4,
/// from -2 to -4 3.7, then more, and 0 below -7.25. Right for infinities, NaN and subnormals.
namespace weft::cpu {

/// A function of math.h with its tables in registers; there are those that gain by it.
template <auto f>
struct Tabled;

#if defined(__x86_64__)

/// Two vectors side by side: a processor finds work in one while the other waits. 3 to 13 % less time.
struct Pair {
  __m512 a, b;
};

[[gnu::target("avx512f,avx512dq")]] inline Pair all(float x) {
  return {_mm512_set1_ps(x), _mm512_set1_ps(x)};
}
[[gnu::target("avx512f,avx512dq")]] inline Pair operator+(Pair x, Pair y) {
  return {x.a + y.a, x.b + y.b};
}
[[gnu::target("avx512f,avx512dq")]] inline Pair operator-(Pair x, Pair y) {
  return {x.a - y.a, x.b - y.b};
}
[[gnu::target("avx512f,avx512dq")]] inline Pair operator*(Pair x, Pair y) {
  return {x.a * y.a, x.b * y.b};
}
[[gnu::target("avx512f,avx512dq")]] inline Pair operator/(Pair x, Pair y) {
  return {x.a / y.a, x.b / y.b};
}

/// x y + z, rounded once.
[[gnu::target("avx512f,avx512dq")]] inline Pair fma(Pair x, Pair y, Pair z) {
  return {_mm512_fmadd_ps(x.a, y.a, z.a), _mm512_fmadd_ps(x.b, y.b, z.b)};
}

/// If one is NaN, or both are zeros: y.
[[gnu::target("avx512f,avx512dq")]] inline Pair min(Pair x, Pair y) {
  return {_mm512_maskz_min_ps(kAll, x.a, y.a), _mm512_maskz_min_ps(kAll, x.b, y.b)};
}

/// The smaller one of |x| and |y|, without a sign or with that of x. If one is NaN: the other.
[[gnu::target("avx512f,avx512dq")]] inline Pair smaller(Pair x, Pair y) {
  return {_mm512_maskz_range_ps(kAll, x.a, y.a, 0b1010), _mm512_maskz_range_ps(kAll, x.b, y.b, 0b1010)};
}
[[gnu::target("avx512f,avx512dq")]] inline Pair smaller_signed(Pair x, Pair y) {
  return {_mm512_maskz_range_ps(kAll, x.a, y.a, 0b0010), _mm512_maskz_range_ps(kAll, x.b, y.b, 0b0010)};
}

/// max(x, 0); of -0: -0, of -infinity: NaN, as x sigmoid(x) is there. Each digit of `responses` says what
/// becomes of a class of floats: 1 nothing, 2 a quiet NaN, 3 NaN, 8 zero.
[[gnu::target("avx512f,avx512dq")]] inline Pair positive(Pair x) {
  const __m512i responses =
      _mm512_set1_epi32(0x18131122);  // > 0, < 0, +inf, -inf, 1, 0, signalling and quiet NaN
  return {_mm512_maskz_fixupimm_ps(kAll, x.a, x.a, responses, 0),
          _mm512_maskz_fixupimm_ps(kAll, x.b, x.b, responses, 0)};
}

[[gnu::target("avx512f,avx512dq")]] inline Pair abs(Pair x) {
  return {_mm512_abs_ps(x.a), _mm512_abs_ps(x.b)};
}

[[gnu::target("avx512f,avx512dq")]] inline __m512 with_sign_of(__m512 x, __m512 y) {
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(x), _mm512_castps_si512(y),
                                                       _mm512_set1_epi32(INT32_MIN), 0b11011000));
}
[[gnu::target("avx512f,avx512dq")]] inline Pair with_sign_of(Pair x, Pair y) {
  return {with_sign_of(x.a, y.a), with_sign_of(x.b, y.b)};
}

/// x 2^floor(y), also where that overflows or is subnormal.
[[gnu::target("avx512f,avx512dq")]] inline Pair scale(Pair x, Pair y) {
  return {_mm512_maskz_scalef_ps(kAll, x.a, y.a), _mm512_maskz_scalef_ps(kAll, x.b, y.b)};
}

/// What a table has at the whole numbers in the last bits of x.
[[gnu::target("avx512f,avx512dq")]] inline Pair look_up(__m512 table, Pair x) {
  return {_mm512_maskz_permutexvar_ps(kAll, _mm512_castps_si512(x.a), table),
          _mm512_maskz_permutexvar_ps(kAll, _mm512_castps_si512(x.b), table)};
}
[[gnu::target("avx512f,avx512dq")]] inline Pair look_up(__m512 low, __m512 high, Pair x) {
  return {_mm512_permutex2var_ps(low, _mm512_castps_si512(x.a), high),
          _mm512_permutex2var_ps(low, _mm512_castps_si512(x.b), high)};
}

/// exp(x) = mantissa 2^floor(exponent).
struct Power {
  Pair mantissa, exponent;
};

/// exp(sign x), in steps of 2^(1/16). `exact`: what the table's floats leave out is added, 0.65 units off and
/// not 1.
template <int sign, bool exact = false>
struct Exponential {
  [[gnu::target("avx512f,avx512dq")]] Exponential()
      : powers(_mm512_load_ps(kPowers)), rests(_mm512_load_ps(kRests)) {}

  /// Of any x: that it is too large says the exponent, and NaN stays there.
  [[gnu::target("avx512f,avx512dq")]] Power operator()(Pair x) const {
    const Pair shift = all(0x1.8p19f);  // its last bits are sixteenths
    const Pair shifted = fma(x, all(sign * 1.44269504f), shift), n = shifted - shift;
    const Pair wide = fma(n, all(sign * 2.12194440e-4f), fma(n, all(sign * -0.693359375f), x));
    const Pair r = smaller_signed(wide, all(0.0218f)), power = look_up(powers, shifted);
    const Pair p = fma(r, fma(r, all(sign * 0.166667186f), all(0.50001619f)), all(sign));
    if constexpr (exact) return {power + fma(r * power, p, look_up(rests, shifted)), n};
    return {fma(r * power, p, power), n};
  }

  alignas(64) static constexpr float kPowers[] = {
      1.0f,        1.04427373f, 1.09050775f, 1.13878858f, 1.18920708f, 1.24185777f, 1.29683959f, 1.35425556f,
      1.41421354f, 1.47682619f, 1.54221082f, 1.61049032f, 1.68179286f, 1.75625217f, 1.8340081f,  1.91520655f};
  alignas(64) static constexpr float kRests[] = {0.0f,         4.8335e-08f,  -1.3078e-08f, 5.3862e-08f,
                                                 3.7976e-08f,  4.4968e-08f,  -4.019e-08f,  -1.0123e-08f,
                                                 2.4203e-08f,  -4.5009e-08f, 8.0709e-09f,  9.8362e-09f,
                                                 -2.4755e-08f, -9.2358e-09f, -1.1239e-08f, 9.8453e-09f};
  __m512 powers, rests;
};

template <>
struct Tabled<math::exp> {
  [[gnu::target("avx512f,avx512dq")]] Tabled() {}
  [[gnu::target("avx512f,avx512dq")]] Pair operator()(Pair x) const {
    const Power y = exponential(x);
    return scale(y.mantissa, y.exponent);
  }
  Exponential<1> exponential;
};

template <>
struct Tabled<math::sigmoid> {
  [[gnu::target("avx512f,avx512dq")]] Tabled() {}
  [[gnu::target("avx512f,avx512dq")]] Pair operator()(Pair x) const {
    const Power power = exponential(x);
    const Pair e = scale(power.mantissa, min(all(64), power.exponent));
    return e / (e + all(1));
  }
  Exponential<1, true> exponential;
};

/// x sigmoid(y) = x / (1 + exp(-y)).
struct Gate {
  [[gnu::target("avx512f,avx512dq")]] Gate() {}
  [[gnu::target("avx512f,avx512dq")]] Pair operator()(Pair x, Pair y) const {
    const Power e = exponential(y);
    const Pair gated = x / (scale(e.mantissa, e.exponent) + all(1));
    const __mmask16 a = _mm512_cmp_ps_mask(y.a, _mm512_set1_ps(-64), _CMP_LT_OQ),
                    b = _mm512_cmp_ps_mask(y.b, _mm512_set1_ps(-64), _CMP_LT_OQ);
    if (_kortestz_mask16_u8(a, b)) [[likely]]
      return gated;
    // exp(-y) may be infinite before x / exp(-y) is 0.
    const Pair scaled = scale(e.mantissa, e.exponent - all(32)), small = x * all(0x1p-32f);
    return {_mm512_mask_div_ps(gated.a, a, small.a, scaled.a),
            _mm512_mask_div_ps(gated.b, b, small.b, scaled.b)};
  }
  Exponential<-1> exponential;
};

template <>
struct Tabled<math::silu> {
  [[gnu::target("avx512f,avx512dq")]] Tabled() {}
  [[gnu::target("avx512f,avx512dq")]] Pair operator()(Pair x) const { return gate(x, x); }
  Gate gate;
};

template <>
struct Tabled<math::gelu_tanh> {
  [[gnu::target("avx512f,avx512dq")]] Tabled() {}
  [[gnu::target("avx512f,avx512dq")]] Pair operator()(Pair x) const {
    return gate(x, x * fma(x * all(0.0713548163f), x, all(1.59576912f)));
  }
  Gate gate;
};

/// tanh(c + t) = (tanh(c) + tanh(t)) / (1 + tanh(c) tanh(t)), with tanh(c) from a table. The step is one
/// whose first three multiples have tangents that are almost floats.
template <>
struct Tabled<math::tanh> {
  [[gnu::target("avx512f,avx512dq")]] Tabled()
      : low(_mm512_load_ps(kTangents)), high(_mm512_load_ps(kTangents + 16)) {}
  [[gnu::target("avx512f,avx512dq")]] Pair operator()(Pair x) const {
    const Pair size = min(all(9.2f), abs(x)), shift = all(0x1.8p23f);
    const Pair shifted = fma(size, all(1 / kStep), shift), t = fma(shifted - shift, all(-kStep), size);
    const Pair square = t * t, p = fma(square, all(0.131711722f), all(-0.333322433f));
    const Pair near = fma(t * square, p, t), step = look_up(low, high, shifted);
    return with_sign_of((step + near) / fma(step, near, all(1)), x);
  }
  static constexpr float kStep = 0.295200557f;
  alignas(64) static constexpr float kTangents[] = {
      0.0f,         0.286914349f, 0.530184031f, 0.709214509f, 0.82770443f,  0.900716364f, 0.943741143f,
      0.968430758f, 0.982383311f, 0.990200043f, 0.994557917f, 0.996980846f, 0.998325944f, 0.999072075f,
      0.999485731f, 0.999714971f, 0.999842048f, 0.9999125f,   0.999951482f, 0.999973118f, 0.999985099f,
      0.999991775f, 0.99999541f,  0.999997497f, 0.999998569f, 0.999999225f, 0.999999583f, 0.999999762f,
      0.999999881f, 0.99999994f,  0.99999994f,  1.0f};
  __m512 low, high;
};

/// A polynomial for each of 16 pieces, whose middles are at 0, 1 ... 15 times a width; near-minimax fits.
template <size_t degree>
struct Pieces {
  [[gnu::target("avx512f,avx512dq")]] explicit Pieces(const float (&from)[degree + 1][16]) {
    for (size_t d = 0; d <= degree; ++d) tables[d] = _mm512_load_ps(from[d]);
  }

  /// For a width that is a power of two, and 0 <= x < 15.5 widths.
  [[gnu::target("avx512f,avx512dq")]] Pair operator()(Pair x, float width) const {
    const Pair shift = all(0x1.8p23f * width), shifted = x + shift;
    Pair coefficients[degree + 1];
    for (size_t d = degree + 1; d-- > 0;) {  // before all products: gelu takes 0.19 instead of 0.21 ns
      coefficients[d] = look_up(tables[d], shifted);
      asm("" : "+v"(coefficients[d].a), "+v"(coefficients[d].b));
    }
    const Pair t = x - (shifted - shift);
    Pair y = coefficients[degree];
    for (size_t d = degree; d-- > 0;) y = fma(y, t, coefficients[d]);
    return y;
  }

  __m512 tables[degree + 1];
};

template <>
struct Tabled<math::erf> {
  [[gnu::target("avx512f,avx512dq")]] Tabled() : pieces(kPieces) {}
  [[gnu::target("avx512f,avx512dq")]] Pair operator()(Pair x) const {
    return with_sign_of(pieces(min(all(3.87f), abs(x)), 0.25f), x);
  }
  alignas(64) static constexpr float kPieces[6][16] = {
      {0.0f, 0.276326388f, 0.520499885f, 0.711155653f, 0.842700779f, 0.92290014f, 0.966105163f, 0.986671686f,
       0.995322287f, 0.998537302f, 0.999593019f, 0.999899387f, 0.999977887f, 0.999995708f, 0.999999285f,
       0.999999881f},
      {1.12837923f, 1.06001425f, 0.87878263f, 0.642931104f, 0.415107518f, 0.236521125f, 0.118930288f,
       0.0527749918f, 0.020666983f, 0.00714231841f, 0.00217828457f, 0.000586277689f, 0.00013925333f,
       2.91891483e-05f, 5.39946859e-06f, 1.12e-06f},
      {-1.12861317e-05f, -0.264998108f, -0.43938446f, -0.482194632f, -0.415108114f, -0.295654297f,
       -0.178398088f, -0.092357479f, -0.0413340367f, -0.016069822f, -0.00544532714f, -0.00161203463f,
       -0.000417657371f, -9.48278757e-05f, -1.88872054e-05f, -3.30268722e-06f},
      {-0.375708787f, -0.309191197f, -0.146478385f, 0.0267797261f, 0.138365179f, 0.167535573f, 0.138753727f,
       0.0901591107f, 0.0482239127f, 0.0217247475f, 0.00834993366f, 0.00276020193f, 0.000788987265f,
       0.000195760193f, 4.22785051e-05f, 7.96484346e-06f},
      {-0.00508965411f, 0.126042277f, 0.181912526f, 0.150058642f, 0.0692901313f, -0.00566246593f,
       -0.0441468768f, -0.0478918664f, -0.0344337821f, -0.0191510115f, -0.00868784729f, -0.00329699251f,
       -0.00106175209f, -0.000292780256f, -6.95544659e-05f, -1.42976769e-05f},
      {0.132102022f, 0.0808316842f, 0.00815974362f, -0.0524769872f, -0.0687321275f, -0.0471098833f,
       -0.0150321452f, 0.00643181289f, 0.0129848504f, 0.0106366482f, 0.00613417476f, 0.00277595571f,
       0.00102876336f, 0.000319127808f, 8.39456261e-05f, 1.88838949e-05f}};
  Pieces<5> pieces;
};

/// max(x, 0) less a hill that is the same on both sides.
template <>
struct Tabled<math::gelu> {
  [[gnu::target("avx512f,avx512dq")]] Tabled() : pieces(kPieces) {}
  [[gnu::target("avx512f,avx512dq")]] Pair operator()(Pair x) const {
    const Pair hill = pieces(smaller(x, all(7.7f)), 0.5f);
    return positive(x) - hill;
  }
  alignas(64) static constexpr float kPieces[7][16] = {
      {0.0f, 0.154268771f, 0.158655256f, 0.100210801f, 0.0455002636f, 0.0155241629f, 0.0040496937f,
       0.000814201718f, 0.000126684987f, 1.52895464e-05f, 1.43326372e-06f, 1.04443714e-07f, 5.91966831e-09f,
       2.61052596e-10f, 8.95947986e-12f, 0.0f},
      {0.5f, 0.13250497f, -0.0833154395f, -0.127469227f, -0.0852318257f, -0.0376110822f, -0.0119456388f,
       -0.00282175816f, -0.000503649993f, -6.8529509e-05f, -7.14704629e-06f, -5.7336365e-07f,
       -3.54704284e-08f, -1.69517256e-09f, -6.26689048e-11f, 0.0f},
      {-0.398942232f, -0.308057368f, -0.120985404f, 0.0161895435f, 0.0539908595f, 0.0372476801f,
       0.0155115351f, 0.00447251741f, 0.000936805853f, 0.00014584609f, 1.70954208e-05f, 1.52086318e-06f,
       1.03242158e-07f, 5.36810818e-09f, 2.14379028e-10f, 0.0f},
      {-1.56377337e-06f, 0.110009283f, 0.120981075f, 0.0566689037f, 3.69218537e-06f, -0.0164331943f,
       -0.0110807503f, -0.00420011254f, -0.00107059022f, -0.000194743901f, -2.59996523e-05f, -2.5882623e-06f,
       -1.9404861e-07f, -1.1030723e-08f, -4.77731854e-10f, 0.0f},
      {0.0665146858f, 0.0339313261f, -0.0201604869f, -0.0360822044f, -0.017993167f, -0.000504311349f,
       0.00405975338f, 0.00248327688f, 0.000825565599f, 0.000181598283f, 2.82029323e-05f, 3.18958359e-06f,
       2.6736717e-07f, 1.680006e-08f, 7.9744189e-10f, 0.0f},
      {-0.000163153207f, -0.0221092533f, -0.0159946773f, 0.002571363f, 0.00887829065f, 0.00428234274f,
       3.82316612e-05f, -0.000836749212f, -0.000439090363f, -0.000125195453f, -2.34749987e-05f,
       -3.08896574e-06f, -2.94364241e-07f, -2.0687855e-08f, -1.08483766e-09f, 0.0f},
      {-0.00954531133f, -0.00312631205f, 0.00594499195f, 0.00478244526f, -0.000465655554f, -0.00191234646f,
       -0.000748904829f, 5.67363422e-05f, 0.00014454771f, 5.88512594e-05f, 1.35083219e-05f, 2.04751632e-06f,
       2.17384084e-07f, 1.66573013e-08f, 9.37786293e-10f, 0.0f}};
  Pieces<6> pieces;
};

/// A lane function (backend/elementwise.h).
template <auto f>
[[gnu::target("avx512f,avx512dq")]] void map_tabled(const void* const* in, void* out, int64_t n,
                                                    const double*) {
  const Tabled<f> function;
  const auto* x = static_cast<const float*>(in[0]);
  auto* y = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const Pair result = function({_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + 16)});
    _mm512_storeu_ps(y + i, result.a);
    _mm512_storeu_ps(y + i + 16, result.b);
  }
  if (i == n) return;
  const uint32_t rest = (1u << (n - i)) - 1;
  const auto a = static_cast<__mmask16>(rest), b = static_cast<__mmask16>(rest >> 16);
  const Pair result = function({_mm512_maskz_loadu_ps(a, x + i), _mm512_maskz_loadu_ps(b, x + i + 16)});
  _mm512_mask_storeu_ps(y + i, a, result.a);
  _mm512_mask_storeu_ps(y + i + 16, b, result.b);
}

#endif

/// The lane function for AVX-512: `loop`, unless there are tables for f.
template <auto f>
constexpr LaneFunction with_tables(LaneFunction loop) {
#if defined(__x86_64__)
  if constexpr (requires { sizeof(Tabled<f>); }) return map_tabled<f>;
#endif
  return loop;
}

}  // namespace weft::cpu
