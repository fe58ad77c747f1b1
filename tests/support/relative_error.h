#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

namespace weft::test {

/// The root of the mean square of what differs, as a share of `want`'s own.
inline double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  REQUIRE(got.size() == want.size());
  double differs = 0, all = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = got[i], b = want[i];
    differs += (a - b) * (a - b), all += b * b;
  }
  return std::sqrt(differs / all);
}

}  // namespace weft::test
