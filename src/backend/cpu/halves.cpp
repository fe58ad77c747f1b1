#include "backend/cpu/halves.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "array/half.h"
#include "backend/cpu/wide.h"

namespace weft::cpu {
namespace {

template <typename From, typename To, To (*convert)(From)>
void map(const From* from, To* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = convert(from[i]);
}

template <float (*convert)(float)>
void update(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = convert(values[i]);
}

float rounded_to_half(float x) {
  return half_to_float(float_to_half(x));
}
float rounded_to_bfloat(float x) {
  return bfloat_to_float(float_to_bfloat(x));
}

#if defined(__x86_64__)
// Compilers do not find the processor's own conversions: 5 times as fast as shifting bits.

bool has_f16c() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has;
}

[[gnu::target("avx2,f16c")]] __m256 load_halves(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
[[gnu::target("avx2,f16c")]] __m128i to_halves(const float* from) {
  return _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
}

// Each returns how many elements it has done: whole vectors.

[[gnu::target("avx2,f16c")]] int64_t read_vectors(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(to + i, load_halves(from + i));
  return i;
}

[[gnu::target("avx2,f16c")]] int64_t write_vectors(const float* from, uint16_t* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), to_halves(from + i));
  return i;
}

[[gnu::target("avx2,f16c")]] int64_t round_vectors(float* values, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(values + i, _mm256_cvtph_ps(to_halves(values + i)));
  return i;
}
#else
constexpr bool has_f16c() {
  return false;
}
int64_t read_vectors(const uint16_t*, float*, int64_t) {
  return 0;
}
int64_t write_vectors(const float*, uint16_t*, int64_t) {
  return 0;
}
int64_t round_vectors(float*, int64_t) {
  return 0;
}
#endif

}  // namespace

void halves_to_floats(const uint16_t* from, float* to, int64_t count) {
  const int64_t done = has_f16c() ? read_vectors(from, to, count) : 0;
  map<uint16_t, float, half_to_float>(from + done, to + done, count - done);
}

void floats_to_halves(const float* from, uint16_t* to, int64_t count) {
  const int64_t done = has_f16c() ? write_vectors(from, to, count) : 0;
  map<float, uint16_t, float_to_half>(from + done, to + done, count - done);
}

void round_to_halves(float* values, int64_t count) {
  const int64_t done = has_f16c() ? round_vectors(values, count) : 0;
  update<rounded_to_half>(values + done, count - done);
}

void bfloats_to_floats(const uint16_t* from, float* to, int64_t count) {
  wide<map<uint16_t, float, bfloat_to_float>>(from, to, count);
}

void floats_to_bfloats(const float* from, uint16_t* to, int64_t count) {
  wide<map<float, uint16_t, float_to_bfloat>>(from, to, count);
}

void round_to_bfloats(float* values, int64_t count) {
  wide<update<rounded_to_bfloat>>(values, count);
}

}  // namespace weft::cpu
