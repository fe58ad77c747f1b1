#include "base/awake.h"

#include <doctest/doctest.h>

using weft::Awake;

TEST_SUITE("base: awake") {
  TEST_CASE("threads come and go, however often they are wanted") {
    {
      const Awake never;
    }
    Awake awake;
    for (int i = 0; i < 100; ++i) const Awake::While turning(awake);
    const Awake::While until_the_end(awake);
  }
}
