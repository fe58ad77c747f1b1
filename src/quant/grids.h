#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// The points of the iq1, iq2 and iq3 types: an index in a block picks 8 (or 4) elements at once. Elements
/// are digits: which of the 3 levels of iq1 and iq2, of the 8 of iq3.
namespace weft::quant {

template <size_t points, size_t elements>
using Grid = std::array<std::array<uint8_t, elements>, points>;

extern const Grid<256, 8> kGridIq2Xxs;
extern const Grid<512, 8> kGridIq2Xs;
extern const Grid<1024, 8> kGridIq2S;
extern const Grid<256, 4> kGridIq3Xxs;
extern const Grid<512, 4> kGridIq3S;
extern const Grid<2048, 8> kGridIq1;  ///< iq1_s and iq1_m

}  // namespace weft::quant
