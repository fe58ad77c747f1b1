#include "embed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/select.h"
#include "input.h"
#include "llm/embed.h"
#include "pull/pull.h"
#include "term.h"

namespace weft::cli {
namespace {

void print_vector(llm::Embedder& embedder, std::string_view text) {
  fmt::print("[{}]\n", fmt::join(embedder.embed(text), ", "));
  term::flush();  // who writes line by line may wait for the answer
}

}  // namespace

int embed(const EmbedOptions& options) {
  const Device device = Device::open(device_wish(options.device).value);
  llm::Embedder embedder(pull::resolve_model(options.model), device);
  if (!options.jsonl) {
    print_vector(embedder, read_input("embed"));
    return 0;
  }
  for_each_text("embed", [&](const std::string& text) { print_vector(embedder, text); });
  return 0;
}

}  // namespace weft::cli
