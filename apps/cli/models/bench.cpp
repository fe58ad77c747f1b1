#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "backend/backend.h"
#include "backend/select.h"
#include "backend/webgpu/webgpu_backend.h"
#include "llm/ahead.h"
#include "llm/random_model.h"
#include "models/commands.h"
#include "models/model_flags.h"
#include "plan/eval.h"
#include "pull/pull.h"
#include "term.h"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

struct Flags {
  std::string model, shape, device;
  std::vector<int64_t> prompts = {512}, counts = {128};
  int64_t depth = 0, repeats = 5, threads = 0;
  bool exact = false, json = false, trace = false;
};

/// What was done since it was made, per token.
class Work {
 public:
  explicit Work(const Device& device)
      : gpu_(dynamic_cast<WebgpuBackend*>(&device.backend())), before_(now()) {}
  double dispatches() const { return static_cast<double>(now().dispatches - before_.dispatches); }
  double submits() const { return static_cast<double>(now().submits - before_.submits); }

 private:
  struct Counts {
    uint64_t dispatches, submits;
  };
  Counts now() const {
    if (!gpu_) return {eval_counters().steps, eval_counters().evals};
    const gpu::Counters counters = gpu_->device().counters();
    return {counters.dispatches, counters.submits};
  }
  WebgpuBackend* gpu_;
  Counts before_;
};

struct Row {
  std::string test;
  double rate = 0, deviation = 0, dispatches = 0, submits = 0;
};

struct Test {
  int64_t tokens;
  bool at_once;  ///< or one by one
  std::string name(const Flags& flags) const {
    return fmt::format("{}{}{}", at_once ? "pp" : "tg", tokens,
                       flags.depth > 0 ? fmt::format(" @ d{}", flags.depth) : "");
  }
};

/// Makes tokens behind `id` as generate() does: the likeliest, chosen by the device where it can.
void make_tokens(llm::Model& model, llm::Sequence& sequence, TokenId id, int64_t count) {
  Sampler sampler({.temperature = 0});
  std::optional<llm::Ahead> ahead;
  if (llm::Ahead::possible(model)) ahead.emplace(model, sequence, sampler, llm::Choice(), 0);
  for (; count > 0; --count)
    id = ahead && ahead->room() > 0 ? ahead->next(id, count)
                                    : sampler.sample(model.run(sequence, std::span(&id, 1)));
}

