#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/draft_file.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/standard_error.h"
#include "input.h"
#include "models/commands.h"
#include "models/model_flags.h"
#include "models/numbers.h"
#include "term.h"

namespace weft::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  SamplerFlags sampler;
  DraftFlags draft;
  std::string prompt, prompt_file, grammar, grammar_file, schema, prompt_cache;
  int64_t count = -1, keep = 0, logprobs = -1;
  std::vector<std::string> stops;
  bool ignore_end = false, no_shift = false, json = false;
};

std::string read_or_fail(const std::string& file) {
  const std::optional<std::string> text = read_text(file);
  if (!text) fail(ErrorKind::io, "[run] {}: cannot be read", file);
  return *text;
}

std::string prompt_of(const RunFlags& flags, bool given) {
  if (!flags.prompt_file.empty()) return read_or_fail(flags.prompt_file);
  return given ? flags.prompt : read_input("run");
}

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::end:
      return "end";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "";
}

int run(const RunFlags& flags, bool has_prompt) {
  if (!flags.prompt_cache.empty()) writable_target(flags.prompt_cache);  // before the work, not after it
  const std::string prompt = prompt_of(flags, has_prompt);
  GenerateOptions options{.sampler = flags.sampler.checked(),
                          .max_tokens = flags.count,
                          .stops = flags.stops,
                          .ignore_end = flags.ignore_end,
                          .logprobs = flags.logprobs,
                          .shift = !flags.no_shift,
                          .keep = flags.keep};
  options.grammar = flags.grammar_file.empty() ? flags.grammar : read_or_fail(flags.grammar_file);
  options.json_schema = flags.schema;
  LanguageModel model = flags.model.open(flags.draft.checked());
  if (!flags.prompt_cache.empty()) model.load_cache(flags.prompt_cache);
  // The text of a command line is the user's own program: control tokens may be spelt in it.
  std::vector<TokenId> ids = model.tokenizer().encode(prompt, {.add_special = true, .parse_special = true});
  if (ids.empty())
    fail(ErrorKind::invalid, "[run] the prompt is empty, and the model has no token to begin with");

  nlohmann::json logprobs = nlohmann::json::array();
  const Interrupt interrupt;
  options.cancelled = [&] { return interrupt.happened(); };
  const GenerateResult result = model.generate(ids, options, [&](const GeneratedToken& token) {
    if (!flags.json) {
      fmt::print("{}", token.text);
      term::flush();
    }
    if (token.logprob) {
      nlohmann::json top = nlohmann::json::array();
      for (const TokenLogprob& other : token.top)
        top.push_back({{"id", other.id}, {"logprob", other.logprob}});
      logprobs.push_back({{"id", token.id}, {"logprob", *token.logprob}, {"top", top}});
    }
    return true;
  });
  if (flags.json) {
    nlohmann::json report = {{"text", result.text},
                             {"tokens", result.tokens},
                             {"finish_reason", name_of(result.reason)},
                             {"prompt_tokens", result.prompt_tokens},
                             {"cached_tokens", result.cached_tokens},
                             {"guessed_tokens", result.guessed_tokens},
                             {"right_guesses", result.right_guesses},
                             {"prompt_seconds", result.prompt_seconds},
                             {"seconds", result.seconds},
                             {"device", model.device().name()}};
    if (flags.logprobs >= 0) report["logprobs"] = logprobs;
    fmt::print("{}\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("\n");
  }
  term::flush();
  to_stderr("{}\n", statistics(model, result));
  if (!flags.prompt_cache.empty()) model.save_cache(flags.prompt_cache);
  return 0;
}

}  // namespace

void add_run(CLI::App& app, int& status) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Continue a text with a language model");
  flags->model.add_to(*command);
  CLI::Option* prompt =
      command->add_option("-p,--prompt", flags->prompt, "The text; default: standard input");
  command->add_option("-f,--file", flags->prompt_file, "A file with the text")->excludes(prompt);
  command->add_option("-n,--predict,--n-predict", flags->count, "Tokens to make; -1: until the text ends")
      ->check(at_least<int64_t>(-1))
      ->capture_default_str();
  command->add_option("-r,--reverse-prompt,--stop", flags->stops, "Texts that end the answer");
  command->add_option("--grammar", flags->grammar, "The answer follows this grammar (GBNF)");
  command->add_option("--grammar-file", flags->grammar_file, "A file with a grammar");
  command->add_option("-j,--json-schema", flags->schema, "The answer is JSON of this schema; {} is any");
  command->add_flag("--ignore-eos", flags->ignore_end, "Go on where the model would end");
  command->add_option("--keep", flags->keep, "Tokens that stay when the context is full; -1: the prompt")
      ->check(at_least<int64_t>(-1))
      ->capture_default_str();
  command->add_flag("--no-context-shift", flags->no_shift, "End when the context is full");
  command->add_option("--prompt-cache", flags->prompt_cache, "A file to keep what was computed for the text");
  CLI::Option* json = command->add_flag("--json", flags->json, "For programs: one JSON object");
  command->add_option("--logprobs", flags->logprobs, "Report so many candidates with each token")
      ->check(at_least<int64_t>(0))
      ->needs(json);
  flags->sampler.add_to(*command);
  flags->draft.add_to(*command);
  check_numbers(*command);
  command->callback([&status, flags, prompt] { status = run(*flags, prompt->count() > 0); });
}

}  // namespace weft::cli
