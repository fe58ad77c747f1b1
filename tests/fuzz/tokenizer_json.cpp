#include "text/tokenizer_json.h"

#include <cstdint>
#include <cstdlib>

#include "weft/error.h"

/// libFuzzer's entry. The input is a tokenizer.json, and behind a zero byte a text. Damage must end in a
/// weft::Error of one line; ids must be tokens.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view text = zero == input.npos ? "a b <s> \xc3\xa9 12" : input.substr(zero + 1);
  try {
    const weft::Tokenizer tokenizer(weft::parse_tokenizer_json(input.substr(0, zero), "", "fuzz"));
    const auto ids = tokenizer.encode(text, {.add_special = true, .parse_special = true});
    for (weft::TokenId id : ids)
      if (id < 0 || static_cast<size_t>(id) >= tokenizer.size()) std::abort();
    tokenizer.decode(ids);
  } catch (const weft::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
