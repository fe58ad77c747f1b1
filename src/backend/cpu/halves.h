#pragma once

#include <cstdint>

/// Runs of f16 and bf16 to f32 and back, as the functions of array/half.h do it one by one.
namespace weft::cpu {

void halves_to_floats(const uint16_t* from, float* to, int64_t count);
void floats_to_halves(const float* from, uint16_t* to, int64_t count);
void bfloats_to_floats(const uint16_t* from, float* to, int64_t count);
void floats_to_bfloats(const float* from, uint16_t* to, int64_t count);

/// Rounds in place to what f16 or bf16 can hold.
void round_to_halves(float* values, int64_t count);
void round_to_bfloats(float* values, int64_t count);

}  // namespace weft::cpu
