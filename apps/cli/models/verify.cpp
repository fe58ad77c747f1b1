#include "llm/verify.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/select.h"
#include "models/commands.h"
#include "pull/pull.h"

namespace weft::cli {
namespace {

struct Flags {
  std::string model, expect, device, lora;
  double max = 0.005, top1 = 1;
  bool json = false;
};

int verify(const Flags& flags) {
  const llm::Expected expected = llm::load_expected(flags.expect);
  llm::LoadOptions options{.device = Device::open(device_wish(flags.device).value),
                           .context = expected.length + expected.follow,
                           .cache_type = quant::Type::f32};
  if (!flags.lora.empty()) options.adapters.push_back({pull::resolve_model(flags.lora)});
  llm::Model model(pull::resolve_model(flags.model), options);
  const llm::Comparison got = llm::compare(model, expected);
  const bool right = got.max <= flags.max && got.top1 >= flags.top1 && got.same_greedy;
  if (flags.json) {
    fmt::print("{}\n", nlohmann::json{{"max", got.max},
                                      {"mean", got.mean},
                                      {"top1", got.top1},
                                      {"kl", got.kl},
                                      {"same_greedy", got.same_greedy},
                                      {"right", right}}
                           .dump());
  } else {
    fmt::print("largest difference  {:.3g} (allowed {:.3g})\nmean difference     {:.3g}\n", got.max,
               flags.max, got.mean);
    fmt::print("top-1 agreement     {:.2f} %\nmean KL divergence  {:.3g}\n", 100 * got.top1, got.kl);
    if (expected.follow > 0) fmt::print("greedy continuation {}\n", got.same_greedy ? "the same" : "differs");
  }
  return right ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, int& status) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("verify", "Compare a model's logits with expected ones");
  command
      ->add_option("model,-m,--model", flags->model,
                   "A GGUF file, a folder of Hugging Face's, or a name that `weft pull` knows")
      ->required();
  command->add_option("--expect", flags->expect, "safetensors with input_ids, logits and perhaps greedy_ids")
      ->required();
  command->add_option("--device", flags->device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command->add_option("--lora", flags->lora, "A LoRA adapter to add");
  command->add_option("--max", flags->max, "Largest difference of a logit that is allowed")
      ->capture_default_str();
  command->add_option("--top1", flags->top1, "Share of likeliest tokens that have to be right")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "For programs: one JSON object");
  command->callback([&status, flags] { status = verify(*flags); });
}

}  // namespace weft::cli