/// Runs the tokens behind `depth` others. `before` is called between the two.
double run_round(llm::Model& model, const Flags& flags, const Test& test, int64_t seed,
                 const std::function<void()>& before) {
  const auto ids = [&](int64_t count, int64_t from) {
    std::vector<TokenId> list;
    for (int64_t i = 0; i < count; ++i)
      list.push_back(static_cast<TokenId>((i * 7919 + from * 104'729 + 1) % model.config().vocabulary));
    return list;
  };
  llm::Sequence sequence = model.new_sequence();
  if (flags.depth > 0) model.run(sequence, ids(flags.depth, 0));
  const std::vector<TokenId> list = ids(test.tokens, seed);
  before();
  const auto start = Clock::now();
  if (test.at_once)
    model.run(sequence, list);
  else
    make_tokens(model, sequence, list[0], test.tokens);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  llm::truncate(sequence, 0, model.pages());
  return seconds;
}

Row measure(llm::Model& model, const Flags& flags, const Test& test) {
  std::vector<double> rates;
  Row row{.test = test.name(flags)};
  const auto per = static_cast<double>(test.tokens);
  for (int64_t round = -1; round < flags.repeats; ++round) {  // the first one warms up
    std::optional<Work> work;
    const double seconds = run_round(model, flags, test, round + 1, [&] { work.emplace(model.device()); });
    if (round >= 0) rates.push_back(per / seconds);
    row.dispatches = work->dispatches() / per;
    row.submits = work->submits() / per;
  }
  for (double rate : rates) row.rate += rate / static_cast<double>(rates.size());
  for (double rate : rates) row.deviation += (rate - row.rate) * (rate - row.rate);
  row.deviation = rates.size() > 1 ? std::sqrt(row.deviation / static_cast<double>(rates.size() - 1)) : 0;
  return row;
}

/// Where the time of one more round went, the largest part first.
void print_trace(llm::Model& model, const Flags& flags, const Test& test) {
  Backend& backend = model.device().backend();
  KernelTimes times;
  const double seconds = run_round(model, flags, test, 1, [&] { backend.trace(&times); });
  backend.trace(nullptr);
  std::vector<std::pair<std::string, KernelTime>> sorted(times.begin(), times.end());
  std::ranges::sort(sorted, std::greater(), [](const auto& entry) { return entry.second.seconds; });
  const auto per = static_cast<double>(test.tokens);
  term::Table table({test.name(flags), "calls / token", "us / call", "us / token", "share"});
  const auto add = [&](const std::string& name, double calls, double spent) {
    table.add({name, fmt::format("{:.2f}", calls / per), fmt::format("{:.1f}", 1e6 * spent / calls),
               fmt::format("{:.1f}", 1e6 * spent / per), fmt::format("{:.1f} %", 100 * spent / seconds)});
  };
  double rest = seconds;
  for (const auto& [name, time] : sorted) {
    add(name, static_cast<double>(time.calls), time.seconds);
    rest -= time.seconds;
  }
  add("(outside kernels)", per, rest);
  fmt::print("\n{}", table.text(term::colours(stdout)));
}

int bench(const Flags& flags) {
  use_threads(flags.threads);
  llm::ModelFile file = flags.shape.empty() ? llm::ModelFile::open(pull::resolve_model(flags.model))
                                            : llm::random_model(flags.shape);
  const uint64_t bytes = file.bytes(), parameters = file.parameters();
  const std::string name =
      flags.shape.empty() ? std::filesystem::path(file.name).filename().string() : flags.shape;
  int64_t most = 1;
  for (const auto* list : {&flags.prompts, &flags.counts})
    for (int64_t count : *list) most = std::max(most, count);
  llm::LoadOptions options{.device = Device::open(device_wish(flags.device).value),
                           .context = flags.depth + most};
  if (flags.exact) options.exact = true;
  term::Progress bar;
  options.progress = [&](uint64_t done, uint64_t total) {
    bar.show(done, fmt::format("loading {} of {}", term::bytes(done), term::bytes(total)));
  };
  llm::Model model(std::move(file), options);

  std::vector<Test> tests;
  for (int64_t count : flags.prompts)
    if (count > 0) tests.push_back({count, true});
  for (int64_t count : flags.counts)
    if (count > 0) tests.push_back({count, false});
  std::vector<Row> rows;
  for (const Test& test : tests) rows.push_back(measure(model, flags, test));
  if (flags.json) {
    json list = json::array();
    for (const Row& row : rows)
      list.push_back({{"model", name},
                      {"size", bytes},
                      {"parameters", parameters},
                      {"backend", model.device().name()},
                      {"test", row.test},
                      {"tokens_per_second", row.rate},
                      {"stddev", row.deviation},
                      {"dispatches_per_token", row.dispatches},
                      {"submits_per_token", row.submits}});
    fmt::print("{}\n", list.dump(2));
    return 0;
  }
  term::Table table({"model", "size", "params", "backend", "test", "t/s", "dispatches", "submits"});
  for (const Row& row : rows)
    table.add({name, term::bytes(bytes), fmt::format("{:.1f} M", static_cast<double>(parameters) / 1e6),
               model.device().name(), row.test, fmt::format("{:.2f} ± {:.2f}", row.rate, row.deviation),
               fmt::format("{:.1f}", row.dispatches), fmt::format("{:.3f}", row.submits)});
  fmt::print("{}", table.text(term::colours(stdout)));
  if (flags.trace)
    for (const Test& test : tests) print_trace(model, flags, test);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("bench", "Time a language model: prompts (pp) and new tokens (tg)");
  CLI::Option* model = command->add_option("model,-m,--model", flags->model,
                                           "A GGUF file, a folder of Hugging Face's, or a name");
  command
      ->add_option("--shape", flags->shape,
                   "Random weights instead: smollm2-135m, llama-1b, llama-8b, ... :TYPE")
      ->excludes(model);
  command->add_option("-p,--n-prompt", flags->prompts, "Tokens of prompts; 0: none")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-n,--n-gen", flags->counts, "New tokens; 0: none")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-d,--n-depth,--ctx", flags->depth, "Tokens that are there already")
      ->capture_default_str();
  command->add_option("-r,--repetitions", flags->repeats, "Rounds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("-t,--threads", flags->threads, "Threads of the CPU")->check(CLI::PositiveNumber);
  command->add_option("--device", flags->device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command->add_flag("--exact", flags->exact, "Activations stay floats where weights are quantised");
  command->add_flag("--trace", flags->trace, "Then the time of each kernel, in one more round");
  command->add_flag("--json", flags->json, "For programs: a list of objects");
  command->callback([&status, flags] {
    if (flags->model.empty() && flags->shape.empty()) throw CLI::RequiredError("a model or --shape");
    status = bench(*flags);
  });
}

}  // namespace weft::cli
