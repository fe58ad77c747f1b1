#include "backend/webgpu/tuning.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>

#include "backend/webgpu/builder.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/paths.h"

namespace weft::webgpu {
namespace {

constexpr size_t kKeyRows = 3, kPositions = 6;  // inputs of cached_attention
constexpr size_t kMostTried = 64;               // of one question
constexpr size_t kMostAlike = 16;               // steps of a kind: enough to have weights come from memory
constexpr double kMostSeconds = 10;             // then the best so far will do
constexpr double kBetter = 0.99;                // of the time so far, to be worth a step
constexpr size_t kFew = 4;                      // ways that are tried among other kernels,
constexpr double kNearly = 1.2;        // if they take no more than so many times as long as the best alone
constexpr double kMeasured = 2e-3;     // seconds, at least
constexpr int kTurns = 4;              // the fastest counts
constexpr double kWarmUp = 1;          // second, at first; half of it after kernels were made
constexpr size_t kMostKept = 4096;     // answers in a file
constexpr int64_t kMostNumber = 4096;  // of a way

/// The same list, with other numbers.
StoragePtr filled(gpu::Device& device, const Operand& list, const std::function<int64_t(int64_t)>& number) {
  const gpu::Buffer buffer = device.alloc(dynamic_cast<const WebgpuStorage&>(*list.storage).size(), "tuning");
  std::vector<int32_t> values(buffer.size() / 4);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int32_t>(number(static_cast<int64_t>(i)));
  device.write(buffer, 0, std::as_bytes(std::span(values)));
  return std::make_shared<WebgpuStorage>(buffer);
}

/// A step without those that write into what is there already. Attention sees most of its keys, each in a row
/// of its own, not just those that a text has at its beginning.
Step on_trial(gpu::Device& device, Step step) {
  std::erase_if(step.after, [](const Step& after) { return after.kernel == "put_rows"; });
  const int64_t pitch = step.kernel == "cached_attention" ? step.attrs->integer("pitch") : 0;
  if (pitch == 0) return step;
  const int64_t rows = step.inputs[1].layout.shape[0];
  step.inputs[kKeyRows].storage = filled(device, step.inputs[kKeyRows], [&](int64_t i) { return i % rows; });
  step.inputs[kPositions].storage =
      filled(device, step.inputs[kPositions], [&](int64_t) { return pitch * 3 / 4; });
  return step;
}

/// Steps of one kind, of several layers, in one way: one after the other they find their weights in memory,
/// not in a cache.
class Trial {
 public:
  Trial(gpu::Device& device, const Tuning& tuning, std::span<const Step> steps,
        std::span<const gpu::Buffer* const> buffers)
      : device_(device), buffers_(buffers.begin(), buffers.end()) {
    Context context(device, tape_, buffers);
    context.tuning = &tuning;
    record_steps(context, steps);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Waits for its kernels. Runs them once: drivers compile when a kernel is first used.
  void prepare() {
    for (uint64_t bytes : tape_.scratch) scratch_.push_back(device_.alloc(bytes, "tuning"));
    for (const gpu::Buffer& buffer : scratch_) buffers_.push_back(&buffer);
    run(1);
  }
  void time() {
    if (times_ == 0) times_ = static_cast<int>(std::clamp(kMeasured / std::max(run(1), 1e-6), 1.0, 50.0)) + 1;
    least_ = std::min(least_, run(times_) / times_);
  }
  double least() const { return least_; }  ///< seconds; infinite where it does not work

  /// Seconds, by the GPU's own clock where it has one: to record a dispatch takes a host as long as the GPU
  /// needs for it.
  double run(int times) {
    device_.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    const bool stamps = device_.features().timestamps;
    gpu::Recorder recorder(device_, "tuning", stamps ? gpu::Trace::passes : gpu::Trace::nothing);
    const gpu::Series& series = tape_.on(device_, buffers_);  // other trials' memory may have come and gone
    for (int i = 0; i < times; ++i) recorder.dispatch(series, 0, series.size());
    recorder.submit();
    device_.synchronize();
    const std::vector<gpu::Timing> timings = recorder.timings();
    if (timings.empty())
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    double microseconds = 0;
    for (const gpu::Timing& timing : timings) microseconds += timing.microseconds;
    return microseconds * 1e-6;
  }

 private:
  gpu::Device& device_;
  Tape tape_;
  std::vector<gpu::Buffer> scratch_;
  std::vector<const gpu::Buffer*> buffers_;
  int times_ = 0;
  double least_ = std::numeric_limits<double>::infinity();
};

/// One kind of steps, and the search for how to run them.
struct Search {
  Climb climb;
  size_t alike = 0;  ///< of a kind
  std::vector<Step> steps = {};
  std::vector<std::unique_ptr<Trial>> trials = {};  ///< of a round's ways; null where the device cannot

