#pragma once

#include <cstdint>

/// How far a processor reads ahead by itself, which it does not say: known by its maker and family.
namespace weft::cpu {

/// Whether it follows as many streams as a line has floats, so that it is best left alone: Intel's do (a
/// transposed copy of 4096 x 4096 floats runs at 97 % of a copy's speed on a Cascade Lake then, and at 49 to
/// 88 % otherwise), AMD's do not.
bool follows_many_streams();

/// Bytes of packed weights that are worth fetching ahead of a product; 0 where it reads them faster by
/// itself.
int64_t weights_ahead();

}  // namespace weft::cpu
