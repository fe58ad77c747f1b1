#include "text/pieces.h"

#include "base/error.h"

namespace weft {

void check_growth(size_t before, size_t now) {
  constexpr size_t kMost = 64, kFree = 1 << 20;  // NFKC makes up to 33 bytes of the 3 of a character
  if (now > kFree && (now - kFree) / kMost > before)
    fail(ErrorKind::invalid, "[tokenizer] a text of {} bytes would become one of more than {} times as many",
         before, kMost);
}

std::string normalized(std::string_view text, const std::vector<Normalizer>& steps) {
  std::string result(text);
  for (const Normalizer& normalize : steps) {
    normalize(result);
    check_growth(text.size(), result.size());
  }
  return result;
}

void cut(Pieces& pieces, const std::vector<PreTokenizer>& steps) {
  const size_t before = pieces.text.size();
  for (const PreTokenizer& step : steps) {
    step(pieces);
    check_growth(before, pieces.text.size());
  }
}

}  // namespace weft
