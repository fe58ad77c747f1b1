#include "base/threads.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <set>
#include <stdexcept>

using namespace weft;

namespace {

/// How often each index was visited; pieces must be whole grains but for the last one.
std::vector<int> visits(ThreadPool& pool, size_t count, size_t grain) {
  std::vector<std::atomic<int>> seen(count);
  std::atomic<int> bad_pieces{0};
  pool.for_each(count, grain, [&](size_t begin, size_t end) {
    if (begin >= end || end > count || begin % grain != 0 || (end - begin != grain && end != count))
      ++bad_pieces;
    for (size_t i = begin; i < end; ++i) ++seen[i];
  });
  CHECK(bad_pieces == 0);
  return {seen.begin(), seen.end()};
}

void check_usable(ThreadPool& pool) {
  CHECK(visits(pool, 100, 3) == std::vector<int>(100, 1));
}

}  // namespace

TEST_SUITE("base: threads") {
  TEST_CASE("every index is visited once, for every count, grain and pool") {
    for (int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads);
      CHECK(pool.threads() == threads);
      for (size_t count = 0; count <= 70; ++count)
        for (size_t grain = 1; grain <= 17; ++grain) {
          CAPTURE(threads);
          CAPTURE(count);
          CAPTURE(grain);
          CHECK(visits(pool, count, grain) == std::vector<int>(count, 1));
        }
    }
  }

  TEST_CASE("a grain of 0 counts as 1, a huge one as all") {
    ThreadPool pool(3);
    int calls = 0;
    std::atomic<size_t> sum{0};
    pool.for_each(10, 0, [&](size_t begin, size_t end) { sum += (end - begin) * (begin + 1); });
    CHECK(sum == 55);
    pool.for_each(10, SIZE_MAX,
                  [&](size_t begin, size_t end) { calls += begin == 0 && end == 10 ? 1 : 100; });
    CHECK(calls == 1);
    pool.for_each(0, 1, [&](size_t, size_t) { ++calls; });
    CHECK(calls == 1);
  }

  TEST_CASE("an exception comes out of for_each, and the pool stays usable") {
    for (int threads : {1, 2, 3, 8}) {
      CAPTURE(threads);
      ThreadPool pool(threads);
      for (size_t bad : {0, 13, 99})
        for (int round = 0; round < 20; ++round) {
          CHECK_THROWS_WITH_AS(pool.for_each(100, 1,
                                             [&](size_t begin, size_t) {
                                               if (begin == bad) throw std::runtime_error("piece");
                                             }),
                               "piece", std::runtime_error);
          check_usable(pool);
        }
      // All pieces throw: one error arrives, the others are dropped.
      CHECK_THROWS_AS(pool.for_each(100, 1, [](size_t, size_t) { throw std::logic_error("each"); }),
                      std::logic_error);
      check_usable(pool);
    }
  }

  TEST_CASE("after an exception the pieces not yet begun are dropped") {
    ThreadPool pool(1);
    int calls = 0;
    CHECK_THROWS(pool.for_each(100, 1, [&](size_t, size_t) {
      if (++calls == 3) throw std::runtime_error("third");
    }));
    CHECK(calls == 3);
  }

  TEST_CASE("a loop inside a loop runs inline") {
    ThreadPool pool(4), other(2);
    std::atomic<int> strays{0}, inner{0};
    pool.for_each(16, 1, [&](size_t, size_t) {
      const std::thread::id here = std::this_thread::get_id();
      const auto body = [&](size_t begin, size_t end) {
        inner += static_cast<int>(end - begin);
        if (std::this_thread::get_id() != here) ++strays;
      };
      pool.for_each(8, 2, body);
      other.for_each(8, 2, body);
    });
    CHECK(inner == 16 * 16);
    CHECK(strays == 0);
    CHECK_THROWS_AS(pool.for_each(4, 1,
                                  [&](size_t, size_t) {
                                    pool.for_each(4, 1,
                                                  [](size_t, size_t) { throw std::runtime_error("deep"); });
                                  }),
                    std::runtime_error);
    check_usable(pool);
  }

  TEST_CASE("10,000 small loops in a row") {
    ThreadPool pool(4);
    std::atomic<size_t> sum{0};
    for (size_t i = 0; i < 10'000; ++i) pool.for_each(4, 1, [&](size_t begin, size_t) { sum += begin; });
    CHECK(sum == 10'000 * 6);
  }

  TEST_CASE("loops with pauses: workers that look out, that fall asleep and that sleep") {
    ThreadPool pool(3);
    for (int pause_us : {0, 5, 45, 50, 55, 100, 1000})
      for (int round = 0; round < 50; ++round) {
        check_usable(pool);
        std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
      }
  }

  TEST_CASE("many more threads than cores") {
    ThreadPool pool(32);
    for (int round = 0; round < 200; ++round) check_usable(pool);
  }

  TEST_CASE("a loop of one piece stays with its caller") {
    ThreadPool pool(4);
    for (int round = 0; round < 100; ++round)
      pool.for_each(8, 8, [here = std::this_thread::get_id()](size_t, size_t) {
        CHECK(std::this_thread::get_id() == here);
      });
  }

  TEST_CASE("pools come and go") {
    for (int round = 0; round < 50; ++round) {
      ThreadPool pool(4);
      if (round % 2 == 0) check_usable(pool);
    }
  }

  TEST_CASE("two callers at once") {
    ThreadPool pool(3);
    std::atomic<int> wrong{0};
    const auto caller = [&](size_t count) {
      for (int round = 0; round < 300; ++round) {
        std::vector<std::atomic<int>> seen(count);
        pool.for_each(count, 2, [&](size_t begin, size_t end) {
          for (size_t i = begin; i < end; ++i) ++seen[i];
        });
        for (const std::atomic<int>& n : seen)
          if (n != 1) ++wrong;
      }
    };
    {
      const std::jthread first(caller, 31), second(caller, 64);
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("more than one thread takes part") {
    ThreadPool pool(2);
    std::mutex mutex;
    std::condition_variable met;
    std::set<std::thread::id> ids;
    // Each of the two pieces waits for the other: only two threads can finish them.
    pool.for_each(2, 1, [&](size_t, size_t) {
      std::unique_lock lock(mutex);
      ids.insert(std::this_thread::get_id());
      met.notify_all();
      met.wait(lock, [&] { return ids.size() == 2; });
    });
    CHECK(ids.size() == 2);
  }

  TEST_CASE("WEFT_THREADS sets the size of a pool that asks for none") {
    const char* old = std::getenv("WEFT_THREADS");
    const std::string saved = old ? old : "";
    setenv("WEFT_THREADS", "3", 1);
    CHECK(ThreadPool().threads() == 3);
    CHECK(ThreadPool(2).threads() == 2);
    unsetenv("WEFT_THREADS");
    CHECK(ThreadPool().threads() >= 1);
    if (old) setenv("WEFT_THREADS", saved.c_str(), 1);
  }
}
