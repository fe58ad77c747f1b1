#include "backend/webgpu/tuning.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <limits>
#include <set>

#include "backend/webgpu/builder.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/paths.h"

namespace weft::webgpu {
namespace {

constexpr size_t kPositions = 6;       // the input of cached_attention
constexpr size_t kMostTrials = 32;     // of one question
constexpr double kBetter = 0.99;       // of the time so far, to be worth a step
constexpr double kMeasured = 2e-3;     // seconds, at least
constexpr double kWarmUp = 1;          // second
constexpr size_t kMostKept = 4096;     // answers in a file
constexpr int64_t kMostNumber = 4096;  // of a way

/// A step without those that write into what is there already. Attention sees most of its keys, not just
/// those that a text has at its beginning.
Step on_trial(gpu::Device& device, Step step) {
  std::erase_if(step.after, [](const Step& after) { return after.kernel == "put_rows"; });
  const int64_t pitch = step.kernel == "cached_attention" ? step.attrs->integer("pitch") : 0;
  if (pitch == 0) return step;
  const auto& positions = dynamic_cast<const WebgpuStorage&>(*step.inputs[kPositions].storage);
  const gpu::Buffer filled = device.alloc(positions.size(), "positions");
  const std::vector<int32_t> values(filled.size() / 4, static_cast<int32_t>(pitch * 3 / 4));
  device.write(filled, 0, std::as_bytes(std::span(values)));
  step.inputs[kPositions].storage = std::make_shared<WebgpuStorage>(filled);
  return step;
}

/// Steps of one kind, of all layers: one after the other they find their weights in memory, not in a cache.
class Trial {
 public:
  /// `warm_up`: seconds, for clocks that are low on an idle GPU. They go down as it is warmed up.
  Trial(gpu::Device& device, Tuning& tuning, std::vector<Step> steps,
        std::span<const gpu::Buffer* const> buffers, double& warm_up)
      : device_(device), tuning_(tuning), steps_(std::move(steps)), buffers_(buffers), warm_up_(warm_up) {}

  double seconds(const std::string& key, const Way& way) {
    tuning_.set(key, way);
    Tape tape;
    Context context(device_, tape, buffers_);
    context.tuning = &tuning_;
    for (const Step& step : steps_) {
      context.next_step();
      record(context, step);
    }
    std::vector<const gpu::Buffer*> buffers(buffers_.begin(), buffers_.end());
    std::vector<gpu::Buffer> scratch;
    for (uint64_t bytes : tape.scratch) scratch.push_back(device_.alloc(bytes, "tuning"));
    for (const gpu::Buffer& buffer : scratch) buffers.push_back(&buffer);
    const gpu::Series& series = tape.on(device_, buffers);
    run(series, 1);  // the driver compiles when it is first used
    for (; warm_up_ > 0; warm_up_ -= run(series, 1)) {
    }
    const double once = run(series, 1);
    const int times = static_cast<int>(std::clamp(kMeasured / std::max(once, 1e-6), 1.0, 50.0)) + 1;
    double best = run(series, times);
    for (int round = 0; round < 2; ++round) best = std::min(best, run(series, times));
    return best / times;
  }

 private:
  double run(const gpu::Series& series, int times) {
    device_.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    gpu::Recorder recorder(device_, "tuning");
    for (int i = 0; i < times; ++i) recorder.dispatch(series, 0, series.size());
    recorder.submit();
    device_.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  gpu::Device& device_;
  Tuning& tuning_;
  std::vector<Step> steps_;
  std::span<const gpu::Buffer* const> buffers_;
  double& warm_up_;
};

std::optional<Way> parse_way(std::string_view text) {
  Way way;
  while (!text.empty()) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 1 || number > kMostNumber) return std::nullopt;
    way.push_back(number);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.empty() && text[0] != ' ') return std::nullopt;
    if (!text.empty()) text.remove_prefix(1);
  }
  return way;
}

}  // namespace

