#include "embed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "backend/select.h"
#include "base/error.h"
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
    print_vector(embedder, std::string(std::istreambuf_iterator<char>(std::cin), {}));
    return 0;
  }
  size_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    const nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
    if (!value.is_string()) fail(ErrorKind::io, "[embed] line {} of the input is not a JSON string", number);
    print_vector(embedder, value.get<std::string>());
  }
  return 0;
}

}  // namespace weft::cli
