#include "io/safetensors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <memory>
#include <random>

#include "base/paths.h"
#include "support/gpus.h"
#include "support/scoped.h"
#include "weft/error.h"

using namespace weft;
using test::error_of;
using Folder = test::ScopedFolder;
namespace fs = std::filesystem;

namespace {

/// Element i has the byte 7 i + 1 (a bool: i odd) in its first place, i in the others.
HostTensor sample(DType dtype, const Shape& shape) {
  HostTensor tensor{.dtype = dtype, .shape = shape};
  for (int64_t i = 0; i < element_count(shape); ++i)
    for (size_t b = 0; b < size_of(dtype); ++b)
      tensor.bytes.push_back(static_cast<std::byte>(dtype == DType::boolean ? i % 2
                                                    : b == 0                ? 7 * i + 1
                                                                            : i));
  return tensor;
}

std::map<std::string, HostTensor> samples() {
  std::map<std::string, HostTensor> tensors;
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u32, DType::i64, DType::u8,
                      DType::i8, DType::boolean}) {
    tensors[fmt::format("{}/matrix", name_of(dtype))] = sample(dtype, {3, 5});
    tensors[fmt::format("{}/scalar", name_of(dtype))] = sample(dtype, {});
    tensors[fmt::format("{}/empty", name_of(dtype))] = sample(dtype, {2, 0, 4});
  }
  tensors["a \"name\"\nwith \xc3\xa9"] = sample(DType::f32, {1});
  return tensors;
}

/// A file made of this header and so many bytes of values.
std::string file_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + std::string(data, '\1');
}

/// From memory that ends where the file ends, so that the address sanitizer sees the first byte read past it.
struct Parsed {
  std::unique_ptr<std::byte[]> memory;
  Safetensors file;
  explicit Parsed(const std::string& bytes)
      : memory(std::make_unique<std::byte[]>(bytes.size())), file(parse(bytes)) {}

 private:
  Safetensors parse(const std::string& bytes) {
    std::memcpy(memory.get(), bytes.data(), bytes.size());
    return Safetensors::parse({memory.get(), bytes.size()}, "F");
  }
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype, shape,
                     offsets);
}

}  // namespace

