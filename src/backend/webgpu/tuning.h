#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "gpu/device.h"

/// Kernels that can run in several ways, all of them right. Which is fastest depends on the adapter and the
/// library: it is measured when a kernel is first needed, and kept.
namespace weft::webgpu {

/// A way is a few numbers. Each may be doubled or halved, or one doubled and another halved, as long as that
/// is possible.
using Way = std::vector<int64_t>;

struct Question {
  std::string key;  ///< what is asked for: the kernel and its sizes
  Way usual;
  std::function<bool(const Way&)> possible;
  std::vector<Way> others = {};  ///< far from the usual one, to begin with as well
};

/// Answers, in memory and perhaps in a file.
class Tuning {
 public:
  /// Of this device, in a file of the user's cache where there is one. What cannot be read is not known.
  static Tuning kept_for(const gpu::Device& device);

  bool knows(const std::string& key) const { return known_.contains(key); }
  /// What is known and possible, else what is usual.
  Way answer(const Question& question) const;
  void set(const std::string& key, Way way) { known_[key] = std::move(way); }
  void save() const;

 private:
  std::optional<std::filesystem::path> file_;
  std::string stack_;
  std::map<std::string, Way> known_;
};

/// What the file's text says, line by line; lines that are none are passed over.
std::map<std::string, Way> parse_tuning(std::string_view text, std::string_view stack);

/// The search for the fastest way to do a thing, in rounds: some ways, which are then timed. It climbs from
/// the usual one as long as a neighbour is faster.
class Climb {
 public:
  explicit Climb(Question question) : question_(std::move(question)), best_(question_.usual) {}

  const Question& question() const { return question_; }
  /// Those to be timed now, of which the best so far is one. None at the top.
  std::vector<Way> round();
  /// All of them together, because a GPU's clock goes up and down between rounds. In the order of round().
  void timed(std::span<const double> seconds);
  const Way& best() const { return best_; }
  /// It, and those that come next, some of which may be better among other kernels.
  std::vector<Way> best_few() const;

 private:
  Question question_;
  Way best_;
  double best_score_ = 1;  ///< of the usual way's time
  bool climbs_ = true;
  bool is_near_ = false;   ///< this round's ways are neighbours of the best one
  std::vector<Way> ways_;  ///< of this round
  std::set<Way> tried_;
  std::vector<std::pair<double, Way>> scores_;  ///< of all that were timed
};

/// What a step asked when it was recorded.
struct Asked {
  size_t step;
  Question question;
};

/// Answers what the steps asked and is not known yet. Runs them on these buffers: what they write is
/// undefined afterwards, but for rows that they put into a cache.
void tune(gpu::Device& device, Tuning& tuning, std::span<const Asked> asked, std::span<const Step> steps,
          std::span<const gpu::Buffer* const> buffers);

}  // namespace weft::webgpu
