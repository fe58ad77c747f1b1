#include "models/model_flags.h"

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <optional>

#include "backend/select.h"
#include "base/env.h"
#include "base/error.h"
#include "models/numbers.h"
#include "pull/pull.h"
#include "term.h"

namespace weft::cli {
namespace {

std::atomic<int> interrupts = 0;

void on_interrupt(int) {
  if (interrupts.fetch_add(1) > 0) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

template <typename Number = double>
Number number_after(std::string_view text, std::string_view what) {
  const std::optional<Number> value = number_in<Number>(text);
  if (!value) fail(ErrorKind::invalid, "{}: '{}' is not a number", what, text);
  return *value;
}

}  // namespace

CLI::Validator token_count() {
  return between<int64_t>(0, int64_t{1} << 24);
}

CLI::Validator thread_count() {
  return between<int64_t>(1, env::most_threads());
}

void ModelFlags::add_to(CLI::App& command, std::string_view usual_context) {
  command
      .add_option("model,-m,--model", model,
                  "A GGUF file, a folder of Hugging Face's, or a name that `weft pull` knows")
      ->required();
  command.add_option("--device", device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command.add_option("-c,--ctx-size", context, fmt::format("Tokens of context; default: {}", usual_context))
      ->check(token_count());
  command.add_option("-t,--threads", threads, "Threads of the CPU; default: all cores")
      ->check(thread_count());
  command.add_option("--gpu-layers,--n-gpu-layers", gpu_layers, "Layers on the GPU; default: as many as fit")
      ->check(at_least<int64_t>(0));
  command.add_option("--cache-type", cache_type, "Keys and values as f32, f16, q8_0 or q4_0")
      ->check(CLI::IsMember({"f32", "f16", "q8_0", "q4_0"}));
  command.add_option("--lora", loras, "A LoRA adapter to add; may be given several times");
  command.add_option("--lora-scaled", scaled_loras, "FILE:SCALE of an adapter");
  command.add_flag("--exact", exact, "Activations stay floats where weights are quantised");
}

void use_threads(int64_t threads) {
  if (threads > 0) setenv("WEFT_THREADS", std::to_string(threads).c_str(), 1);
}

std::filesystem::path ModelFlags::path() const {
  return pull::resolve_model(model);
}

LanguageModel ModelFlags::open(const DraftOptions& draft) const {
  use_threads(threads);
  const DeviceWish wish = device_wish(device);
  ModelOptions options{
      .device = Device::open(wish.value), .may_fall_back = device.empty(), .context = context};
  if (gpu_layers >= 0) options.gpu_layers = gpu_layers;
  if (!cache_type.empty()) options.cache_type = cache_type;
  if (exact) options.exact = true;
  options.draft = draft;
  for (const std::string& path : loras) options.adapters.push_back({pull::resolve_model(path)});
  for (const std::string& pair : scaled_loras) {
    const size_t colon = pair.rfind(':');
    if (colon == std::string::npos)
      fail(ErrorKind::invalid, "--lora-scaled takes FILE:SCALE, not '{}'", pair);
    options.adapters.push_back(
        {pull::resolve_model(pair.substr(0, colon)), number_after(pair.substr(colon + 1), "--lora-scaled")});
  }
  term::Progress bar;
  options.progress = [&](uint64_t bytes, uint64_t total) {
    bar.show(bytes, fmt::format("loading {} of {}", term::bytes(bytes), term::bytes(total)));
  };
  return LanguageModel::open(path(), options);
}

void DraftFlags::add_to(CLI::App& command) {
  command.add_option(
      "--model-draft", model,
      "-md; a smaller model of the same vocabulary that guesses tokens: the same text, sooner");
  command.add_flag("--lookup", options.lookup, "Guess tokens that followed the same words before");
  command.add_option("--draft-max,--draft,--draft-n", options.max, "Tokens of a guess")
      ->check(at_least<int64_t>(0))
      ->capture_default_str();
  command.add_option("--draft-min,--draft-n-min", options.min, "Shorter guesses are not used")
      ->check(at_least<int64_t>(0))
      ->capture_default_str();
  command.add_option("--draft-p-min", options.p_min, "How sure the smaller model has to be")
      ->capture_default_str();
}

DraftOptions DraftFlags::checked() const {
  DraftOptions result = options;
  if (!model.empty()) result.model = pull::resolve_model(model);
  return result;
}

void SamplerFlags::add_to(CLI::App& command) {
  SamplerOptions& o = options;
  command.add_option("--temp,--temperature", o.temperature, "0: always the most likely token")
      ->capture_default_str();
  command.add_option("--top-k", o.top_k, "0: all")->capture_default_str();
  command.add_option("--top-p", o.top_p, "1: all")->capture_default_str();
  command.add_option("--min-p", o.min_p, "0: all")->capture_default_str();
  command.add_option("--typical", o.typical_p, "1: off")->capture_default_str();
  command.add_option("--repeat-penalty", o.repeat_penalty, "1: none")->capture_default_str();
  command.add_option("--repeat-last-n", o.repeat_last_n, "Tokens that penalties look back at; -1: all")
      ->capture_default_str();
  command.add_option("--frequency-penalty", o.frequency_penalty, "0: none")->capture_default_str();
  command.add_option("--presence-penalty", o.presence_penalty, "0: none")->capture_default_str();
  command.add_option("--mirostat", o.mirostat, "2: Mirostat 2.0")->capture_default_str();
  command.add_option("--mirostat-ent", o.mirostat_tau, "Its surprise, in bits")->capture_default_str();
  command.add_option("--mirostat-lr", o.mirostat_eta, "How fast it comes back to it")->capture_default_str();
  command.add_option("--dry-multiplier", o.dry_multiplier, "0: off")->capture_default_str();
  command.add_option("--dry-base", o.dry_base)->capture_default_str();
  command.add_option("--dry-allowed-length", o.dry_allowed_length)->capture_default_str();
  command.add_option("--dry-penalty-last-n", o.dry_penalty_last_n)->capture_default_str();
  command.add_option("--dry-sequence-breaker", o.dry_sequence_breakers, "Texts that end a repetition");
  command.add_option("--xtc-probability", o.xtc_probability, "0: off")->capture_default_str();
  command.add_option("--xtc-threshold", o.xtc_threshold)->capture_default_str();
  command.add_option("-s,--seed", seed, "-1: another one each time")
      ->check(at_least(-1))
      ->capture_default_str();
  command.add_option("-l,--logit-bias", biases, "ID+BIAS or ID-BIAS");
}

SamplerOptions SamplerFlags::checked() const {
  SamplerOptions result = options;
  if (seed >= 0) result.seed = static_cast<uint64_t>(seed);
  for (const std::string& text : biases) {
    const size_t sign = text.find_first_of("+-", 1);
    if (sign == std::string::npos)
      fail(ErrorKind::invalid, "--logit-bias takes ID+BIAS or ID-BIAS, not '{}'", text);
    const auto id = number_after<TokenId>(text.substr(0, sign), "--logit-bias");
    const double bias = number_after(text.substr(text[sign] == '+' ? sign + 1 : sign), "--logit-bias");
    result.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
  return result;
}

Interrupt::Interrupt() {
  interrupts = 0;
  std::signal(SIGINT, on_interrupt);
}
Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
}
bool Interrupt::happened() const {
  return interrupts > 0;
}

std::string statistics(const LanguageModel& model, const GenerateResult& result) {
  const auto rate = [](int64_t tokens, double seconds) {
    return fmt::format("{} tokens in {:.2f} s ({:.1f} per second)", tokens, seconds,
                       static_cast<double>(tokens) / std::max(seconds, 1e-9));
  };
  const std::string guesses =
      result.guessed_tokens == 0
          ? ""
          : fmt::format(", {} of {} guesses right", result.right_guesses, result.guessed_tokens);
  return fmt::format("prompt: {}; answer: {}{}; {} on {}",
                     rate(result.prompt_tokens - result.cached_tokens, result.prompt_seconds),
                     rate(std::ssize(result.tokens), result.seconds), guesses, model.architecture(),
                     model.device().name());
}

}  // namespace weft::cli
