#include "text/normalize.h"

#include <algorithm>
#include <memory>

#include "text/byte_level.h"
#include "text/find.h"
#include "text/trie.h"
#include "text/utf8.h"

namespace weft::normalizers {
namespace {

/// A normalizer that looks at one character at a time: `change(code, out)` appends what becomes of it.
template <typename Change>
Normalizer each_character(Change change) {
  return [change](std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) change(utf8::next(text, pos), out);
    text = std::move(out);
  };
}

bool is_chinese(char32_t code) {
  constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::ranges::any_of(kBlocks,
                             [&](const auto& block) { return code >= block.first && code <= block.second; });
}

/// Marks and joiners that belong to the character before them.
bool extends_cluster(char32_t code) {
  return unicode::is_mark(code) || code == 0x200C || code == 0x200D;
}

/// End of the cluster at `pos`. Only whether it has below 6 bytes counts, so flags, families and Hangul need
/// no rule.
size_t cluster_end(std::string_view text, size_t pos) {
  const char32_t first = utf8::next(text, pos);
  if (first == '\r' && pos < text.size() && text[pos] == '\n') return pos + 1;
  const unicode::Categories apart = unicode::kOther | (unicode::kSeparator & ~unicode::kSpaceSeparator);
  if (unicode::category(first) & apart) return pos;
  while (pos < text.size()) {
    size_t behind = pos;
    if (!extends_cluster(utf8::next(text, behind))) break;
    pos = behind;
  }
  return pos;
}

/// Unlike strip_accents(), which takes marks that have a place of their own as well.
void drop_accents(std::string& text) {
  std::string out;
  const std::string parts = unicode::normalize(text, unicode::Form::nfd);
  for (size_t pos = 0; pos < parts.size();) {
    const char32_t code = utf8::next(parts, pos);
    if (!(unicode::category(code) & unicode::kNonspacingMark)) utf8::append(out, code);
  }
  text = std::move(out);
}

void append_spaced(std::string& out, char32_t code) {
  out += ' ';
  utf8::append(out, code);
  out += ' ';
}

}  // namespace

Normalizer unicode_form(unicode::Form form) {
  return [form](std::string& text) { text = unicode::normalize(text, form); };
}

Normalizer lowercase() {
  return each_character([](char32_t code, std::string& out) { unicode::append_lower(out, code); });
}

Normalizer strip_accents() {
  return each_character([](char32_t code, std::string& out) {
    if (!unicode::is_mark(code)) utf8::append(out, code);
  });
}

Normalizer strip(bool left, bool right) {
  return [left, right](std::string& text) {
    size_t begin = 0, end = text.size();
    while (left && begin < end) {
      size_t behind = begin;
      if (!unicode::is_space(utf8::next(text, behind))) break;
      begin = behind;
    }
    while (right && begin < end) {
      size_t before = end;
      if (!unicode::is_space(utf8::previous(text, before))) break;
      end = before;
    }
    text = text.substr(begin, end - begin);
  };
}

Normalizer prepend(std::string prefix) {
  return [prefix = std::move(prefix)](std::string& text) {
    if (!text.empty()) text.insert(0, prefix);
  };
}

Normalizer replace(std::string from, std::string to) {
  return [from = std::move(from), to = std::move(to)](std::string& text) {
    if (from.empty()) return;
    std::string out;
    size_t begin = 0;
    for (size_t found; (found = find_text(text, from, begin)) != std::string::npos;
         begin = found + from.size()) {
      out.append(text, begin, found - begin).append(to);
      check_growth(text.size(), out.size());
    }
    text = out.append(text, begin);
  };
}

Normalizer replace_matches(Regex regex, std::string to) {
  return [regex = std::make_shared<Regex>(std::move(regex)), to = std::move(to)](std::string& text) {
    RegexSearch search(*regex);
    search.start(text);
    std::string out;
    size_t end = 0;
    while (const auto match = search.next()) {
      out.append(text, end, match->begin - end).append(to);
      check_growth(text.size(), out.size());
      end = match->end;
    }
    text = out.append(text, end);
  };
}

Normalizer byte_level() {
  return [](std::string& text) { text = to_byte_level(text); };
}

