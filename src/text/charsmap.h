#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// SentencePiece's precompiled map of character sequences to replacements: a double array over the bytes of
/// the sequences, then the replacements. Every access is checked: the map comes out of a file.
class CharsMap {
 public:
  /// Throws ErrorKind::io when the sizes inside do not fit.
  explicit CharsMap(std::string_view blob);

  struct Match {
    size_t length;  ///< bytes of the text
    std::string_view replacement;
  };
  /// For the begin of `text`; nullopt when no sequence of the map is there.
  std::optional<Match> longest(std::string_view text) const;
  std::optional<Match> shortest(std::string_view text) const;

 private:
  std::optional<Match> find(std::string_view text, bool longest) const;
  std::optional<std::string_view> replacement(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace weft
