#include "io/gguf_writer.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/child.h"
#include "base/paths.h"
#include "support/gguf_file.h"
#include "support/gpus.h"
#include "support/scoped.h"

using namespace weft;
using test::error_of;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

void write_nothing(const std::string&, const GgufWriter::Sink&) {}

}  // namespace

TEST_SUITE("base: gguf writer") {
  TEST_CASE("every kind of value comes back") {
    const test::ScopedFolder folder;
    GgufWriter writer;
    writer.set("text", "naïve");
    writer.set("text in a variable", std::string("two\0parts", 9));
    writer.set("u8", uint8_t{200});
    writer.set("i8", int8_t{-100});
    writer.set("u16", uint16_t{65535});
    writer.set("i16", int16_t{-32768});
    writer.set("u32", uint32_t{4'000'000'000});
    writer.set("i32", int32_t{-7});
    writer.set("u64", uint64_t{1} << 62);
    writer.set("i64", int64_t{-1} << 62);
    writer.set("f32", 0.5f);
    writer.set("f64", 0.1);
    writer.set("flag", true);
    writer.set("general.texts", std::vector<std::string>{"a", "", "c"});
    writer.set("numbers", std::vector<float>{1, 2.5f});
    writer.set("integers", std::vector<int32_t>{1, -2});
    writer.set("bytes", std::vector<uint8_t>{1, 2, 3});
    writer.set("none", std::vector<int32_t>{});
    writer.set("again", uint32_t{1});
    writer.set("again", "now a text");
    writer.set("gone", false);
    writer.remove("gone");
    writer.remove("was never there");
    std::filesystem::create_directory(folder.path / "new");
    writer.write(folder.path / "new" / "a.gguf", write_nothing);

    const Gguf first = Gguf::open(folder.path / "new" / "a.gguf");
    GgufWriter copy;
    copy.set_all(first);
    copy.write(folder.path / "b.gguf", write_nothing);
    CHECK(read_text(folder.path / "b.gguf") == read_text(folder.path / "new" / "a.gguf"));
    const Gguf file = Gguf::open(folder.path / "b.gguf");
    CHECK(file.text("text") == "naïve");
    CHECK(file.text("text in a variable") == std::string_view("two\0parts", 9));
    CHECK(file.integer("u8") == 200);
    CHECK(file.integer("i8") == -100);
    CHECK(file.integer("u16") == 65535);
    CHECK(file.integer("i16") == -32768);
    CHECK(file.integer("u32") == 4'000'000'000);
    CHECK(file.integer("i32") == -7);
    CHECK(file.integer("u64") == int64_t{1} << 62);
    CHECK(file.integer("i64") == int64_t{-1} << 62);
    CHECK(file.number("f32") == 0.5);
    CHECK(file.number("f64") == 0.1);
    CHECK(file.flag("flag") == true);
    CHECK(file.texts("general.texts") == std::vector<std::string_view>{"a", "", "c"});
    CHECK(file.numbers("numbers") == std::vector<double>{1, 2.5});
    CHECK(file.numbers("integers") == std::vector<double>{1, -2});
    CHECK(file.bytes("bytes") == "\1\2\3");
    CHECK(file.contains("none"));
    CHECK(file.numbers("none").empty());
    CHECK(file.text("again") == "now a text");
    CHECK_FALSE(file.contains("gone"));
  }

  TEST_CASE("tensors are aligned and come in pieces") {
    const test::ScopedFolder folder;
    const auto path = folder.path / "t.gguf";
    GgufWriter writer;
    writer.add("odd", {3}, quant::Type::f16);
    writer.add("matrix", {2, 3, 32}, quant::Type::q4_0);
    writer.add("empty", {0, 32}, quant::Type::q8_0);
    writer.add("number", {}, quant::Type::f32);
    std::string matrix;
    for (int i = 0; i < 6 * 18; ++i) matrix += static_cast<char>(i);
    std::vector<std::string> order;
    writer.write(path, [&](const std::string& name, const GgufWriter::Sink& sink) {
      order.push_back(name);
      if (name == "odd") sink(bytes_of("abcdef"));
      if (name == "number") sink(bytes_of("wxyz"));
      for (size_t i = 0; i < matrix.size() && name == "matrix"; i += 27) sink(bytes_of(matrix.substr(i, 27)));
    });
    CHECK(order == std::vector<std::string>{"odd", "matrix", "empty", "number"});
    const Gguf file = Gguf::open(path);
    const auto text_of = [&](const char* name) {
      const std::span<const std::byte> data = file.tensors().at(name).data;
      return std::string(reinterpret_cast<const char*>(data.data()), data.size());
    };
    CHECK(file.tensors().size() == 4);
    CHECK(text_of("odd") == "abcdef");
    CHECK(text_of("matrix") == matrix);
    CHECK(text_of("number") == "wxyz");
    CHECK(file.tensors().at("matrix").shape == Shape{2, 3, 32});
    CHECK(file.tensors().at("matrix").type == quant::Type::q4_0);
    CHECK(file.tensors().at("empty").shape == Shape{0, 32});
    CHECK(std::filesystem::file_size(path) % 32 == 0);
  }

  TEST_CASE("a file's own alignment is not taken over") {
    const test::ScopedFolder folder;
    const std::string bytes =
        test::GgufFile().integer("general.alignment", 64).text("general.name", "x").file();
    GgufWriter writer;
    writer.set_all(Gguf::parse(bytes_of(bytes), "F"));
    writer.add("t", {8}, quant::Type::f32);
    writer.write(folder.path / "a.gguf", [](const std::string&, const GgufWriter::Sink& sink) {
      sink(bytes_of(std::string(32, 'v')));
    });
    const Gguf file = Gguf::open(folder.path / "a.gguf");
    CHECK_FALSE(file.contains("general.alignment"));
    CHECK(file.text("general.name") == "x");
  }

  TEST_CASE("what the format cannot hold is refused") {
    GgufWriter writer;
    writer.add("a", {32}, quant::Type::q4_0);
    const auto message = [&](const std::string& name, const Shape& shape) {
      return error_of([&] { writer.add(name, shape, quant::Type::q4_0); }).message;
    };
    CHECK(message("a", {32}) == "[gguf] tensor 'a': is there twice");
    CHECK(message(std::string(64, 'n'), {32}).ends_with("the name is longer than 63 bytes"));
    CHECK(message("b", {1, 1, 1, 1, 32}) == "[gguf] tensor 'b': 5 dims; GGUF files have up to 4");
    CHECK(message("b", {32, 3}).starts_with("[quant] 3 elements are not a whole number of q4_0 blocks"));
  }

  TEST_CASE("a file that cannot be finished leaves the old one, and nothing beside it") {
    const test::ScopedFolder folder;
    const auto path = folder.path / "m.gguf";
    write_text(path, "old");
    GgufWriter writer;
    writer.add("t", {1 << 20}, quant::Type::f32);
    const auto short_by_one = [](const std::string&, const GgufWriter::Sink& sink) {
      sink(std::vector<std::byte>((4 << 20) - 1));
    };
    CHECK(error_of([&] { writer.write(path, short_by_one); }).message ==
          "[gguf] tensor 't': 4194303 bytes were written where 4194304 belong");
    const auto throwing = [](const std::string&, const GgufWriter::Sink&) { throw std::runtime_error("no"); };
    CHECK_THROWS_WITH(writer.write(path, throwing), "no");

    const ChildResult full = run_in_child(
        [&] {
          signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files stands for a disk that is full
          const rlimit limit{1 << 20, 1 << 20};
          setrlimit(RLIMIT_FSIZE, &limit);
          return error_of([&] {
                   writer.write(path, [](const std::string&, const GgufWriter::Sink& sink) {
                     sink(std::vector<std::byte>(4 << 20));
                   });
                 })
              .message;
        },
        std::chrono::seconds(20));
    CHECK(full.output == "[io] cannot write " + path.string() + ": File too large");

    CHECK(read_text(path) == "old");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
  }
}