std::map<std::string, Way> parse_tuning(std::string_view text, std::string_view stack) {
  std::map<std::string, Way> known;
  const auto next_line = [&text] {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    return line;
  };
  if (next_line() != stack) return known;
  while (!text.empty() && known.size() < kMostKept) {
    const std::string_view line = next_line();
    const size_t colon = line.find(": ");
    if (colon == line.npos) continue;
    if (std::optional<Way> way = parse_way(line.substr(colon + 2)))
      known.emplace(line.substr(0, colon), *std::move(way));
  }
  return known;
}

Tuning Tuning::kept_for(const gpu::Device& device) {
  Tuning tuning;
  tuning.stack_ = device.stack();
  std::ranges::replace(tuning.stack_, '\n', ' ');
  if (const auto cache = cache_dir()) {
    std::string name = tuning.stack_.substr(0, 120);
    std::ranges::replace_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '-');
    tuning.file_ = *cache / "tuning" / (name + ".txt");
    if (const auto text = read_text(*tuning.file_)) tuning.known_ = parse_tuning(*text, tuning.stack_);
  }
  return tuning;
}

Way Tuning::answer(const Question& question) const {
  const auto found = known_.find(question.key);
  const bool fits = found != known_.end() && found->second.size() == question.usual.size() &&
                    question.possible(found->second);
  return fits ? found->second : question.usual;
}

void Tuning::save() const {
  if (!file_) return;
  std::string text = stack_ + "\n";
  for (const auto& [key, way] : known_) text += fmt::format("{}: {}\n", key, fmt::join(way, " "));
  try {
    write_text(*file_, text);
  } catch (const Error& error) {
    log(LogLevel::info, "what was measured is not kept: {}", error.what());
  }
}

Way fastest(const Question& question, const std::function<double(const Way&)>& seconds) {
  Way best = question.usual;
  double least = seconds(best);
  std::set<Way> tried = {best};
  for (bool climbs = true; climbs;) {
    climbs = false;
    const Way from = best;
    for (size_t i = 0; i < from.size(); ++i)
      for (const bool doubled : {true, false}) {
        Way way = from;
        way[i] = doubled ? way[i] * 2 : way[i] / 2;
        if (way[i] < 1 || !question.possible(way) || tried.size() >= kMostTrials || !tried.insert(way).second)
          continue;
        const double time = seconds(way);
        log(LogLevel::debug, "{}: {} takes {:.1f} us", question.key, fmt::join(way, " "), time * 1e6);
        if (time >= least * kBetter) continue;
        best = way;
        least = time;
        climbs = true;
      }
  }
  log(LogLevel::info, "{}: {} is fastest, {:.1f} us", question.key, fmt::join(best, " "), least * 1e6);
  return best;
}

void tune(gpu::Device& device, Tuning& tuning, std::span<const Asked> asked, std::span<const Step> steps,
          std::span<const gpu::Buffer* const> buffers) {
  std::map<std::string, std::pair<Question, std::vector<Step>>> unknown;
  for (const Asked& a : asked) {
    if (tuning.knows(a.question.key)) continue;
    auto& [question, alike] = unknown[a.question.key];
    question = a.question;
    alike.push_back(on_trial(device, steps[a.step]));
  }
  double warm_up = kWarmUp;
  for (auto& [key, one] : unknown) {
    Trial trial(device, tuning, std::move(one.second), buffers, warm_up);
    const auto seconds = [&](const Way& way) {
      try {
        return trial.seconds(key, way);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::lost) throw;
        log(LogLevel::info, "{}: {} does not work: {}", key, fmt::join(way, " "), error.what());
        return std::numeric_limits<double>::infinity();
      }
    };
    tuning.set(key, fastest(one.first, seconds));
  }
  if (!unknown.empty()) tuning.save();
}

}  // namespace weft::webgpu
