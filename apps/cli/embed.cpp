#include "embed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <iterator>

#include "backend/select.h"
#include "base/error.h"
#include "io/json.h"
#include "llm/embed.h"
#include "pull/pull.h"

namespace weft::cli {
namespace {

void print_vector(llm::Embedder& embedder, std::string_view text) {
  fmt::print("[{}]\n", fmt::join(embedder.embed(text), ", "));
  std::fflush(stdout);  // who writes line by line may wait for the answer
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
    const nlohmann::json value = parse_json(line, fmt::format("[embed] line {} of the input", number));
    if (!value.is_string()) fail(ErrorKind::io, "[embed] line {} of the input is not a JSON string", number);
    print_vector(embedder, value.get<std::string>());
  }
  return 0;
}

}  // namespace weft::cli
