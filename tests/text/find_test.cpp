#include "text/find.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

using namespace weft;

TEST_SUITE("base: find") {
  TEST_CASE("texts are found where the standard library finds them") {
    std::mt19937 random(3);
    const auto text_of = [&](size_t most) {
      std::string text(random() % (most + 1), ' ');
      for (char& c : text) c = "ab"[random() % 2];
      return text;
    };
    for (int round = 0; round < 2000; ++round) {
      const std::string text = text_of(40), wanted = text_of(6);
      CAPTURE(text);
      CAPTURE(wanted);
      CHECK(find_text(text, wanted) == text.find(wanted));
      CHECK(rfind_text(text, wanted) == text.rfind(wanted));
      const size_t from = random() % 45;
      CHECK(find_text(text, wanted, from) == text.find(wanted, from));
    }
  }
}