Normalizer nmt() {
  return each_character([](char32_t code, std::string& out) {
    const bool dropped = (code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) ||
                         code == 0x7F || code == 0x8F || code == 0x9F;
    constexpr char32_t kSpaces[] = {0x9,    0xA,    0xC,    0xD,    0x1680, 0x200B, 0x200C, 0x200D,
                                    0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD};
    if (!dropped) utf8::append(out, std::ranges::find(kSpaces, code) != std::end(kSpaces) ? U' ' : code);
  });
}

Normalizer precompiled(CharsMap map) {
  return [map = std::make_shared<CharsMap>(std::move(map))](std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
      const size_t end = cluster_end(text, pos);
      const std::string_view cluster = std::string_view(text).substr(pos, end - pos);
      constexpr size_t kLongest = 6;  // of the library that reads tokenizer.json
      const auto whole = cluster.size() < kLongest ? map->shortest(cluster) : std::nullopt;
      if (whole) out += whole->replacement;
      while (!whole && pos < end) {
        const size_t next = utf8::next_position(text, pos);
        const std::string_view character = std::string_view(text).substr(pos, next - pos);
        const auto match = map->shortest(character);
        out += match ? match->replacement : character;
        pos = next;
      }
      check_growth(text.size(), out.size());
      pos = end;
    }
    text = utf8::valid(out);
  };
}

Normalizer bert(const BertOptions& options) {
  return [options, lower = lowercase()](std::string& text) {
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const char32_t code = utf8::next(text, pos);
      // What is not assigned stays: it may be a character of a later Unicode.
      const unicode::Categories dropped = unicode::kOther & ~unicode::kUnassigned;
      const bool kept = code == '\t' || code == '\n' || code == '\r' || !(unicode::category(code) & dropped);
      if (options.clean_text && (!kept || code == utf8::kReplacement)) continue;
      if (options.clean_text && unicode::is_space(code))
        out += ' ';
      else if (options.space_chinese && is_chinese(code))
        append_spaced(out, code);
      else
        utf8::append(out, code);
    }
    text = std::move(out);
    if (options.strip_accents) drop_accents(text);
    if (options.lowercase) lower(text);
  };
}

Normalizer bert_gguf(const BertOptions& options) {
  return each_character([options](char32_t code, std::string& out) {
    if (options.strip_accents) code = unicode::base_letter(code);
    if (unicode::is_space(code)) {
      out += ' ';
      return;
    }
    const unicode::Categories category = unicode::category(code);
    if (code == 0 || code == utf8::kReplacement) return;
    if ((category & unicode::kOther) && !(category & unicode::kUnassigned)) return;
    if (options.strip_accents && (category & unicode::kMark)) return;
    const char32_t result = options.lowercase ? unicode::lower(code) : code;
    if (is_chinese(code))
      append_spaced(out, result);
    else
      utf8::append(out, result);
  });
}

Normalizer sentencepiece(SentencePieceOptions options) {
  std::vector<std::pair<std::string_view, TokenId>> kept;
  auto shared = std::make_shared<const SentencePieceOptions>(std::move(options));
  for (const std::string& text : shared->kept) kept.emplace_back(text, 0);
  return [shared, kept = Trie(std::move(kept))](std::string& text) {
    const std::string space = shared->escape_spaces ? "\u2581" : " ";
    std::string out;
    bool after_space = true, prefixed = false;
    const auto append = [&](std::string_view part) {
      for (char c : part) {
        if (c == ' ') {
          after_space = true;
          if (!shared->merge_spaces) out += space;
          continue;
        }
        if (after_space && (shared->merge_spaces || (shared->space_prefix && !shared->suffix && !prefixed))) {
          out += space;
          prefixed = true;
        }
        after_space = false;
        out += c;
      }
    };
    for (std::string_view rest = text; !rest.empty();) {
      size_t length = kept.longest(rest).length;
      const auto match = length == 0 && shared->map ? shared->map->longest(rest) : std::nullopt;
      if (match)
        length = match->length;
      else if (length == 0)
        length = utf8::next_position(rest, 0);
      append(match ? match->replacement : rest.substr(0, length));
      check_growth(text.size(), out.size());
      rest.remove_prefix(length);
    }
    if (shared->suffix && shared->space_prefix) out += space;
    text = utf8::valid(out);
  };
}

}  // namespace weft::normalizers
