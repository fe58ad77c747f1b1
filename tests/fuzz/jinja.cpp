#include <cstdint>
#include <cstdlib>

#include "weft/chat.h"
#include "weft/error.h"

/// libFuzzer's entry. The input is a template; it must render a conversation or end in a weft::Error of one
/// line.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::ChatInput input{
      .messages = R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a\u00e9 <|b|>\n"},
                      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function":
                        {"name": "f", "arguments": {"x": [1, 2.5, true]}}}]}])",
      .tools = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])",
      .bos_token = "<s>",
      .eos_token = "</s>",
      .now = "2026-01-15T09:30:00"};
  try {
    weft::ChatTemplate({reinterpret_cast<const char*>(data), size}).render(input);
  } catch (const weft::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
