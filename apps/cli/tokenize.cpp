#include "tokenize.h"

#include <fmt/format.h>

#include "input.h"
#include "io/json.h"
#include "pull/pull.h"
#include "term.h"
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
    print_tokens(tokenizer, read_input("tokenize"), options);
    return 0;
  }
  for_each_text("tokenize", [&](const std::string& text) {
    print_tokens(tokenizer, text, options);
    term::flush();  // who writes line by line may wait for the answer
  });
  return 0;
}

}  // namespace weft::cli
