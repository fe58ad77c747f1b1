#include "io/gguf.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "support/gguf_file.h"
#include "support/gpus.h"
#include "weft/error.h"

using namespace weft;
using test::error_of;
using test::GgufFile;

namespace {

/// From memory that ends where the file ends, so that the address sanitizer sees the first byte read past it.
struct Parsed {
  std::unique_ptr<std::byte[]> memory;
  Gguf file;
  explicit Parsed(const std::string& bytes)
      : memory(new std::byte[bytes.size()]),
        file((std::memcpy(memory.get(), bytes.data(), bytes.size()),
              Gguf::parse({memory.get(), bytes.size()}, "f.gguf"))) {}
};

std::string sample() {
  return GgufFile()
      .text("general.name", "a name")
      .integer("count", 7)
      .flag("flag", true)
      .texts("texts", {"", "b", "cc"})
      .integers("integers", {1, -2})
      .numbers("numbers", {0.5F})
      .bytes("bytes", std::string("\0\xff", 2))
      .file();
}

}  // namespace

TEST_SUITE_BEGIN("base: gguf");

TEST_CASE("values of every kind") {
  const Parsed parsed(sample());
  const Gguf& file = parsed.file;
  CHECK(file.text("general.name") == "a name");
  CHECK(file.integer("count") == 7);
  CHECK(file.flag("flag") == true);
  CHECK(file.texts("texts") == std::vector<std::string_view>{"", "b", "cc"});
  CHECK(file.numbers("integers") == std::vector<double>{1, -2});
  CHECK(file.numbers("numbers") == std::vector<double>{0.5});
  CHECK(file.bytes("bytes") == std::string_view("\0\xff", 2));
  CHECK(file.contains("count"));
  CHECK_FALSE(file.contains("nothing"));
  CHECK_FALSE(file.text("nothing"));
  CHECK(file.texts("nothing").empty());
}

TEST_CASE("a value of another kind is an error that names it") {
  const Parsed parsed(sample());
  const Gguf& file = parsed.file;
  CHECK(error_of([&] { file.text("count"); }).message == "[gguf] f.gguf: key 'count' is not a text");
  CHECK(error_of([&] { file.integer("flag"); }).message == "[gguf] f.gguf: key 'flag' is not an integer");
  CHECK(error_of([&] { file.text("texts"); }).message == "[gguf] f.gguf: key 'texts' is not one value");
  CHECK(error_of([&] { file.texts("numbers"); }).message ==
        "[gguf] f.gguf: key 'numbers' is not a list of texts");
  CHECK(error_of([&] { file.numbers("texts"); }).message ==
        "[gguf] f.gguf: key 'texts' is not a list of numbers");
  CHECK(error_of([&] { file.flag("count"); }).message == "[gguf] f.gguf: key 'count' is not a bool");
}

TEST_CASE("a damaged file is one line") {
  const std::string good = sample();
  const auto message = [](const std::string& bytes) {
    return error_of([&] { Parsed parsed(bytes); }).message;
  };
  for (size_t size = 0; size < good.size(); ++size)
    CHECK(message(good.substr(0, size)).starts_with("[gguf] f.gguf: "));
  CHECK(message("GGUX" + good.substr(4)) == "[gguf] f.gguf: this is no GGUF file");
  std::string version = good;
  version[4] = 1;
  CHECK(message(version) == "[gguf] f.gguf: version 1 is not known; 2 and 3 are");
  CHECK(message(GgufFile().flag("twice", true).flag("twice", true).file()) ==
        "[gguf] f.gguf: key 'twice': is there twice");

  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = good;
    for (int i = 0; i < 3; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      const Parsed parsed(damaged);
      parsed.file.texts("texts");
      parsed.file.numbers("numbers");
    } catch (const Error& e) {
      CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
    }
  }
}

TEST_SUITE_END();