  void begin_round(gpu::Device& device, Tuning& tuning, std::span<const gpu::Buffer* const> buffers) {
    trials.clear();
    for (const Way& way : climb.round()) {
      tuning.set(climb.question().key, way);
      trials.emplace_back();
      attempt(trials.back(),
              [&] { trials.back() = std::make_unique<Trial>(device, tuning, steps, buffers); });
    }
  }

  void end_round() {
    std::vector<double> seconds;
    for (const auto& trial : trials)
      seconds.push_back(trial ? trial->least() : std::numeric_limits<double>::infinity());
    climb.timed(seconds);
  }

  void attempt(std::unique_ptr<Trial>& trial, const std::function<void()>& work) const {
    try {
      work();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::lost) throw;
      log(LogLevel::info, "{}: a way that does not work: {}", climb.question().key, error.what());
      trial.reset();
    }
  }
};

/// What is fast alone need not be fast among other kernels: what is in a cache, and how a kernel begins while
/// the one before it ends, is not the same. So choices are made once more with all steps one after the other.
class Together {
 public:
  Together(gpu::Device& device, Tuning& tuning, std::vector<Step> stream,
           std::span<const gpu::Buffer* const> buffers)
      : device_(device), tuning_(tuning), stream_(std::move(stream)), buffers_(buffers) {}

  /// Sets the answers with which all steps take the least time.
  void choose(const std::vector<std::map<std::string, Way>>& answers) {
    std::vector<std::unique_ptr<Trial>> trials;
    for (const auto& each : answers) {
      set(each);
      trials.push_back(std::make_unique<Trial>(device_, tuning_, stream_, buffers_));
      trials.back()->prepare();
    }
    for (int turn = 0; turn < kTurns; ++turn)
      for (const auto& trial : trials) trial->time();
    size_t least = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      log(LogLevel::debug, "{} takes {:.1f} us among others", text_of(answers[i]), trials[i]->least() * 1e6);
      if (trials[i]->least() < trials[least]->least()) least = i;
    }
    set(answers[least]);
  }

 private:
  void set(const std::map<std::string, Way>& answers) {
    for (const auto& [key, way] : answers) tuning_.set(key, way);
  }
  static std::string text_of(const std::map<std::string, Way>& answers) {
    std::string text;
    for (const auto& [key, way] : answers)
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", key, fmt::join(way, " "));
    return text;
  }

