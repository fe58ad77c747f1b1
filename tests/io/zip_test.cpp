#include "io/zip.h"

#include <doctest/doctest.h>

#include <cstring>

#include "base/paths.h"
#include "io/inflate.h"
#include "support/gpus.h"
#include "support/scoped.h"
#include "weft/error.h"

using namespace weft;
using test::error_of;

namespace {

const std::string kSample = WEFT_SOURCE_DIR "/tests/data/zip/sample.zip";

std::string text_of(const Zip& zip, std::string_view member) {
  std::string text;
  zip.read(member, [&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return text;
}

std::string inflated(std::string_view stream) {
  std::string text;
  inflate(std::as_bytes(std::span(stream)), [&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return text;
}

}  // namespace

TEST_SUITE("base: zip") {
  TEST_CASE("members come back") {
    const Zip zip(kSample);
    std::vector<std::string> names;
    for (const auto& [name, member] : zip.members()) names.push_back(name);
    CHECK(names == std::vector<std::string>{"pkg/empty.txt", "pkg/model/deep/short.txt", "pkg/model/run.txt",
                                            "pkg/model/words.txt", "pkg/stored.txt"});
    CHECK(text_of(zip, "pkg/empty.txt").empty());
    CHECK(text_of(zip, "pkg/stored.txt") == "as it is");
    CHECK(text_of(zip, "pkg/model/deep/short.txt") == "abcabcabcabc");
    CHECK(text_of(zip, "pkg/model/run.txt") == std::string(100'000, 'r'));
    CHECK(text_of(zip, "pkg/model/words.txt").size() == 3000);  // its checksum says the rest
    CHECK(error_of([&] { text_of(zip, "pkg"); }).message == "[zip] " + kSample + ": has no member 'pkg'");
  }

  TEST_CASE("damaged archives") {
    const test::ScopedFolder folder;
    const std::string file = (folder.path / "z").string(), sample = *read_text(kSample);
    const auto message = [&](const std::string& bytes) {
      write_text(file, bytes);
      return error_of([&] {
               const Zip zip(file);
               for (const auto& [name, member] : zip.members()) text_of(zip, name);
             })
          .message;
    };
    const std::string none = "[zip] " + file + ": this is no zip archive, or it is cut off";
    CHECK(message("") == none);
    CHECK(message("PK") == none);
    CHECK(message(sample.substr(0, sample.size() - 1)) == none);
    write_text(file, sample + "a comment");
    CHECK(text_of(Zip(file), "pkg/stored.txt") == "as it is");
    std::string damaged = sample;
    damaged[sample.find("as it is")] = 'A';
    CHECK(message(damaged) ==
          "[zip] " + file + ": member 'pkg/stored.txt': is damaged: its checksum is wrong");
  }

  TEST_CASE("no change of a byte does harm") {
    const test::ScopedFolder folder;
    const std::string file = (folder.path / "z").string(), sample = *read_text(kSample);
    size_t refused = 0, tried = 0;
    for (size_t at = 0; at < sample.size(); at += 11, ++tried) {
      std::string bytes = sample;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
      write_text(file, bytes);
      try {
        const Zip zip(file);
        for (const auto& [name, member] : zip.members()) text_of(zip, name);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::io);
        ++refused;
      }
    }
    CHECK(refused > tried / 2);
  }

  TEST_CASE("damaged streams") {
    CHECK(inflated(std::string("\x01\x03\x00\xfc\xff"
                               "abc",
                               8)) == "abc");
    for (const std::string& bad : {
             std::string(""),
             std::string("\x07"),  // a block of an unknown kind
             std::string("\x01\x03\x00\x00\x00"
                         "abc",
                         8),  // a length that contradicts itself
             std::string("\x01\x09\x00\xf6\xff"
                         "abc",
                         8),                                  // cut off
             std::string("\x4b\x02\x11", 3),                  // a copy from before the beginning
             std::string("\x05\x00\x00\x00\x00\x00", 6),      // codes of no length
             std::string("\xed\xfd\xff\xff\xff\xff\xff", 7),  // too many codes
         }) {
      CAPTURE(bad.size());
      CHECK(error_of([&] { inflated(bad); }).kind == "io");
    }
  }
}
