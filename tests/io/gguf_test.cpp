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

GgufFile sample_file() {
  return GgufFile()
      .text("general.name", "a name")
      .integer("count", 7)
      .flag("flag", true)
      .texts("texts", {"", "b", "cc"})
      .integers("integers", {1, -2})
      .numbers("numbers", {0.5F})
      .bytes("bytes", std::string("\0\xff", 2));
}
std::string sample() {
  return sample_file().file();
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

TEST_CASE("tensors") {
  const std::string half(34, 'h');
  const Parsed parsed(GgufFile()
                          .tensor("w", {32, 2}, 8, half + half)
                          .tensor("b", {3}, 0, std::string(12, 'b'))
                          .tensor("none", {0, 2}, 0, "")
                          .tensor("integers", {2}, 26, std::string(8, 'i'))
                          .file());
  const Gguf::Tensors& tensors = parsed.file.tensors();
  CHECK(tensors.size() == 4);
  CHECK(tensors.at("w").shape == Shape{2, 32});
  CHECK(tensors.at("w").type == quant::Type::q8_0);
  CHECK(tensors.at("w").data.size() == 68);
  CHECK(static_cast<char>(tensors.at("b").data[11]) == 'b');
  CHECK(tensors.at("none").shape == Shape{2, 0});
  CHECK_FALSE(tensors.at("integers").type);
}

TEST_CASE("a tensor that cannot be is an error that names it") {
  const auto message = [](const GgufFile& file) {
    return error_of([&] { Parsed parsed(file.file()); }).message;
  };
  const std::string values(32, 'x');
  CHECK(message(GgufFile().tensor("w", {8, 1}, 0, values, 32)) ==
        "[gguf] f.gguf: tensor 'w': 32 bytes from 32 on are announced where the file has 32");
  CHECK(message(GgufFile().tensor("w", {1ull << 40}, 0, values)) ==
        "[gguf] f.gguf: tensor 'w': 4398046511104 bytes from 0 on are announced where the file has 32");
  CHECK(message(GgufFile().tensor("a", {8}, 0, values).tensor("w", {8}, 0, values, -32)) ==
        "[gguf] f.gguf: tensor 'w': overlaps the tensor before it");
  CHECK(message(GgufFile().tensor("w", {8}, 0, values).tensor("w", {8}, 0, values)) ==
        "[gguf] f.gguf: tensor 'w': is there twice");
  CHECK(message(GgufFile().tensor("w", {7}, 0, values, 4)) ==
        "[gguf] f.gguf: tensor 'w': offset 4 is not a multiple of 32");
  CHECK(message(GgufFile().tensor("w", {8}, 99, values)) ==
        "[gguf] f.gguf: tensor 'w': type 99 is not known");
  CHECK(message(GgufFile().tensor("w", {8}, 8, values)) ==
        "[gguf] f.gguf: tensor 'w': rows of 8 elements are not whole q8_0 blocks of 32");
  CHECK(message(GgufFile().tensor("w", {1, 1, 1, 1, 1}, 0, values)) ==
        "[gguf] f.gguf: tensor 'w': 5 dims; up to 4 are known");
  CHECK(message(GgufFile().tensor("w", {1ull << 40, 1ull << 40}, 0, values)) ==
        "[gguf] f.gguf: tensor 'w': dim 1 is 1099511627776");
  CHECK(message(GgufFile().integer("general.alignment", 24).tensor("w", {8}, 0, values)) ==
        "[gguf] f.gguf: general.alignment is 24");
}

TEST_CASE("a damaged file is one line") {
  const std::string good = GgufFile(sample_file()).tensor("w", {8, 2}, 0, std::string(64, 'w')).file();
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
