#include <cstdint>
#include <cstdlib>

#include "llm/grammar/grammar.h"
#include "llm/grammar/json_schema.h"
#include "weft/error.h"

/// libFuzzer's entry. The input is a JSON Schema. Damage must end in a weft::Error of one line; a grammar
/// that comes out must be one, unless it is too large.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string gbnf;
  try {
    gbnf = weft::json_schema_to_gbnf({reinterpret_cast<const char*>(data), size});
  } catch (const weft::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
    return 0;
  }
  try {
    weft::Grammar{gbnf};
  } catch (const weft::Error& e) {
    const std::string_view message = e.what();
    if (message.find("too large") == message.npos && message.find("nested") == message.npos) std::abort();
  }
  return 0;
}
