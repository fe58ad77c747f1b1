#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "io/safetensors.h"
#include "llm/config.h"
#include "weft/error.h"

namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Where the readers find the input, which they take from files only.
const fs::path& folder() {
  static const fs::path path = [] {
    fs::path made = fs::temp_directory_path() / ("weft-fuzz-" + std::to_string(getpid()));
    fs::create_directories(made);
    std::atexit([] { fs::remove_all(folder()); });
    return made;
  }();
  return path;
}

}  // namespace

/// libFuzzer's entry. The input is a GGUF file, or a config.json and behind a zero byte a safetensors file.
/// Damage must end in a weft::Error of one line; where there is none, every tensor has the values it says.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const bool is_gguf = input.starts_with("GGUF") || zero == input.npos;
  if (is_gguf) {
    write(folder() / "model.gguf", input);
  } else {
    write(folder() / "config.json", input.substr(0, zero));
    write(folder() / "model.safetensors", input.substr(zero + 1));
  }
  try {
    const auto model = weft::llm::ModelFile::open(is_gguf ? folder() / "model.gguf" : folder());
    for (const auto& [name, tensor] : model.tensors)
      if (tensor.values().size() != static_cast<size_t>(weft::element_count(tensor.shape))) std::abort();
    const weft::llm::Config config(model);
    config.check_heads(model);
  } catch (const weft::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
