#include "text/regex.h"

#include <doctest/doctest.h>

#include <string>

#include "support/gpus.h"
#include "weft/error.h"

using namespace weft;
using test::error_of;

namespace {

using Words = std::vector<std::string>;

/// Every match and what is between, as a pre-tokenizer that isolates its matches sees them.
Words split(const std::string& pattern, const std::string& text) {
  const Regex regex(pattern);
  RegexSearch search(regex);
  search.start(text);
  Words words;
  size_t end = 0;
  const auto add = [&](size_t from, size_t to) {
    if (from < to) words.push_back(text.substr(from, to - from));
  };
  while (const auto match = search.next()) {
    add(end, match->begin);
    add(match->begin, match->end);
    end = match->end;
  }
  add(end, text.size());
  return words;
}

std::string repeated(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

const std::string kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

TEST_SUITE_BEGIN("base: regex");

TEST_CASE("what tokenizers' patterns use, with the words that Oniguruma finds") {
  CHECK(split(kLlama3,
              "I'LL  go\r\n 12345 \xc3\x9c"
              "ber-\xe4\xb8\xad") == Words{"I", "'LL", " ", " go", "\r\n", " ", "123", "45",
                                           " \xc3\x9c"
                                           "ber",
                                           "-\xe4\xb8\xad"});
  CHECK(split(R"(\d{1,3}(?=(?:\d{3})*\b))", "1234567 12a") == Words{"1", "234", "567", " 12a"});
  CHECK(split(R"((?=(\d{3})+(?!\d)))", "1234567 12") == Words{"1", "234", "567 12"});
  CHECK(split(R"(\d{1,3}+)", "1234567") == Words{"1234567"});  // Ruby's syntax: not possessive
  CHECK(split(R"(a++b|a)", "aaa") == Words{"a", "a", "a"});
  CHECK(split(R"((?>a|ab)c)", "abc") == Words{"abc"});
  CHECK(split(R"([a-c&&[^b]]+)", "abcabc") == Words{"a", "b", "ca", "b", "c"});
  CHECK(split(R"([^a-c&&[^b]]+)", "abcabcd") == Words{"a", "b", "ca", "b", "c", "d"});
  CHECK(split(R"((?<=a|bc)d)", "adbcdd") == Words{"a", "d", "bc", "d", "d"});
  CHECK(split(R"((?<!\d)\d)", "12 3") == Words{"1", "2 ", "3"});
  CHECK(split(R"(a$|^b)", "ba\nba") == Words{"b", "a", "\n", "b", "a"});
  CHECK(split(R"(\b)", "ab cd") == Words{"ab", " ", "cd"});
  CHECK(split(R"(\R)", "a\r\nb") == Words{"a", "\r\n", "b"});
  CHECK(split(R"((a*)*b|a+?)", "aaba") == Words{"aab", "a"});
  CHECK(split(R"([]a-]+|\x{62}\u0063|\[)", "-]abc[") == Words{"-]a", "bc", "["});
  CHECK(split(R"(\p{Han}+|[[:alpha:]]+|\p{^N})",
              "\xe4\xb8\xad"
              "ab1!") == Words{"\xe4\xb8\xad", "ab", "1", "!"});
  CHECK(split(R"([[:alpha:]]+)", "e\u0301\u0345\u2160") == Words{"e", "\u0301", "\u0345\u2160"});
  CHECK(split(R"([[:lower:]]+)", "\u00aaA\u24d0") == Words{"\u00aa", "A", "\u24d0"});
  CHECK(split(R"(\p{Katakana}+)", "\u32d0\u30fc") == Words{"\u32d0", "\u30fc"});
  CHECK(split(R"(\p{Arabic}+)", "\u0628\u060c") == Words{"\u0628", "\u060c"});
  CHECK(split(R"(\w+)", "x\u00b2.") == Words{"x\u00b2", "."});
  CHECK(split(R"([\w]+)", "x\u00b2.") == Words{"x", "\u00b2."});
  CHECK(split(R"((?i)STRASSE|\P{L}(?#not))", "Stra\xc5\xbfse!") == Words{"Stra\xc5\xbfse", "!"});
  CHECK(split(R"((?x) a b # two)", "ab") == Words{"ab"});
  CHECK(split("", "ab") == Words{"a", "b"});
  CHECK(split("x", "") == Words{});
}

TEST_CASE("time is linear in the text, however it is chosen") {
  constexpr size_t kMany = 200'000;
  CHECK(split(kLlama3, repeated(" ", kMany)).size() == 1);
  CHECK(split(kLlama3, repeated("a", kMany)).size() == 1);
  CHECK(split(kLlama3, repeated("' ", kMany)).size() == kMany + 1);
  CHECK(split("a*b|a", repeated("a", kMany)).size() == kMany);                        // never finds its b
  CHECK(split("(a*)*b", repeated("a", kMany)).size() == 1);                           // exponential elsewhere
  CHECK(split(R"(\d{1,3}(?=(?:\d{3})*\b))", repeated("7", kMany)).size() == 66'667);  // look-ahead to the end
  CHECK(split(R"((?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+!)", repeated("a ", kMany)).size() == 1);
  CHECK(split(R"(.*+\n|.)", repeated("a", kMany)).size() == kMany);  // the group always reaches the end
  CHECK(split("(?>(?>(?>(?>(?>a*)b?)*c?)*d?)*e?)*f|a", repeated("a", kMany)).size() == kMany);
}

TEST_CASE("a class of many characters is read in time that is linear in it") {
  std::string pattern = "[", text;
  for (uint32_t code = 0x4E00; code < 0x4E00 + 34'000; code += 2) {
    for (std::string* each : {&pattern, &text}) {
      *each += static_cast<char>(0xE0 | code >> 12);
      *each += static_cast<char>(0x80 | (code >> 6 & 63));
      *each += static_cast<char>(0x80 | (code & 63));
    }
  }
  CHECK(split(pattern + "]+", text + "a" + text).size() == 3);
}

TEST_CASE("a pattern that is wrong or too much is one line") {
  for (const char* pattern : {"(", ")", "[a", "[b-a]", "*", "a{3,1}", "(?<=a+)b", R"(\p{Nope})", R"((a)\1)",
                              "\\", "(?q)", "[[:nope:]]", R"(\x{110000})", "(?<name", "a{9999999}"}) {
    CAPTURE(pattern);
    const std::string error = error_of([&] { Regex regex(pattern); }).message;
    CHECK(error.starts_with("[regex] '"));
    CHECK(error.find('\n') == std::string::npos);
  }
  CHECK(error_of([] { Regex regex("((a{1000}){1000}){1000}"); }).message.find("too large") !=
        std::string::npos);
  for (const char* empty : {"(?:(?:(?:){100000}){100000}){100000}", "(?<=(?:(?:){100000}){100000})a",
                            "(?:(?:(?#x)){100000}){100000}"})
    CHECK(error_of([&] { Regex regex(empty); }).message.find("too large") != std::string::npos);
  CHECK(error_of([] { Regex regex(repeated(R"(\p{L})", 100'000)); }).message.ends_with("500000 bytes"));
  CHECK(error_of([] { Regex regex(repeated("a++", 100)); }).message.find("too large") != std::string::npos);
  CHECK(error_of([] { Regex regex(repeated("(", 10'000)); }).message.find("too deeply") != std::string::npos);
  CHECK(error_of([] { Regex regex("a" + repeated("*", 10'000)); }).message.find("too deeply") !=
        std::string::npos);
  CHECK(error_of([] { Regex regex(repeated("[", 10'000)); }).message.find("too deeply") != std::string::npos);
}

TEST_SUITE_END();