TEST_SUITE("base: safetensors") {
  TEST_CASE("every dtype comes back as it was written, and no draft is left") {
    const Folder folder;
    const fs::path path = folder.path / "new/folder/all.safetensors";
    create_folders_of(path);
    for (int round = 0; round < 2; ++round) {  // the second one replaces a file
      write_safetensors(path, samples());
      const Safetensors file = Safetensors::open(path);
      CHECK(file.names().size() == samples().size());
      for (const auto& [name, want] : samples()) {
        CAPTURE(name);
        const HostTensor got = file.load(name);
        CHECK(got.dtype == want.dtype);
        CHECK((got.shape == want.shape));
        CHECK((got.bytes == want.bytes));
        const Safetensors::Info info = file.info(name);
        CHECK(info.data.size() == want.bytes.size());
        CHECK(reinterpret_cast<uintptr_t>(info.data.data()) % size_of(want.dtype) == 0);
      }
    }
    CHECK(std::distance(fs::directory_iterator(path.parent_path()), {}) == 1);
    write_safetensors(path, {});
    CHECK(Safetensors::open(path).names().empty());
  }

  TEST_CASE("a file of the reference library: the suite of ops") {
    Safetensors opened = Safetensors::open(WEFT_SOURCE_DIR "/tests/data/ops/suite.safetensors");
    const Safetensors file = std::move(opened);  // the values stay in place
    CHECK(file.names().size() == 4018);
    CHECK(file.contains("0/x"));
    CHECK_FALSE(file.contains("0/nothing"));
    size_t bytes = 0;
    for (const std::string& name : file.names()) bytes += file.load(name).bytes.size();
    CHECK(bytes == 1525366 - 8 - 282024);
    const HostTensor x = file.load("0/x"), y = file.load("0/y");  // neg
    REQUIRE(x.dtype == DType::f32);
    REQUIRE((x.shape == y.shape));
    for (size_t i = 0; i < x.bytes.size(); i += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, x.bytes.data() + i, sizeof a);
      std::memcpy(&b, y.bytes.data() + i, sizeof b);
      CHECK(a == -b);
    }
  }

  TEST_CASE("what the format allows") {
    // Metadata, keys from the future, white space, an order that is not the order of the values.
    const Parsed parsed(
        file_of("{\"__metadata__\":{\"format\":\"pt\"}, " + entry("b", "U8", "2", "4,6") + "," +
                    R"("a":{"new":[{"x":[1,null]}],"dtype":"F32","shape":[],"data_offsets":[0,4]},)" +
                    entry("e", "F64", "0,3", "4,4") + "}   ",
                6));
    CHECK((parsed.file.names() == std::vector<std::string>{"a", "b", "e"}));
    CHECK(parsed.file.load("b").bytes.size() == 2);
    CHECK(parsed.file.load("a").shape.empty());
    CHECK(Parsed(file_of("{}", 0)).file.names().empty());
  }

  TEST_CASE("a dtype that weft has not is an error of its tensor, not of the file") {
    const Parsed parsed(
        file_of("{" + entry("ok", "U8", "1", "0,1") + "," + entry("x", "F64", "1", "1,9") + "}", 9));
    CHECK(parsed.file.load("ok").bytes.size() == 1);
    const auto caught = error_of([&] { parsed.file.info("x"); });
    CHECK(caught.kind == "unsupported");
    CHECK(caught.message.starts_with("[safetensors] F: tensor 'x': dtype F64 is not supported"));
    const auto absent = error_of([&] { parsed.file.load("y\n"); });
    CHECK(absent.kind == "invalid");
    CHECK(absent.message == "[safetensors] F: tensor 'y?': is not in the file");
  }

  TEST_CASE("a bool is 0 or 1") {
    std::string bytes = file_of("{" + entry("x", "BOOL", "3", "0,3") + "}", 3);
    CHECK(Parsed(bytes).file.load("x").bytes.size() == 3);
    bytes.back() = 2;
    CHECK(error_of([&] { Parsed(bytes).file.load("x"); }).message ==
          "[safetensors] F: tensor 'x': element 2 is 2, not a bool");
  }

  TEST_CASE("damaged files") {
    struct Row {
      std::string file, message;
    };
    const std::string ok = entry("y", "U8", "4", "0,4");
    const auto one = [](const std::string& shape, const std::string& offsets, size_t data) {
      return file_of("{" + entry("x", "F32", shape, offsets) + "}", data);
    };
    const auto raw = [](const std::string& value) { return file_of("{\"x\":" + value + "}", 4); };
    const std::string deep(100'000, '['), huge = file_of("", 0).replace(0, 8, 8, '\xff');
    std::string ones = "1";
    for (int i = 0; i < 64; ++i) ones += ",1";
    const Row rows[] = {
        {"", "0 bytes are too few for a safetensors file"},
        {"1234567", "7 bytes are too few for a safetensors file"},
        {huge, "header of 18446744073709551615 bytes; at most 100000000"},
        {file_of("{}", 0).substr(0, 9), "header of 2 bytes, 1 are there: the file is cut off"},
        {file_of("", 0), "header is not a JSON object"},
        {file_of("[]", 0), "header is not a JSON object"},
        {file_of(" {}", 0), "header is not a JSON object"},
        {file_of("{", 0), "header is not valid JSON at its byte 2"},
        {file_of("{}{", 0), "header is not valid JSON at its byte 3"},
        {file_of(std::string("{}\0", 3), 0), "header is not valid JSON at its byte 3"},
        {file_of("{\"\xff\":0}", 0), "header is not valid JSON at its byte 3"},
        {file_of("{\"x\":" + deep, 0), "tensor 'x': is not described by a JSON object"},
        {file_of("{\"x\":{\"new\":" + deep, 0), "header is nested deeper than 16 levels"},
        {file_of("{\"__metadata__\":3}", 0), "__metadata__ is not a map of texts"},
        {file_of("{\"__metadata__\":{\"a\":{}}}", 0), "__metadata__ is not a map of texts"},
        {file_of("{\"__metadata__\":{\"a\":1}}", 0), "__metadata__ is not a map of texts"},
        {file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__ is there twice"},
        {raw("null"), "tensor 'x': is not described by a JSON object"},
        {raw("{}"), "tensor 'x': dtype is missing"},
        {raw(R"({"dtype":"F32","data_offsets":[0,4]})"), "tensor 'x': shape is missing"},
        {raw(R"({"dtype":"F32","shape":[]})"), "tensor 'x': data_offsets is missing"},
        {raw(R"({"dtype":1})"), "tensor 'x': dtype is not a text"},
        {raw(R"({"dtype":["F32"]})"), "tensor 'x': dtype is not a text"},
        {raw(R"({"dtype":"F32","dtype":"F32"})"), "tensor 'x': dtype is there twice"},
        {raw(R"({"shape":3})"), "tensor 'x': shape is not a list of sizes"},
        {raw(R"({"shape":{}})"), "tensor 'x': shape is not a list of sizes"},
        {raw(R"({"shape":[[1]]})"), "tensor 'x': shape is not a list of sizes"},
        {raw(R"({"data_offsets":[0]})"), "tensor 'x': data_offsets is not two byte offsets"},
        {raw(R"({"data_offsets":[0,4,8]})"), "tensor 'x': data_offsets is not two byte offsets"},
        {raw(R"({"data_offsets":"0,4"})"), "tensor 'x': data_offsets is not two byte offsets"},
        {one("-1", "0,4", 4), "tensor 'x': shape is not a list of sizes"},
        {one("1.0", "0,4", 4), "tensor 'x': shape is not a list of sizes"},
        {one("9223372036854775808", "0,4", 4), "tensor 'x': shape is not a list of sizes"},
        {one("99999999999999999999999", "0,4", 4), "tensor 'x': shape is not a list of sizes"},
        {one("1", "-4,0", 4), "tensor 'x': data_offsets is not two byte offsets"},
        {one("1", "4,0", 4), "tensor 'x': begins at byte 4, after its end at 0"},
        {one("1", "0,5", 4), "tensor 'x': ends at byte 5 of 4; the file is cut off or damaged"},
        {one("1", "0,18446744073709551615", 4), "tensor 'x': ends at byte 18446744073709551615 of 4"},
        {one("2", "0,4", 4), "tensor 'x': shape (2) of F32 takes 8 bytes, the file has 4"},
        {one("0", "0,4", 4), "tensor 'x': shape (0) of F32 takes 0 bytes, the file has 4"},
        {one("1,3", "0,10", 10), "tensor 'x': shape (1,3) of F32 takes 12 bytes, the file has 10"},
        // 2^62 + 1 floats are 4 bytes modulo 2^64; 2^32 x 2^32 are 0.
        {one("4611686018427387905", "0,4", 4), "tensor 'x': shape (4611686018427387905) is too large"},
        {one("4294967296,4294967296", "0,0", 0), "tensor 'x': shape (4294967296,4294967296) is too large"},
        {one("0,4294967296,4294967296", "0,0", 0),
         "tensor 'x': shape (0,4294967296,4294967296) is too large"},
        {file_of("{" + entry("x", "F64", "4294967296,4294967296", "0,0") + "}", 0), "is too large"},
        {one(ones, "0,4", 4), "tensor 'x': shape has more than 64 dims"},
        {file_of("{" + ok + "," + ok + "}", 4), "tensor 'y': is there twice"},
        {file_of("{" + ok + "," + entry("x", "U8", "2", "3,5") + "}", 5),
         "tensor 'x': bytes 3..5 overlap those of 'y'"},
        {file_of("{" + ok + "," + entry("z", "U8", "4", "0,4") + "}", 4),
         "tensor 'z': bytes 0..4 overlap those of 'y'"},
        {file_of("{" + ok + "," + entry("x", "U8", "2", "5,7") + "}", 7),
         "tensor 'x': the 1 bytes before it belong to no tensor"},
        {file_of("{" + ok + "}", 6), "the last 2 bytes belong to no tensor"},
        {file_of("{}", 6), "the last 6 bytes belong to no tensor"},
        {file_of("{\"a\\n" + std::string(500, 'b') + "\":1}", 0), "tensor 'a?bbb"},
    };
    for (const Row& row : rows) {
      CAPTURE(row.message);
      const auto caught = error_of([&] { Parsed{row.file}; });
      CHECK(caught.kind == "io");
      CHECK(caught.message.starts_with("[safetensors] F: "));
      CHECK(caught.message.find(row.message) != std::string::npos);
      CHECK(caught.message.find('\n') == std::string::npos);
      CHECK(caught.message.size() < 250);
    }
  }

  TEST_CASE("2,000 random corruptions: an error or a file that can be read") {
    const Folder folder;
    const fs::path path = folder.path / "small";
    write_safetensors(path, {{"a", sample(DType::f32, {2, 3})},
                             {"b", sample(DType::boolean, {7})},
                             {"c", sample(DType::f16, {0, 2})},
                             {"d", sample(DType::i64, {})}});
    const std::string original = read_text(path).value();
    const size_t header = original.find("}}") + 2;
    std::mt19937 random(7);
    const std::string likely = "0123456789-.[]{},:\"\\ntFe";
    int refused = 0, read = 0;
    for (int round = 0; round < 2000; ++round) {
      std::string damaged = original;
      for (unsigned hits = random() % 4; hits > 0; --hits) {
        const size_t at = random() % header;
        switch (random() % 4) {
          case 0:
            damaged[at] = static_cast<char>(random());
            break;
          case 1:
            damaged[8 + random() % (header - 8)] = likely[random() % likely.size()];
            break;
          case 2:
            damaged.erase(at, 1 + random() % 4);
            break;
          default:
            damaged.insert(at, damaged.substr(random() % header, random() % 20));
            break;
        }
      }
      if (random() % 5 == 0) damaged.resize(random() % (damaged.size() + 9));
      // With a length that fits again the damage gets past the first check.
      if (const size_t end = damaged.find("}}"); round % 2 == 0 && end != std::string::npos && end > 8) {
        const uint64_t length = end + 2 - 8;
        std::memcpy(damaged.data(), &length, sizeof length);
      }
      try {
        const Parsed parsed(damaged);
        for (const std::string& name : parsed.file.names()) try {
            parsed.file.load(name);
            ++read;
          } catch (const Error&) {
            ++refused;
          }
      } catch (const Error& e) {
        ++refused;
        if (std::string_view(e.what()).find('\n') != std::string_view::npos) FAIL_CHECK(e.what());
      }
    }
    CHECK(refused > 500);
    CHECK(read > 100);  // damage of a value or a name goes unseen
  }

  TEST_CASE("files that cannot be opened") {
    const Folder folder;
    CHECK(error_of([&] { Safetensors::open(folder.path / "absent"); }).message ==
          fmt::format("[io] cannot open {}: No such file or directory", (folder.path / "absent").string()));
    CHECK(error_of([&] { Safetensors::open(folder.path); }).message.ends_with("not a regular file"));
    const fs::path pipe = folder.path / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(error_of([&] { Safetensors::open(pipe); }).message.ends_with("not a regular file"));
    write_text(folder.path / "empty", "");
    CHECK(MappedFile(folder.path / "empty").bytes().empty());
    CHECK(error_of([&] { Safetensors::open(folder.path / "empty"); }).message.find("0 bytes are too few") !=
          std::string::npos);
  }

  TEST_CASE("what cannot be written is refused, and the old file stays") {
    const Folder folder;
    const fs::path path = folder.path / "file";
    write_text(path, "old");
    HostTensor tensor = sample(DType::f32, {2});
    CHECK(error_of([&] { write_safetensors(path, {{"__metadata__", tensor}}); }).kind == "invalid");
    CHECK(error_of([&] { write_safetensors(path, {{"\xff", tensor}}); }).message.find("not UTF-8") !=
          std::string::npos);
    tensor.shape = {3};
    CHECK(error_of([&] { write_safetensors(path, {{"x", tensor}}); }).message ==
          fmt::format("[safetensors] {}: tensor 'x': 8 bytes do not fit shape (3) of f32", path.string()));
    tensor.shape = {-1, -2};
    CHECK(error_of([&] { write_safetensors(path, {{"x", tensor}}); }).kind == "invalid");
    CHECK(error_of([&] { write_safetensors(path / "below", {}); }).kind == "io");
    fs::create_directories(folder.path / "taken/inside");
    CHECK(error_of([&] { write_safetensors(folder.path / "taken", {}); }).kind == "io");
    CHECK(error_of([&] { write_safetensors(folder.path / std::string(300, 'n'), {}); }).kind == "io");
    CHECK(read_text(path) == "old");
    CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 2);
  }
}
