#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "array/half.h"

/// Plain x86-64 has vectors of 16 bytes. A loop that the compiler vectorises is compiled again for AVX2 and
/// AVX-512, and chosen at run time; other processors have their vectors in the baseline.
namespace weft::cpu {

#if defined(__x86_64__)
inline int vector_bytes() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return 64;
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has_avx2 && __builtin_cpu_supports("f16c") ? 32 : 16;
}
#endif

/// `in_512`: the form of the loop that is compiled for AVX-512.
template <auto loop, auto in_512 = loop>
struct Wide;

template <typename... Args, void (*loop)(Args...), void (*in_512)(Args...)>
struct Wide<loop, in_512> {
#if defined(__x86_64__)
  [[gnu::target("avx2,fma,f16c"), gnu::flatten]] static void avx2(Args... args) { loop(args...); }
#if defined(__clang__)
  [[gnu::target("avx512f,avx512vl,avx512bw,avx512dq"), clang::min_vector_width(512), gnu::flatten]]
#else
  [[gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512"), gnu::flatten]]
#endif
  static void avx512(Args... args) {
    in_512(args...);
  }
  /// The form for this processor.
  static auto best() {
    if (vector_bytes() == 64) return &avx512;
    return vector_bytes() == 32 ? &avx2 : loop;
  }
#else
  static auto best() { return loop; }
#endif
};

inline constexpr int64_t kStrip = 16;  ///< elements: a line of the cache, or half of one

#if defined(__x86_64__)
/// How a strip of each type comes from memory as floats, and goes past the caches. Floats are read where they
/// lie.
struct Floats {
  using Element = float;
  static const float* load_256(const float* from, float*) { return from; }
  static const float* load_512(const float* from, float*) { return from; }
  [[gnu::target("avx2,fma,f16c")]] static void put_256(float* to, const float* strip) {
    for (int64_t i = 0; i < kStrip; i += 8) _mm256_stream_ps(to + i, _mm256_load_ps(strip + i));
  }
  [[gnu::target("avx512f")]] static void put_512(float* to, const float* strip) {
    _mm512_stream_ps(to, _mm512_load_ps(strip));
  }
};

inline constexpr __mmask16 kAll = 0xffff;  // GCC 12 warns of its own forms without a mask

struct Halves {
  using Element = uint16_t;
  [[gnu::target("avx2,fma,f16c")]] static const float* load_256(const uint16_t* from, float* strip) {
    const auto* vectors = reinterpret_cast<const __m128i*>(from);
    _mm256_store_ps(strip, _mm256_cvtph_ps(_mm_loadu_si128(vectors)));
    _mm256_store_ps(strip + 8, _mm256_cvtph_ps(_mm_loadu_si128(vectors + 1)));
    return strip;
  }
  [[gnu::target("avx512f")]] static const float* load_512(const uint16_t* from, float* strip) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    _mm512_store_ps(strip, _mm512_maskz_cvtph_ps(kAll, halves));
    return strip;
  }
  [[gnu::target("avx2,fma,f16c")]] static void put_256(uint16_t* to, const float* strip) {
    const __m128i low = _mm256_cvtps_ph(_mm256_load_ps(strip), _MM_FROUND_TO_NEAREST_INT),
                  high = _mm256_cvtps_ph(_mm256_load_ps(strip + 8), _MM_FROUND_TO_NEAREST_INT);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), _mm256_set_m128i(high, low));
  }
  [[gnu::target("avx512f")]] static void put_512(uint16_t* to, const float* strip) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_maskz_cvtps_ph(kAll, _mm512_load_ps(strip), _MM_FROUND_TO_NEAREST_INT));
  }
};

struct Bfloats {
  using Element = uint16_t;
  static const float* load_256(const uint16_t* from, float* strip) {
    for (int64_t i = 0; i < kStrip; ++i) strip[i] = bfloat_to_float(from[i]);
    return strip;
  }
  static constexpr auto load_512 = load_256;
  // As float_to_bfloat, of whose branch GCC makes 16 when the loop is this short.
  [[gnu::target("avx2,fma,f16c")]] static void put_256(uint16_t* to, const float* strip) {
    __m256i words[2];
    for (int64_t k = 0; k < 2; ++k) {
      const __m256 x = _mm256_load_ps(strip + 8 * k);
      const __m256i bits = _mm256_castps_si256(x);
      const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
      const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
      words[k] = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    }
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words[0], words[1]), 0b11011000);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), packed);
  }
  [[gnu::target("avx512f")]] static void put_512(uint16_t* to, const float* strip) {
    const __m512 x = _mm512_load_ps(strip);
    const __m512i bits = _mm512_castps_si512(x);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i odd = _mm512_and_si512(_mm512_maskz_srli_epi32(kAll, bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_maskz_cvtepi32_epi16(kAll, _mm512_maskz_srli_epi32(kAll, quiet, 16)));
  }
};
#endif

/// A lane function (backend/elementwise.h) of floats whose operands are in memory and whose results go past
/// the caches, without a register in between: strip by strip, or by two strips where there is a form for
/// AVX-512. A run has whole strips, and its result begins with a line.
template <auto loop, auto in_512 = loop>
struct Streamed {
  using Function = void (*)(const void* const* inputs, void* out, int64_t n, const double* attrs);

#if defined(__x86_64__)
  template <auto form, typename Element, auto load, auto put, int64_t length>
  static void strip(const void* const* inputs, void* out, int64_t i, const double* attrs) {
    alignas(64) float operands[3][length], results[length];  // mostly in vectors
    const void* at[3];
    for (size_t k = 0; k < 3; ++k) {
      const auto* from = static_cast<const Element*>(inputs[k]) + i;
      at[k] = load(from, operands[k]);
      for (int64_t j = kStrip; j < length; j += kStrip) load(from + j, operands[k] + j);
    }
    form(at, results, length, attrs);
    for (int64_t j = 0; j < length; j += kStrip) put(static_cast<Element*>(out) + i + j, results + j);
  }
  template <auto form, typename Element, auto load, auto put>
  static void strips(const void* const* inputs, void* out, int64_t n, const double* attrs) {
    constexpr int64_t length = form == loop ? kStrip : 2 * kStrip;
    int64_t i = 0;
    for (; i + length <= n; i += length) strip<form, Element, load, put, length>(inputs, out, i, attrs);
    if constexpr (length > kStrip)
      if (i < n) strip<form, Element, load, put, kStrip>(inputs, out, i, attrs);
  }
  /// Of elements in memory as `Memory` says. Null where there are no such stores.
  template <typename Memory>
  static Function best() {
    using Element = typename Memory::Element;
    constexpr Function kIn256 = strips<loop, Element, Memory::load_256, Memory::put_256>,
                       kIn512 = strips<in_512, Element, Memory::load_512, Memory::put_512>;
    if (vector_bytes() == 64) return Wide<kIn512>::avx512;
    return vector_bytes() == 32 ? Wide<kIn256>::avx2 : nullptr;
  }
  /// f32, f16 and bf16.
  static std::array<Function, 3> all() { return {best<Floats>(), best<Halves>(), best<Bfloats>()}; }
#else
  static std::array<Function, 3> all() { return {}; }
#endif
};

/// Runs the fastest form of a loop: `wide<sum_floats>(x, n)`.
template <auto loop, typename... Args>
void wide(Args&&... args) {
  static const auto kBest = Wide<loop>::best();
  kBest(std::forward<Args>(args)...);
}

}  // namespace weft::cpu
