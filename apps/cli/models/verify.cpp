#include "llm/verify.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/select.h"
#include "base/error.h"
#include "models/commands.h"
#include "models/numbers.h"
#include "pull/pull.h"

namespace weft::cli {
namespace {

struct Flags {
  std::string model, expect, text, device, lora;
  std::optional<double> max, top1;
  bool exact = false, json = false;
};

constexpr int64_t kWindows = 4, kWindow = 512;  // of a text

std::string read_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(ErrorKind::io, "[verify] {}: this file cannot be read", file);
  return {std::istreambuf_iterator<char>(in), {}};
}

int verify(const Flags& flags) {
  if (flags.expect.empty() == flags.text.empty())
    fail(ErrorKind::invalid, "[verify] --expect FILE or --text FILE says what is expected");
  const std::filesystem::path path = pull::resolve_model(flags.model);
  llm::LoadOptions options;
  if (flags.exact) options.exact = true;
  if (!flags.lora.empty()) options.adapters.push_back({pull::resolve_model(flags.lora)});
  llm::Expected expected;
  if (flags.text.empty()) {
    expected = llm::load_expected(flags.expect);
    options.context = expected.length + expected.follow;
    options.cache_type = quant::Type::f32;
  } else {
    options.context = kWindow;
    llm::Model cpu(path, options);
    expected = llm::expected_of(cpu, Tokenizer::open(path).encode(read_text(flags.text)), kWindows, kWindow);
  }
  options.device = Device::open(device_wish(flags.device).value);
  llm::Model model(path, options);
  const llm::Comparison got = llm::compare(model, expected);
  // What the CPU gives is right to rounding, and rounding may decide where two tokens are as likely.
  const double max = flags.max.value_or(flags.text.empty() ? 0.005 : INFINITY),
               top1 = flags.top1.value_or(flags.text.empty() ? 1 : 0.99);
  std::string wrong;  // the first criterion that is not met
  if (!(got.max <= max))
    wrong = fmt::format("largest difference {:.3g}, allowed {:.3g}", got.max, max);
  else if (!(got.top1 >= top1))
    wrong = fmt::format("top-1 agreement {:.2f} %, wanted {:.2f} %", 100 * got.top1, 100 * top1);
  else if (!got.same_greedy)
    wrong = "the greedy continuation differs";
  if (flags.json) {
    fmt::print("{}\n", nlohmann::json{{"max", got.max},
                                      {"mean", got.mean},
                                      {"top1", got.top1},
                                      {"kl", got.kl},
                                      {"same_greedy", got.same_greedy},
                                      {"right", wrong.empty()}}
                           .dump());
  } else {
    fmt::print("largest difference  {:.3g} (allowed {:.3g})\nmean difference     {:.3g}\n", got.max, max,
               got.mean);
    fmt::print("top-1 agreement     {:.2f} %\nmean KL divergence  {:.3g}\n", 100 * got.top1, got.kl);
    if (expected.follow > 0) fmt::print("greedy continuation {}\n", got.same_greedy ? "the same" : "differs");
  }
  if (wrong.empty()) return 0;
  fail(ErrorKind::io, "[verify] {}", wrong);
}

}  // namespace

void add_verify(CLI::App& app, int& status) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("verify", "Compare a model's logits with expected ones");
  command
      ->add_option("model,-m,--model", flags->model,
                   "A GGUF file, a folder of Hugging Face's, or a name that `weft pull` knows")
      ->required();
  command->add_option("--expect", flags->expect, "safetensors with input_ids, logits and perhaps greedy_ids");
  command->add_option("--text", flags->text, "What the CPU gives for this text is expected");
  command->add_option("--device", flags->device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command->add_option("--lora", flags->lora, "A LoRA adapter to add");
  command->add_option("--max", flags->max, "Largest difference of a logit that is allowed; default: 0.005")
      ->check(at_least(0.0));
  command
      ->add_option("--top1", flags->top1,
                   "Share of likeliest tokens that have to be right; default: all, 0.99 of a text")
      ->check(between(0.0, 1.0));
  command->add_flag("--exact", flags->exact, "Activations stay floats where weights are quantised");
  command->add_flag("--json", flags->json, "For programs: one JSON object");
  command->callback([&status, flags] { status = verify(*flags); });
}

}  // namespace weft::cli
