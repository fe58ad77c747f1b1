#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// A text cut into pieces, on its way through the pre-tokenizers.
struct Pieces {
  struct Span {
    size_t begin, end;
  };
  std::string text;
  std::vector<Span> spans;
  bool at_start = true;  ///< the text begins where the input begins, not behind an added token

  std::string_view operator[](size_t i) const {
    return std::string_view(text).substr(spans[i].begin, spans[i].end - spans[i].begin);
  }
};

/// Called while a step makes a text longer: fails (ErrorKind::invalid) far above what real steps make, so
/// that a small file cannot ask for all memory.
void check_growth(size_t before, size_t now);

using Normalizer = std::function<void(std::string&)>;
using PreTokenizer = std::function<void(Pieces&)>;

// All steps, one after the other; check_growth holds for all of them together too.
std::string normalized(std::string_view text, const std::vector<Normalizer>& steps);
void cut(Pieces& pieces, const std::vector<PreTokenizer>& steps);

}  // namespace weft
