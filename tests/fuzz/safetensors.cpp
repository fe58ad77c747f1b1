#include "io/safetensors.h"

#include <cstdint>
#include <cstdlib>

#include "weft/error.h"

/// libFuzzer's entry. Damage must end in a weft::Error of one line; anything else that is thrown ends the
/// run.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto check_message = [](const weft::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
  };
  try {
    const auto file = weft::Safetensors::parse(std::as_bytes(std::span(data, size)), "fuzz");
    for (const std::string& name : file.names()) try {
        if (file.load(name).bytes.size() > size) std::abort();
      } catch (const weft::Error& e) {  // a dtype that weft has not, a bool that is none
        check_message(e);
      }
  } catch (const weft::Error& e) {
    check_message(e);
  }
  return 0;
}
