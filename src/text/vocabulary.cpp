#include "text/vocabulary.h"

#include <bit>
#include <charconv>
#include <functional>

namespace weft {
namespace {

uint32_t hash_of(std::string_view text) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(text));
}

}  // namespace

Vocabulary::Vocabulary(std::vector<Token> tokens)
    : tokens_(std::move(tokens)), slots_(std::bit_ceil(tokens_.size() * 2 + 1)) {
  bytes_.fill(kNoToken);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view text = tokens_[i].text;
    slots_[slot_of(text, hash_of(text))] = {hash_of(text), id};
    if (const int byte = byte_of_token(text); byte >= 0) bytes_[static_cast<size_t>(byte)] = id;
  }
}

size_t Vocabulary::slot_of(std::string_view text, uint32_t hash) const {
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].id != kNoToken && (slots_[at].hash != hash || (*this)[slots_[at].id].text != text))
    at = (at + 1) & (slots_.size() - 1);
  return at;
}

TokenId Vocabulary::find(std::string_view text) const {
  return slots_[slot_of(text, hash_of(text))].id;
}

TokenId Vocabulary::find_plain(std::string_view text) const {
  const TokenId id = find(text);
  return id != kNoToken && is_plain(id) ? id : kNoToken;
}

bool Vocabulary::is_control(TokenId id) const {
  const TokenKind kind = (*this)[id].kind;
  return kind == TokenKind::control || kind == TokenKind::unknown;
}

bool Vocabulary::append_bytes(std::string_view bytes, std::vector<TokenId>& out) const {
  const size_t before = out.size();
  for (char byte : bytes) {
    out.push_back(bytes_[static_cast<unsigned char>(byte)]);
    if (out.back() != kNoToken) continue;
    out.resize(before);
    return false;
  }
  return true;
}

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  const char* end = text.data() + 5;
  const auto [stop, error] = std::from_chars(text.data() + 3, end, value, 16);
  return error == std::errc() && stop == end && value >= 0 ? value : -1;
}

}  // namespace weft
