#include "io/gguf.h"

#include <cstdint>
#include <cstdlib>

#include "text/gguf_tokenizer.h"
#include "weft/error.h"
#include "weft/text.h"

/// libFuzzer's entry. The input is a GGUF file. Damage must end in a weft::Error of one line; where there is
/// a vocabulary, ids must be tokens.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto file = weft::Gguf::parse(std::as_bytes(std::span(data, size)), "fuzz");
    const weft::Tokenizer tokenizer(weft::read_gguf_tokenizer(file));
    for (weft::TokenId id :
         tokenizer.encode("a b <s> \xc3\xa9 12", {.add_special = true, .parse_special = true}))
      if (id < 0 || static_cast<size_t>(id) >= tokenizer.size()) std::abort();
  } catch (const weft::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
