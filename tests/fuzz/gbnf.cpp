#include <cstdint>
#include <cstdlib>

#include "llm/grammar/grammar.h"
#include "llm/toy_vocabulary.h"
#include "weft/error.h"

/// libFuzzer's entry. The input is a grammar, and behind a zero byte a text that is offered to it byte by
/// byte. Damage must end in a weft::Error of one line; the set of allowed tokens must be what asking for each
/// says.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokens =
      std::make_shared<const weft::TokenTrie>(weft::test::toy_tokenizer({"ab", "aa", "\xC3\xA9", "\":"}));
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view text = zero == input.npos ? "aab\xC3\xA9" : input.substr(zero + 1);
  try {
    weft::GrammarState state(weft::Grammar(input.substr(0, zero)), tokens);
    for (char byte : text.substr(0, 50)) {
      const auto mask = state.allowed();
      for (weft::TokenId id = 0; static_cast<size_t>(id) < tokens->size(); ++id)
        if ((*mask)[id] != state.allows(id)) std::abort();
      const weft::TokenId id = static_cast<unsigned char>(byte);
      if (!state.allows(id)) break;
      state.accept(id);
    }
  } catch (const weft::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
