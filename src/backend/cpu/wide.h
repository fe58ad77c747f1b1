#pragma once

#include <utility>

/// Plain x86-64 has vectors of 16 bytes. A loop that the compiler vectorises is compiled again for AVX2 and
/// AVX-512, and chosen at run time; other processors have their vectors in the baseline.
namespace weft::cpu {

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
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
      return &avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : loop;
  }
#else
  static auto best() { return loop; }
#endif
};

/// Runs the fastest form of a loop: `wide<sum_floats>(x, n)`.
template <auto loop, typename... Args>
void wide(Args&&... args) {
  static const auto kBest = Wide<loop>::best();
  kBest(std::forward<Args>(args)...);
}

}  // namespace weft::cpu
