// Choosing the fastest way to run a kernel, without a GPU.
#include "backend/webgpu/tuning.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace weft;
using namespace weft::webgpu;

namespace {

const Question kQuestion{.key = "product 1 x 64", .usual = {64, 1}, .possible = [](const Way& way) {
                           return way[0] <= 1024 && way[1] <= 8;
                         }};

}  // namespace

TEST_SUITE("base: tuning") {
  TEST_CASE("the fastest way is found by doubling and halving") {
    Climb climb(kQuestion);
    size_t trials = 0;
    const auto seconds = [&](const Way& w) {
      ++trials;
      CHECK(kQuestion.possible(w));
      return 1 + std::abs(std::log2(static_cast<double>(w[0]) / 512)) +
             std::abs(std::log2(static_cast<double>(w[1]) / 4));
    };
    for (std::vector<Way> ways = climb.round(); !ways.empty(); ways = climb.round()) {
      CHECK(ways[0] == climb.best());
      std::vector<double> times;
      for (const Way& way : ways) times.push_back(seconds(way));
      climb.timed(times);
    }
    CHECK(climb.best() == Way{512, 4});
    CHECK(trials < 35);
  }

  TEST_CASE("what is not faster by more than its noise is not chosen") {
    Climb climb(kQuestion);
    std::vector<double> times(climb.round().size(), 0.995);
    times[0] = 1;
    climb.timed(times);
    CHECK(climb.best() == kQuestion.usual);
    CHECK(climb.round().empty());
  }

  TEST_CASE("what pays only together with its opposite is found") {
    const Question question{.key = "product", .usual = {32, 4}, .possible = [](const Way& way) {
                              return way[0] * way[1] == 128;
                            }};
    Climb climb(question);
    while (true) {
      const std::vector<Way> ways = climb.round();
      if (ways.empty()) break;
      std::vector<double> times;
      for (const Way& way : ways) times.push_back(1.0 / static_cast<double>(way[0]));
      climb.timed(times);
    }
    CHECK(climb.best() == Way{128, 1});
  }

  TEST_CASE(
      "ways that are far apart come first, then neighbours of the best of them, also of the usual one") {
    Question question = kQuestion;
    question.others = {{8, 1}, {1024, 1}, {2048, 1}, {64, 1}};
    for (const Way& fastest : {Way{1024, 1}, Way{64, 1}}) {
      Climb climb(question);
      const std::vector<Way> far = climb.round();
      CHECK(far == std::vector<Way>{{64, 1}, {8, 1}, {1024, 1}});  // what is possible, once
      std::vector<double> times;
      for (const Way& way : far) times.push_back(way == fastest ? 1 : 2);
      climb.timed(times);
      CHECK(climb.best() == fastest);
      const std::vector<Way> near = climb.round();
      CHECK(near[0] == fastest);
      CHECK(std::ranges::find(near, Way{fastest[0], 2}) != near.end());
      climb.timed(std::vector<double>(near.size(), 1));
      CHECK(climb.round().empty());
    }
  }

  TEST_CASE("rounds are compared with themselves only: clocks change in between") {
    Climb climb(kQuestion);
    std::vector<double> times(climb.round().size(), 2);
    times[1] = 1;
    climb.timed(times);
    const Way best = climb.best();
    CHECK(best != kQuestion.usual);
    times.assign(climb.round().size(), 8);
    times[0] = 7;
    climb.timed(times);
    CHECK(climb.best() == best);
    CHECK(climb.round().empty());
  }

  TEST_CASE("an answer that is not possible is not given") {
    Tuning tuning;
    CHECK(tuning.answer(kQuestion) == kQuestion.usual);
    for (const Way& bad : {Way{2048, 1}, Way{64}, Way{}}) {
      tuning.set(kQuestion.key, bad);
      CHECK(tuning.answer(kQuestion) == kQuestion.usual);
    }
    tuning.set(kQuestion.key, {128, 2});
    CHECK(tuning.answer(kQuestion) == Way{128, 2});
  }

  TEST_CASE("a file of another device, or of nobody's making, says little") {
    const std::string good = "H200, Dawn\nproduct 1 x 64: 128 2\nattention, 64 keys: 256 4 16\n";
    CHECK(parse_tuning(good, "H200, Dawn") ==
          std::map<std::string, Way>{{"product 1 x 64", {128, 2}}, {"attention, 64 keys", {256, 4, 16}}});
    CHECK(parse_tuning(good, "H200, wgpu").empty());
    for (const char* line : {"", ":", "a: ", "a: x", "a: -1", "a: 0", "a: 1 2x", "a: 1  2",
                             "a: 99999999999999999999", "a: 5000", "no colon"}) {
      CAPTURE(line);
      const auto known = parse_tuning("gpu\n" + std::string(line) + "\nb: 4\n", "gpu");
      CHECK((known.size() == 1 || known.at("a").empty()));
      CHECK(known.at("b") == Way{4});
    }
    CHECK(parse_tuning("", "").empty());
  }
}
