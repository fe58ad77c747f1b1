#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/// Plain x86-64 has vectors of 16 bytes. A loop that the compiler vectorises is compiled again for AVX2 and
/// AVX-512, and chosen at run time; other processors have their vectors in the baseline.
namespace weft::cpu {

#if defined(__x86_64__)
inline int vector_bytes() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return 64;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 32 : 16;
}
#endif

template <auto loop>
struct Wide;

template <typename... Args, void (*loop)(Args...)>
struct Wide<loop> {
#if defined(__x86_64__)
  [[gnu::target("avx2,fma"), gnu::flatten]] static void avx2(Args... args) { loop(args...); }
#if defined(__clang__)
  [[gnu::target("avx512f,avx512vl,avx512bw,avx512dq"), clang::min_vector_width(512), gnu::flatten]]
#else
  [[gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512"), gnu::flatten]]
#endif
  static void avx512(Args... args) {
    loop(args...);
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

inline constexpr int64_t kStrip = 16;  ///< floats: a line of the cache

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] inline void put_256(float* to, const float* strip) {
  for (int64_t i = 0; i < kStrip; i += 8) _mm256_stream_ps(to + i, _mm256_load_ps(strip + i));
}
[[gnu::target("avx512f")]] inline void put_512(float* to, const float* strip) {
  _mm512_stream_ps(to, _mm512_load_ps(strip));
}
#endif

/// A lane function (backend/elementwise.h) of floats whose results go past the caches, without a register in
/// between: strip by strip. A run has whole strips, and its result begins with one.
template <auto loop>
struct Streamed {
  using Function = void (*)(const void* const* inputs, void* out, int64_t n, const double* attrs);

#if defined(__x86_64__)
  template <void (*put)(float*, const float*)>
  static void strips(const void* const* inputs, void* out, int64_t n, const double* attrs) {
    alignas(64) float strip[kStrip];  // mostly in vectors
    for (int64_t i = 0; i < n; i += kStrip) {
      const void* at[3];
      for (size_t k = 0; k < 3; ++k) at[k] = static_cast<const float*>(inputs[k]) + i;
      loop(at, strip, kStrip, attrs);
      put(static_cast<float*>(out) + i, strip);
    }
  }
  /// Null where there are no such stores.
  static Function best() {
    constexpr Function kIn256 = strips<put_256>, kIn512 = strips<put_512>;
    if (vector_bytes() == 64) return Wide<kIn512>::avx512;
    return vector_bytes() == 32 ? Wide<kIn256>::avx2 : nullptr;
  }
#else
  static Function best() { return nullptr; }
#endif
};

/// Runs the fastest form of a loop: `wide<sum_floats>(x, n)`.
template <auto loop, typename... Args>
void wide(Args&&... args) {
  static const auto kBest = Wide<loop>::best();
  kBest(std::forward<Args>(args)...);
}

}  // namespace weft::cpu
