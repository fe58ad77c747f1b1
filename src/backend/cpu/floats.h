// How operands of the three float types come from memory as f32, for the files that are compiled for each
// target.

// Per target, as Highway's own headers: included again while the guard differs from the toggle.
#if defined(WEFT_CPU_FLOATS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_CPU_FLOATS_H
#undef WEFT_CPU_FLOATS_H
#else
#define WEFT_CPU_FLOATS_H
#endif

#include <hwy/highway.h>

#include <cstring>

#include "array/half.h"
#include "backend/cpu/gemm_target.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hwy::bfloat16_t* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), from));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hwy::float16_t* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), from));
#else  // Highway 1.0.3 emulates without infinities and NaN
  const hn::RebindToUnsigned<D> words;
  const auto bits =
      hn::PromoteTo(words, hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from)));
  const auto rest = hn::And(bits, hn::Set(words, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(words, 0x8000u)));
  // The multiplication moves the exponent and makes subnormals normal; exact.
  const auto finite = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(rest)), hn::Set(d, 0x1p112f));
  const auto special =
      hn::Gt(hn::BitCast(hn::RebindToSigned<D>(), rest), hn::Set(hn::RebindToSigned<D>(), 0x7bff));
  const auto exponent = hn::IfThenElseZero(hn::RebindMask(words, special), hn::Set(words, 0x7f800000u));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(words, finite), exponent), sign));
#endif
}

HWY_INLINE float load_one(const float* from) {
  return *from;
}
HWY_INLINE float load_one(const hwy::bfloat16_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bfloat_to_float(bits);
}
HWY_INLINE float load_one(const hwy::float16_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return half_to_float(bits);
}

/// body(typed pointer) for the three float types.
template <typename Body>
HWY_INLINE void with_type(const Strip& strip, const Body& body) {
  switch (strip.dtype) {
    case DType::f16:
      return body(reinterpret_cast<const hwy::float16_t*>(strip.data));
    case DType::bf16:
      return body(reinterpret_cast<const hwy::bfloat16_t*>(strip.data));
    default:
      return body(reinterpret_cast<const float*>(strip.data));
  }
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
