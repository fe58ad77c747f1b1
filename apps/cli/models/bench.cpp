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
#include "base/draft_file.h"
#include "base/error.h"
#include "bench_ops/copy.h"
#include "llm/ahead.h"
#include "llm/random_model.h"
#include "models/commands.h"
#include "models/model_flags.h"
#include "models/numbers.h"
#include "models/plot.h"
#include "plan/eval.h"
#include "pull/pull.h"
#include "term.h"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWarmSeconds = 1;
using nlohmann::json;

struct Flags {
  std::string model, shape, device, svg;
  std::vector<int64_t> prompts = {512}, counts = {128}, depths = {0}, batches = {1};
  int64_t repeats = 5, threads = 0;
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

struct Test {
  int64_t tokens;     ///< of each sequence
  bool at_once;       ///< or one by one
  int64_t depth;      ///< tokens that are there already
  int64_t batch = 1;  ///< sequences

  std::string kind() const { return fmt::format("{}{}", at_once ? "pp" : "tg", tokens); }
  std::string name() const {
    return kind() + (depth > 0 ? fmt::format(" @ d{}", depth) : "") +
           (batch > 1 ? fmt::format(" x {}", batch) : "");
  }
  double all_tokens() const { return static_cast<double>(tokens * batch); }
  /// Of the caches: steps take what they need for a whole table of positions.
  int64_t cached_tokens() const {
    return batch * ((depth + tokens + llm::kKeyStep - 1) / llm::kKeyStep * llm::kKeyStep);
  }
  /// Weights and caches that are read, per token.
  double bytes_per_token(const llm::Model& model) const {
    const int64_t keys = depth + tokens / 2;  // on average
    if (!at_once) return model.bytes_read(batch, batch, keys) / static_cast<double>(batch);
    const int64_t passes = (tokens + llm::kPassTokens - 1) / llm::kPassTokens,
                  in_pass = std::min(tokens, llm::kPassTokens);
    return model.bytes_read(in_pass, batch, keys) * static_cast<double>(passes) / static_cast<double>(tokens);
  }
};

/// Every prompt and every number of new tokens behind every depth, alone; new tokens of several sequences
/// behind the first depth.
std::vector<Test> tests_of(const Flags& flags) {
  std::vector<Test> tests;
  for (int64_t depth : flags.depths) {
    for (int64_t count : flags.prompts)
      if (count > 0) tests.push_back({count, true, depth});
    for (int64_t batch : flags.batches)
      for (int64_t count : flags.counts)
        if (count > 0 && (batch == flags.batches[0] || depth == flags.depths[0]))
          tests.push_back({count, false, depth, batch});
  }
  return tests;
}

struct Row {
  Test test;
  double rate = 0, deviation = 0, dispatches = 0, submits = 0, bytes = 0;
};

/// The sequences of a test, which begin with as many tokens as its depth says.
class Texts {
 public:
  Texts(llm::Model& model, const Test& test) : model_(model), test_(test) {
    for (int32_t i = 0; i < test.batch; ++i) sequences_.push_back(model.new_sequence(i));
  }
  ~Texts() { back_to(0); }
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;

