#pragma once

#include "quant/quant.h"

namespace weft::quant {

/// True for types that cannot be made without knowing which elements are important: iq1_s, iq2_xxs, iq2_xs.
bool needs_importance(Type type);

/// As encode(); `importance` has a number for each element of the row, or nothing. iq1_m, iq2_s and iq3_xxs
/// take it too, all other types are encoded without.
void encode(Type type, std::span<const float> row, std::span<std::byte> out,
            std::span<const float> importance);

}  // namespace weft::quant