  gpu::Device& device_;
  Tuning& tuning_;
  std::vector<Step> stream_;
  std::span<const gpu::Buffer* const> buffers_;
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

std::vector<Way> Climb::round() {
  ways_.clear();
  if (!climbs_) return {};
  is_near_ = !tried_.empty();
  ways_.push_back(best_);
  tried_.insert(best_);
  const auto add = [&](const Way& way) {
    if (std::ranges::all_of(way, [](int64_t number) { return number >= 1; }) && tried_.size() < kMostTried &&
        question_.possible(way) && tried_.insert(way).second)
      ways_.push_back(way);
  };
  // First those that are far apart, then the neighbours of the best of them: to make a kernel takes longer
  // than to time it.
  if (!is_near_) std::ranges::for_each(question_.others, add);
  is_near_ = is_near_ || ways_.size() == 1;
  for (size_t i = 0; is_near_ && i < best_.size(); ++i) {
    Way more = best_, less = best_;
    more[i] *= 2;
    less[i] /= 2;
    add(more);
    add(less);
    for (size_t k = 0; k < best_.size(); ++k)
      if (k != i) {
        Way other = more;
        other[k] /= 2;
        add(other);
      }
  }
  if (ways_.size() == 1) ways_.clear();
  return ways_;
}

void Climb::timed(std::span<const double> seconds) {
  climbs_ = !is_near_;
  for (size_t i = 0; i < ways_.size(); ++i)
    log(LogLevel::debug, "{}: {} takes {:.1f} us", question_.key, fmt::join(ways_[i], " "), seconds[i] * 1e6);
  if (ways_.empty()) return;
  // Those of different rounds are compared through the best one of the first, which is timed in both.
  const double before = best_score_;
  for (size_t i = 0; i < ways_.size(); ++i)
    if (std::isfinite(seconds[i])) scores_.emplace_back(before * seconds[i] / seconds[0], ways_[i]);
  const auto least = static_cast<size_t>(std::ranges::min_element(seconds) - seconds.begin());
  if (seconds[least] >= seconds[0] * kBetter) return;
  best_ = ways_[least];
  best_score_ = before * seconds[least] / seconds[0];
  climbs_ = true;
}

std::vector<Way> Climb::best_few() const {
  std::vector<Way> few = {best_};
  std::vector<std::pair<double, Way>> sorted = scores_;
  std::ranges::sort(sorted);
  for (const auto& [score, way] : sorted)
    if (few.size() < kFew && score < best_score_ * kNearly && std::ranges::find(few, way) == few.end())
      few.push_back(way);
  return few;
}

void tune(gpu::Device& device, Tuning& tuning, std::span<const Asked> asked, std::span<const Step> steps,
          std::span<const gpu::Buffer* const> buffers) {
  std::map<std::string, Search> searches;
  for (const Asked& a : asked) {
    if (tuning.knows(a.question.key)) continue;
    Search& search = searches.try_emplace(a.question.key, Climb(a.question)).first->second;
    if (search.alike++ >= kMostAlike) continue;
    // What is behind attention may put its splits together.
    const size_t count = steps[a.step].kernel == "cached_attention" ? 2 : 1;
    for (const Step& step : steps.subspan(a.step).first(std::min(count, steps.size() - a.step)))
      search.steps.push_back(on_trial(device, step));
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (double warm_up = kWarmUp; spent() < kMostSeconds; warm_up = kWarmUp / 2) {
    // All kernels of a round are made together and then timed without a pause: a GPU that rests lowers its
    // clock, and what is fastest at a low one need not be at a high one.
    for (auto& [key, search] : searches) search.begin_round(device, tuning, buffers);
    std::vector<Trial*> trials;
    for (auto& [key, search] : searches)
      for (auto& trial : search.trials) {
        if (trial) search.attempt(trial, [&] { trial->prepare(); });
        if (trial) trials.push_back(trial.get());
      }
    if (trials.empty()) break;
    const auto warm = std::chrono::steady_clock::now() + std::chrono::duration<double>(warm_up);
    for (size_t i = 0; std::chrono::steady_clock::now() < warm; i = (i + 1) % trials.size())
      trials[i]->run(1);
    for (int turn = 0; turn < kTurns; ++turn)
      for (Trial* trial : trials) trial->time();
    for (auto& [key, search] : searches) search.end_round();
  }
  if (searches.empty()) return;
  std::vector<Step> stream;
  for (const Asked& a : asked) stream.push_back(on_trial(device, steps[a.step]));
  Together together(device, tuning, std::move(stream), buffers);
  // Ways that are slow among others may be so only because of each other: all usual ones are where to begin,
  // if they are faster than all of the best.
  std::map<std::string, Way> usual, best;
  for (const auto& [key, search] : searches) {
    usual[key] = search.climb.question().usual;
    best[key] = search.climb.best();
  }
  together.choose({best, usual});
  for (const auto& [key, search] : searches) {
    const Question& question = search.climb.question();
    std::vector<std::map<std::string, Way>> few = {{{key, tuning.answer(question)}}};
    const auto add = [&, name = &key](const Way& way) {
      const std::map<std::string, Way> answer = {{*name, way}};
      if (std::ranges::find(few, answer) == few.end()) few.push_back(answer);
    };
    std::ranges::for_each(search.climb.best_few(), add);
    add(question.usual);
    if (few.size() > 1) together.choose(few);
    log(LogLevel::info, "{}: {} is fastest", key, fmt::join(tuning.answer(question), " "));
  }
  tuning.save();
}

}  // namespace weft::webgpu
