#include "text/unicode.h"

#include <doctest/doctest.h>

#include "text/utf8.h"

using namespace weft;
using unicode::Form;

TEST_SUITE_BEGIN("base: unicode");

TEST_CASE("categories, spaces, small letters") {
  CHECK(unicode::is_letter(U'a'));
  CHECK(unicode::is_letter(0x4E00));   // first and
  CHECK(unicode::is_letter(0x323AF));  // last of a long range
  CHECK(unicode::is_number(0xBD));
  CHECK(unicode::is_mark(0x301));
  CHECK(unicode::is_punctuation(U'_'));
  CHECK_FALSE(unicode::is_punctuation(U'+'));
  CHECK(unicode::category(0x10FFFF) == unicode::kUnassigned);
  CHECK(unicode::category(0x110000) == unicode::kUnassigned);
  for (char32_t code : {0x9, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x2028, 0x202F, 0x205F, 0x3000})
    CHECK(unicode::is_space(code));
  for (char32_t code : {0x8, 0xE, 0x1C, 0x200B, 0x180E, 0xFEFF}) CHECK_FALSE(unicode::is_space(code));
  CHECK(unicode::lower(U'A') == U'a');
  CHECK(unicode::lower(0x100) == 0x101);
  CHECK(unicode::lower(0x101) == 0x101);
  CHECK(unicode::lower(0x10400) == 0x10428);
  CHECK(unicode::lower(0x130) == U'i');
  std::string text;
  unicode::append_lower(text, 0x130);
  CHECK(text == "i\u0307");
  CHECK(unicode::base_letter(0x1EA4) == U'A');
  CHECK(unicode::base_letter(U'x') == U'x');
}

TEST_CASE("the four normal forms") {
  const auto form = [](std::string_view text, Form f) { return unicode::normalize(text, f); };
  CHECK(form("plain", Form::nfc) == "plain");
  CHECK(form("\u00e9", Form::nfd) == "e\u0301");
  CHECK(form("e\u0301", Form::nfc) == "\u00e9");
  CHECK(form("\u1ea4", Form::nfd) == "A\u0302\u0301");
  CHECK(form("A\u0302\u0301", Form::nfc) == "\u1ea4");
  CHECK(form("a\u0315\u0300", Form::nfd) == "a\u0300\u0315");  // marks in order of their class
  CHECK(form("a\u0315\u0300", Form::nfc) == "\u00e0\u0315");   // which no longer blocks
  CHECK(form("\uac01", Form::nfd) == "\u1100\u1161\u11a8");
  CHECK(form("\u1100\u1161\u11a8", Form::nfc) == "\uac01");
  CHECK(form("\ufb01\u00b2", Form::nfkc) == "fi2");
  CHECK(form("\ufb01\u00b2", Form::nfc) == "\ufb01\u00b2");
  CHECK(form("\u212b", Form::nfc) == "\u00c5");  // a singleton is not composed back
  CHECK(form("\ufdfa", Form::nfkd).size() == 33);
  std::string marks = "a";
  for (int i = 0; i < 100'000; ++i) marks += i % 2 == 0 ? "\u0315" : "\u0300";
  CHECK(form(marks, Form::nfc).size() == marks.size() - 1);  // a and the first grave accent became one letter
}

TEST_CASE("bytes that are no character become U+FFFD, one each") {
  CHECK(utf8::valid("a\xc3\xa9z") == "a\u00e9z");
  CHECK(utf8::valid("\xff") == "\ufffd");
  CHECK(utf8::valid("\xc3") == "\ufffd");
  CHECK(utf8::valid("\xe2\x82!") == "\ufffd\ufffd!");
  CHECK(utf8::valid("\xc0\x80") == "\ufffd\ufffd");            // overlong
  CHECK(utf8::valid("\xed\xa0\x80") == "\ufffd\ufffd\ufffd");  // surrogate
  CHECK(utf8::valid("\xf4\x90\x80\x80").size() == 12);         // above U+10FFFF
  CHECK(utf8::complete_length("ab\xe2\x82") == 2);
  CHECK(utf8::complete_length("ab\xe2\x82\xac") == 5);
  CHECK(utf8::complete_length("ab\x82\x82\x82\x82") == 6);
  CHECK(utf8::complete_length("") == 0);
}

TEST_SUITE_END();
