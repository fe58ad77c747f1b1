#include "tokenize.h"

#include <fmt/format.h>

#include <iostream>
#include <iterator>

#include "base/error.h"
#include "io/json.h"
#include "pull/pull.h"
#include "weft/text.h"

namespace weft::cli {
namespace {

using nlohmann::json;

/// In quotes, with escapes; half a character is shown as U+FFFD.
std::string in_quotes(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

void print_tokens(const Tokenizer& tokenizer, std::string_view text, const TokenizeOptions& options) {
  const std::vector<TokenId> ids = tokenizer.encode(text, {.parse_special = options.special});
  if (!options.explain) {
    fmt::print("{}\n", json(ids).dump());
    return;
  }
  Detokenizer detokenizer(tokenizer, {.special = true, .continues = true});
  for (TokenId id : ids)
    fmt::print("{:>7}  {:7}  {}  {}\n", id, tokenizer.is_control(id) ? "control" : "text",
               in_quotes(tokenizer.spelling(id)), in_quotes(detokenizer.push(id)));
}

}  // namespace

int tokenize(const TokenizeOptions& options) {
  const Tokenizer tokenizer = Tokenizer::open(pull::resolve_model(options.model));
  if (!options.jsonl) {
    const std::string text(std::istreambuf_iterator<char>(std::cin), {});
    print_tokens(tokenizer, text, options);
    return 0;
  }
  size_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    const json value = parse_json(line, fmt::format("[tokenize] line {} of the input", number));
    if (!value.is_string())
      fail(ErrorKind::io, "[tokenize] line {} of the input is not a JSON string", number);
    print_tokens(tokenizer, value.get<std::string>(), options);
    std::fflush(stdout);  // who writes line by line may wait for the answer
  }
  return 0;
}

}  // namespace weft::cli