  /// Seconds of the test's tokens. `before` is called when what comes before them is there.
  double run(int64_t seed, const std::function<void()>& before) {
    back_to(model_.is_recurrent() ? 0 : test_.depth);
    for (llm::Sequence& sequence : sequences_)
      if (test_.depth > 0 && sequence.tokens.empty()) model_.run(sequence, ids(test_.depth, sequence.index));
    const std::vector<TokenId> list = ids(std::max(test_.tokens, test_.batch), seed);
    before();
    const auto start = Clock::now();
    if (test_.at_once)
      model_.run(sequences_[0], list);
    else
      make_tokens(list);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  void back_to(int64_t length) {
    for (llm::Sequence& sequence : sequences_)
      if (std::ssize(sequence.tokens) > length)
        llm::truncate(sequence, static_cast<size_t>(length), model_.pages());
  }

  std::vector<TokenId> ids(int64_t count, int64_t from) const {
    std::vector<TokenId> list;
    for (int64_t i = 0; i < count; ++i)
      list.push_back(static_cast<TokenId>((i * 7919 + from * 104'729 + 1) % model_.config().vocabulary));
    return list;
  }

  /// As generate() does: the likeliest, chosen by the device where it can.
  void make_tokens(std::vector<TokenId> last) {
    last.resize(sequences_.size());
    std::vector<Sampler> samplers(sequences_.size(), Sampler({.temperature = 0}));
    llm::Ahead ahead(model_);
    const bool on_device = llm::Ahead::possible(model_);
    for (size_t i = 0; i < last.size() && on_device; ++i)
      ahead.join(sequences_[i], samplers[i], llm::Choice());
    for (int64_t left = test_.tokens; left > 0; --left)
      last = on_device && ahead.room() > 0 ? ahead.next(last, left) : chosen_here(last, samplers);
  }

  std::vector<TokenId> chosen_here(const std::vector<TokenId>& last, std::vector<Sampler>& samplers) {
    std::vector<llm::Turn> turns;
    for (size_t i = 0; i < last.size(); ++i) turns.push_back({sequences_[i], std::span(&last[i], 1)});
    const std::vector<float> logits = model_.run(turns);
    const size_t width = logits.size() / last.size();
    std::vector<TokenId> next;
    for (size_t i = 0; i < last.size(); ++i)
      next.push_back(samplers[i].sample(std::span(logits).subspan(i * width, width)));
    return next;
  }

  llm::Model& model_;
  const Test& test_;
  std::vector<llm::Sequence> sequences_;
};

Row measure(llm::Model& model, const Test& test, int64_t repeats) {
  std::vector<double> rates;
  Row row{.test = test, .bytes = test.bytes_per_token(model)};
  Texts texts(model, test);
  // The first ones warm up: a GPU that rested needs as long to reach its clock.
  double warm = 0;
  const double least = model.device() == Device() ? 0 : kWarmSeconds;
  for (int64_t round = -1; round < repeats; round += round >= 0 || warm >= least) {
    Work work(model.device());
    const double seconds = texts.run(round + 1, [&] { work = Work(model.device()); });
    if (round >= 0)
      rates.push_back(test.all_tokens() / seconds);
    else
      warm += seconds;
    row.dispatches = work.dispatches() / test.all_tokens();
    row.submits = work.submits() / test.all_tokens();
  }
  for (double rate : rates) row.rate += rate / static_cast<double>(rates.size());
  for (double rate : rates) row.deviation += (rate - row.rate) * (rate - row.rate);
  row.deviation = rates.size() > 1 ? std::sqrt(row.deviation / static_cast<double>(rates.size() - 1)) : 0;
  return row;
}

/// Where the time of one more round went, the largest part first.
void print_trace(llm::Model& model, const Test& test) {
  Backend& backend = model.device().backend();
  KernelTimes times;
  const double seconds = Texts(model, test).run(1, [&] { backend.trace(&times); });
  backend.trace(nullptr);
  std::vector<std::pair<std::string, KernelTime>> sorted(times.begin(), times.end());
  std::ranges::sort(sorted, std::greater(), [](const auto& entry) { return entry.second.seconds; });
  const double per = test.all_tokens();
  term::Table table({test.name(), "calls / token", "us / call", "us / token", "share"});
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

/// Bytes per second that a plain copy reads and writes.
double bandwidth_of(const Device& device) {
  auto* gpu = dynamic_cast<WebgpuBackend*>(&device.backend());
  const bool large = gpu && gpu->device().type() != gpu::AdapterType::cpu;
  return bench_ops::Copy(device.backend(), large).speed();
}

/// Rates by depth, and by the number of sequences.
std::string plot_of(const std::string& title, const std::vector<Row>& rows) {
  Chart prompts{"tokens per second of prompts", "tokens before them", {}},
      depths{"new tokens per second", "tokens before them", {}},
      batches{"new tokens per second, all sequences", "sequences", {}};
  const auto add = [](Chart& chart, const Row& row, int64_t x) {
    auto curve = std::ranges::find(chart.curves, row.test.kind(), &Curve::name);
    if (curve == chart.curves.end()) curve = chart.curves.insert(curve, {row.test.kind(), {}});
    curve->points.push_back({static_cast<double>(x), row.rate});
  };
  const Test& first = rows[0].test;
  for (const Row& row : rows) {
    if (row.test.batch == 1) add(row.test.at_once ? prompts : depths, row, row.test.depth);
    if (!row.test.at_once && row.test.depth == first.depth) add(batches, row, row.test.batch);
  }
  std::vector<Chart> charts;
  for (const Chart& chart : {prompts, depths, batches})
    if (std::ranges::any_of(chart.curves, [](const Curve& c) { return c.points.size() > 1; }))
      charts.push_back(chart);
  return svg_of(title, charts);
}

void print_json(const std::string& name, const llm::Model& model, const std::vector<Row>& rows,
                double bandwidth) {
  json list = json::array();
  for (const Row& row : rows)
    list.push_back({{"model", name},
                    {"size", model.file().bytes()},
                    {"parameters", model.file().parameters()},
                    {"backend", model.device().name()},
                    {"test", row.test.name()},
                    {"depth", row.test.depth},
                    {"batch", row.test.batch},
                    {"tokens_per_second", row.rate},
                    {"stddev", row.deviation},
                    {"bytes_per_token", row.bytes},
                    {"copy_bytes_per_second", bandwidth},
                    {"share_of_copy", row.bytes * row.rate / bandwidth},
                    {"dispatches_per_token", row.dispatches},
                    {"submits_per_token", row.submits}});
  fmt::print("{}\n", list.dump(2));
}

void print_table(const std::string& name, const llm::Model& model, const std::vector<Row>& rows,
                 double bandwidth) {
  term::Table table({"model", "size", "params", "backend", "test", "t/s", "MB/token",
                     fmt::format("of {:.0f} GB/s", bandwidth * 1e-9), "dispatches", "submits"});
  for (const Row& row : rows)
    table.add({name, term::bytes(model.file().bytes()),
               fmt::format("{:.1f} M", static_cast<double>(model.file().parameters()) / 1e6),
               model.device().name(), row.test.name(),
               fmt::format("{:.2f} ± {:.2f}", row.rate, row.deviation),
               fmt::format("{:.1f}", row.bytes * 1e-6),
               fmt::format("{:.1f} %", 100 * row.bytes * row.rate / bandwidth),
               fmt::format("{:.1f}", row.dispatches), fmt::format("{:.3f}", row.submits)});
  fmt::print("{}", table.text(term::colours(stdout)));
}

int bench(const Flags& flags) {
  use_threads(flags.threads);
  std::optional<DraftFile> plot;  // that it cannot be written is said before anything is timed
  if (!flags.svg.empty()) plot.emplace(flags.svg);
  llm::ModelFile file = flags.shape.empty() ? llm::ModelFile::open(pull::resolve_model(flags.model))
                                            : llm::random_model(flags.shape);
  const std::string name =
      flags.shape.empty() ? std::filesystem::path(file.name).filename().string() : flags.shape;
  const std::vector<Test> tests = tests_of(flags);
  if (tests.empty()) fail(ErrorKind::invalid, "[bench] there is nothing to time: -p and -n are 0");
  llm::LoadOptions options{.device = Device::open(device_wish(flags.device).value)};
  for (const Test& test : tests) {
    options.context = std::max(options.context, test.depth + test.tokens);
    options.sequences = std::max(options.sequences, test.batch);
    options.cached_tokens = std::max(options.cached_tokens, test.cached_tokens());
  }
  if (flags.exact) options.exact = true;
  const double bandwidth = bandwidth_of(options.device);
  term::Progress bar;
  options.progress = [&](uint64_t done, uint64_t total) {
    bar.show(done, fmt::format("loading {} of {}", term::bytes(done), term::bytes(total)));
  };
  llm::Model model(std::move(file), options);

  std::vector<Row> rows;
  for (const Test& test : tests) rows.push_back(measure(model, test, flags.repeats));
  (flags.json ? print_json : print_table)(name, model, rows, bandwidth);
  if (plot) {
    plot->write(plot_of(name + ", " + model.device().name(), rows));
    plot->finish();
  }
  if (flags.trace)
    for (const Test& test : tests) print_trace(model, test);
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
      ->check(at_least<int64_t>(0))
      ->capture_default_str();
  command->add_option("-n,--n-gen", flags->counts, "New tokens; 0: none")
      ->delimiter(',')
      ->check(at_least<int64_t>(0))
      ->capture_default_str();
  command->add_option("-d,--n-depth,--ctx", flags->depths, "Tokens that are there already")
      ->delimiter(',')
      ->check(token_count())
      ->capture_default_str();
  command
      ->add_option("--batch", flags->batches,
                   "Sequences that get new tokens together; all but the first number at the first depth")
      ->delimiter(',')
      ->check(at_least<int64_t>(1))
      ->capture_default_str();
  command->add_option("-r,--repetitions", flags->repeats, "Rounds")
      ->check(at_least<int64_t>(1))
      ->capture_default_str();
  command->add_option("-t,--threads", flags->threads, "Threads of the CPU")->check(thread_count());
  command->add_option("--device", flags->device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command->add_flag("--exact", flags->exact, "Activations stay floats where weights are quantised");
  command->add_flag("--trace", flags->trace, "Then the time of each kernel, in one more round");
  command->add_flag("--json", flags->json, "For programs: a list of objects");
  command->add_option("--svg", flags->svg, "Also draw the rates by depth and batch into this file");
  check_numbers(*command);
  command->callback([&status, flags] {
    if (flags->model.empty() && flags->shape.empty()) throw CLI::RequiredError("a model or --shape");
    status = bench(*flags);
  });
}

}  // namespace weft::cli
