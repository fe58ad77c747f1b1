#include "base/child.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "base/error.h"

using namespace weft;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using End = ChildResult::End;

namespace {

ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// No child of this process is left, dead or alive.
bool childless() {
  return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
}

std::string megabyte() {
  std::string text(1 << 20, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

}  // namespace

// Not a "base" suite: a fork of a process that ThreadSanitizer watches has its own troubles.
TEST_SUITE("child") {
  TEST_CASE("what the work returns comes back, whatever bytes it has") {
    for (const std::string& text : {std::string(), std::string("hello"), std::string("a\0b\n", 4)}) {
      const ChildResult result = run_in_child([&] { return text; }, 10s);
      CHECK(result.end == End::done);
      CHECK(result.output == text);
      CHECK(result.errors.empty());
      CHECK(result.reason.empty());
    }
  }

  TEST_CASE("the child is another process, and its changes stay there") {
    int value = 1;
    const ChildResult result = run_in_child(
        [&] {
          value = 2;
          return std::to_string(getpid());
        },
        10s);
    CHECK(value == 1);
    CHECK(result.output != std::to_string(getpid()));
  }

  TEST_CASE("an exception becomes the reason") {
    const ChildResult result =
        run_in_child([]() -> std::string { fail(ErrorKind::io, "[test] no {}", "luck"); }, 10s);
    CHECK(result.end == End::crashed);
    CHECK(result.reason == "[test] no luck");
    CHECK(result.output.empty());
    CHECK(run_in_child([]() -> std::string { throw 7; }, 10s).reason == "unknown exception");
  }

  TEST_CASE("a signal is named") {
    const ChildResult aborted = run_in_child([]() -> std::string { std::abort(); }, 10s);
    CHECK(aborted.end == End::crashed);
    CHECK(aborted.reason == "signal 6 (Aborted)");
    const ChildResult faulted = run_in_child(
        []() -> std::string {
          raise(SIGSEGV);
          return "still here";
        },
        10s);
    CHECK(faulted.end == End::crashed);
    CHECK(faulted.reason == "signal 11 (Segmentation fault)");
    CHECK(faulted.output.empty());
  }

  TEST_CASE("a library that ends the process is no success, whatever status it gives") {
    for (int status : {0, 1, 3}) {
      const ChildResult result = run_in_child([=]() -> std::string { _exit(status); }, 10s);
      CHECK(result.end == End::crashed);
      CHECK(result.reason == "exit status " + std::to_string(status));
    }
  }

  TEST_CASE("a child that does not answer is killed at the deadline") {
    const Clock::time_point begin = Clock::now();
    const ChildResult result = run_in_child(
        []() -> std::string {
          std::fputs("waiting for the GPU\n", stderr);
          for (;;) pause();
        },
        300ms);
    CHECK(result.end == End::timed_out);
    CHECK(result.reason == "no answer within 0.3 s");
    CHECK(result.errors == "waiting for the GPU\n");
    CHECK(Clock::now() - begin >= 290ms);  // poll counts whole milliseconds
    CHECK(Clock::now() - begin < 10s);
    CHECK(childless());
  }

  TEST_CASE("not even one that never stops talking lives longer") {
    const Clock::time_point begin = Clock::now();
    const ChildResult result = run_in_child(
        []() -> std::string {
          for (;;) std::fputs("validation error: again\n", stderr);
        },
        300ms);
    CHECK(result.end == End::timed_out);
    CHECK(result.errors.size() <= 4096);
    CHECK(Clock::now() - begin < 10s);
    CHECK(childless());
  }

  TEST_CASE("large outputs and many messages do not block each other") {
    const std::string text = megabyte();
    const ChildResult result = run_in_child(
        [&] {
          std::fwrite(text.data(), 1, text.size(), stderr);
          std::fputs("the end", stderr);
          return text;
        },
        30s);
    CHECK(result.end == End::done);
    CHECK((result.output == text));  // no megabyte in the report of a failure
    CHECK(result.errors.size() == 4096);
    CHECK(result.errors.ends_with("the end"));
  }

  TEST_CASE("messages are kept when the child crashes") {
    const ChildResult result = run_in_child(
        []() -> std::string {
          std::fputs("driver: assertion failed\n", stderr);
          std::abort();
        },
        10s);
    CHECK(result.errors == "driver: assertion failed\n");
    CHECK(result.reason == "signal 6 (Aborted)");
  }

  TEST_CASE("what the child prints does not reach our standard output") {
    const ChildResult result = run_in_child(
        [] {
          std::puts("must not be seen");
          std::fflush(stdout);
          return std::string("ok");
        },
        10s);
    CHECK(result.output == "ok");
    CHECK(result.errors.empty());
  }

  TEST_CASE("it works in a process whose standard files are closed") {
    const ChildResult outer = run_in_child(
        [] {
          for (int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(file);
          const ChildResult inner = run_in_child(
              [] {
                std::fputs("a message", stderr);
                return std::string("an answer");
              },
              5s);
          return inner.output + " and " + inner.errors;
        },
        10s);
    CHECK(outer.output == "an answer and a message");
  }

  TEST_CASE("200 children leave no zombie and no open file") {
    const ptrdiff_t before = open_files();
    for (int i = 0; i < 200; ++i) {
      const ChildResult result = run_in_child(
          [&]() -> std::string {
            if (i % 4 == 1) fail(ErrorKind::invalid, "{}", i);
            if (i % 4 == 2) _exit(5);
            if (i % 4 == 3) raise(SIGKILL);
            return std::to_string(i);
          },
          10s);
      CHECK(result.done() == (i % 4 == 0));
      if (result.done()) CHECK(result.output == std::to_string(i));
    }
    CHECK(open_files() == before);
    CHECK(childless());
  }

  TEST_CASE("a program's output, errors and status") {
    int ticks = 0;
    const ProgramResult result = run_program({"sh", "-c", "echo out; echo err >&2; sleep 0.15; exit 3"},
                                             [&](const std::string&) { ++ticks; });
    CHECK(result.status == 3);
    CHECK(result.output == "out\n");
    CHECK(result.errors == "err\n");
    CHECK(ticks > 0);
    CHECK(run_program({"cat"}).output.empty());
    CHECK(run_program({"cat"}, {}, "some words").output == "some words");
    CHECK(run_program({"sh", "-c", "kill -9 $$"}).status == 128 + 9);
    CHECK(run_program({"no-such-program"}).status == 127);
    CHECK_THROWS_WITH(
        run_program({"sleep", "100"}, [](const std::string&) { throw std::runtime_error("enough"); }),
        "enough");
  }
}
