#include "text/decoder.h"

#include "text/byte_level.h"
#include "text/model.h"
#include "text/normalize.h"

namespace weft::decoders {
namespace {

/// Spaces that English has not.
void clean_up(std::string& text) {
  constexpr std::pair<const char*, const char*> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) normalizers::replace(from, to)(text);
}

}  // namespace

DecodeStep byte_level() {
  return [](std::string& piece, bool) { piece = from_byte_level(piece); };
}

DecodeStep byte_fallback() {
  return [](std::string& piece, bool) {
    if (const int byte = byte_of_token(piece); byte >= 0) piece = static_cast<char>(byte);
  };
}

DecodeStep replace(std::string from, std::string to) {
  return [change = normalizers::replace(std::move(from), std::move(to))](std::string& piece, bool) {
    change(piece);
  };
}

DecodeStep metaspace(std::string replacement, bool drop_first) {
  return [replacement = std::move(replacement), drop_first](std::string& piece, bool first) {
    if (first && drop_first && piece.starts_with(replacement)) piece.erase(0, replacement.size());
    normalizers::replace(replacement, " ")(piece);
  };
}

DecodeStep wordpiece(std::string prefix, bool cleanup) {
  return [prefix = std::move(prefix), cleanup](std::string& piece, bool first) {
    if (!first) {
      if (piece.starts_with(prefix))
        piece.erase(0, prefix.size());
      else
        piece.insert(0, " ");
    }
    if (cleanup) clean_up(piece);
  };
}

DecodeStep strip_start(std::string content, size_t start, bool only_first) {
  return [content = std::move(content), start, only_first](std::string& piece, bool first) {
    if (content.empty() || (only_first && !first)) return;
    size_t cut = 0;
    for (size_t i = 0; i < start && std::string_view(piece).substr(cut).starts_with(content); ++i)
      cut += content.size();
    piece.erase(0, cut);
  };
}

DecodeStep rwkv() {
  return [](std::string& piece, bool) { piece = unescape_rwkv(piece); };
}

}  // namespace weft::decoders
