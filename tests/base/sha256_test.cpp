#include "base/sha256.h"

#include <doctest/doctest.h>

#include "base/paths.h"
#include "support/gpus.h"
#include "support/scoped.h"

using namespace weft;

namespace {

std::string sum_of(const std::string& text, size_t piece) {
  Sha256 sum;
  for (size_t at = 0; at < text.size(); at += piece)
    sum.add(std::as_bytes(std::span(std::string_view(text).substr(at, piece))));
  return sum.finish();
}

}  // namespace

TEST_SUITE("base: sha256") {
  TEST_CASE("the examples of FIPS 180-4, in pieces of any size") {
    const std::pair<std::string, std::string> rows[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {std::string(1'000'000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (const auto& [text, expected] : rows)
      for (const size_t piece : {1, 3, 55, 56, 63, 64, 65, 128, 1000, 1'000'000})
        CHECK(sum_of(text, piece) == expected);
  }

  TEST_CASE("every length around a block") {
    for (size_t size = 0; size < 200; ++size)
      CHECK(sum_of(std::string(size, 'x'), 7) == sum_of(std::string(size, 'x'), 200));
  }

  TEST_CASE("files") {
    const test::ScopedFolder folder;
    write_text(folder.path / "abc", "abc");
    CHECK(sha256_of(folder.path / "abc") == sum_of("abc", 3));
    write_text(folder.path / "large", std::string(200'000, 'l'));
    CHECK(sha256_of(folder.path / "large") == sum_of(std::string(200'000, 'l'), 200'000));
    CHECK(test::error_of([&] { sha256_of(folder.path / "none"); }).kind == "io");
    CHECK(test::error_of([&] { sha256_of(folder.path); }).kind == "io");
  }
}
