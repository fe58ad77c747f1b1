#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/paths.h"
#include "base/standard_error.h"
#include "llm/logits.h"
#include "models/commands.h"
#include "models/model_flags.h"
#include "models/numbers.h"

namespace weft::cli {
namespace {

struct Flags {
  ModelFlags model;
  std::string file;
  int64_t chunks = -1;
  bool json = false;
};

constexpr int64_t kUsualWindow = 512;
constexpr int64_t kLeastWindow = 3;  // a token of its second half, and the one that follows

/// -log p(next) of one row of logits.
double surprise(std::span<const float> logits, TokenId next) {
  return llm::log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(next)]);
}

/// llama-perplexity's way: windows of the context's size one behind the other, each begun with BOS where the
/// model wants one, and of each the second half counts.
int perplexity(const Flags& flags) {
  const std::optional<std::string> text = read_text(flags.file);
  if (!text) fail(ErrorKind::io, "[perplexity] {}: cannot be read", flags.file);
  ModelFlags model_flags = flags.model;
  if (model_flags.context == 0) model_flags.context = kUsualWindow;
  if (model_flags.context < kLeastWindow)
    fail(ErrorKind::invalid, "[perplexity] a window of {} has nothing to foresee; -c has to be {} or more",
         model_flags.context, kLeastWindow);
  if (flags.chunks == 0) fail(ErrorKind::invalid, "[perplexity] no window is to be read: --chunks is 0");
  LanguageModel model = model_flags.open();
  const Tokenizer& tokenizer = model.tokenizer();
  const std::vector<TokenId> tokens = tokenizer.encode(*text, {.add_special = true});
  const auto window = model_flags.context;
  const int64_t all = std::ssize(tokens) / window,
                count = flags.chunks < 0 ? all : std::min(flags.chunks, all);
  if (count == 0)
    fail(ErrorKind::invalid, "[perplexity] {}: {} tokens do not fill a window of {}; -c makes it smaller",
         flags.file, tokens.size(), window);
  const std::vector<TokenId> start = tokenizer.encode("", {.add_special = true});

  double sum = 0, squares = 0;
  int64_t counted = 0;
  const auto width = static_cast<size_t>(model.vocabulary());
  for (int64_t chunk = 0; chunk < count; ++chunk) {
    std::vector<TokenId> part(tokens.begin() + chunk * window, tokens.begin() + (chunk + 1) * window);
    if (!start.empty() && start[0] == tokenizer.bos()) part[0] = start[0];
    const std::vector<float> logits = model.logits(part);
    for (auto i = static_cast<size_t>(window / 2); i + 1 < part.size(); ++i) {
      const double nll = surprise(std::span(logits).subspan(i * width, width), part[i + 1]);
      sum += nll, squares += nll * nll, ++counted;
    }
    to_stderr("[{}]{:.4f}{}", chunk + 1, std::exp(sum / static_cast<double>(counted)),
              chunk + 1 == count ? "\n" : ",");
  }
  const double n = static_cast<double>(counted), mean = sum / n, value = std::exp(mean);
  const double error =
      counted > 1 ? std::sqrt(std::max(squares / n - mean * mean, 0.0) / (n - 1)) * value : 0;
  if (flags.json)
    fmt::print(
        "{}\n",
        nlohmann::json{{"perplexity", value}, {"error", error}, {"tokens", counted}, {"windows", count}}
            .dump());
  else
    fmt::print("Final estimate: PPL = {:.4f} +/- {:.5f}\n", value, error);
  return 0;
}

}  // namespace

void add_perplexity(CLI::App& app, int& status) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("perplexity", "How well a model foresees a text");
  flags->model.add_to(*command, std::to_string(kUsualWindow));
  command->add_option("-f,--file", flags->file, "The text")->required();
  command->add_option("--chunks", flags->chunks, "Windows to read; -1: all");
  command->add_flag("--json", flags->json, "For programs: one JSON object");
  check_numbers(*command);
  command->callback([&status, flags] { status = perplexity(*flags); });
}

}  // namespace weft::cli
