#include "io/json.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "base/paths.h"
#include "support/gpus.h"
#include "support/scoped.h"

using namespace weft;
using test::error_of;

TEST_SUITE("base: json") {
  TEST_CASE("up to 100 levels are read, brackets inside of texts are none") {
    const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
    CHECK(parse_json(nested(100), "[x] f").is_array());
    CHECK(error_of([&] { parse_json(nested(101), "[x] f"); }).message ==
          "[x] f: JSON nested deeper than 100 levels");
    CHECK(error_of([&] { parse_json(R"({"a\\":)" + nested(200'000) + "}", "[x] f"); }).message ==
          "[x] f: JSON nested deeper than 100 levels");
    CHECK(parse_json("[\"" + std::string(200, '[') + "\\\"" + std::string(200, '{') + "\"]", "").is_array());
    CHECK(parse_json("[[1],[2],[3]", "").is_discarded());
    CHECK(parse_json("", "").is_discarded());
  }

  TEST_CASE("texts of models are regular files of a size that can be") {
    const test::ScopedFolder folder;
    const auto file = folder.path / "a.json";
    write_text(file, "[1]");
    CHECK(read_json(file, "[x]") == nlohmann::json({1}));
    std::filesystem::resize_file(file, int64_t{300} << 20);
    CHECK(error_of([&] {
            read_json(file, "[x]");
          }).message.ends_with("a text of 314572800 bytes; at most 268435456"));
    std::filesystem::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    CHECK(error_of([&] { read_json(file, "[x]"); }).message.ends_with("not a regular file"));
  }
}
