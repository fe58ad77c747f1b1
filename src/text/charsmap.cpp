#include "text/charsmap.h"

#include <cstring>

#include "base/error.h"

namespace weft {
namespace {

// A unit of the double array (darts-clone's layout).
bool has_leaf(uint32_t unit) {
  return unit >> 8 & 1;
}
uint32_t value(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label(uint32_t unit) {
  return unit & 0x800000FF;
}
uint32_t offset(uint32_t unit) {
  return unit >> 10 << ((unit & 0x200) >> 6);
}

}  // namespace

CharsMap::CharsMap(std::string_view blob) {
  uint32_t size = 0;
  if (blob.size() < sizeof size)
    fail(ErrorKind::io, "[tokenizer] precompiled_charsmap has {} bytes", blob.size());
  std::memcpy(&size, blob.data(), sizeof size);
  blob.remove_prefix(sizeof size);
  if (size > blob.size() || size % sizeof(uint32_t) != 0)
    fail(ErrorKind::io, "[tokenizer] precompiled_charsmap: {} bytes of {} are announced", size, blob.size());
  units_.resize(size / sizeof(uint32_t));
  if (size > 0) std::memcpy(units_.data(), blob.data(), size);
  replacements_ = blob.substr(size);
}

std::optional<CharsMap::Match> CharsMap::longest(std::string_view text) const {
  return find(text, true);
}
std::optional<CharsMap::Match> CharsMap::shortest(std::string_view text) const {
  return find(text, false);
}

std::optional<CharsMap::Match> CharsMap::find(std::string_view text, bool longest) const {
  std::optional<Match> match;
  if (units_.empty()) return match;
  uint32_t at = offset(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != 0; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size() || label(units_[at]) != byte) break;
    const bool leaf = has_leaf(units_[at]);
    at ^= offset(units_[at]);
    if (!leaf) continue;
    if (at >= units_.size()) break;
    if (const auto found = replacement(value(units_[at]))) match = Match{i + 1, *found};
    if (match && !longest) break;
  }
  return match;
}

std::optional<std::string_view> CharsMap::replacement(uint32_t offset) const {
  if (offset >= replacements_.size()) return std::nullopt;
  const size_t end = replacements_.find('\0', offset);
  if (end == std::string::npos) return std::nullopt;
  return std::string_view(replacements_).substr(offset, end - offset);
}

}  // namespace weft
