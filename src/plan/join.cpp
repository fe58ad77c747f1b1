#include "plan/join.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "array/layout.h"
#include "backend/fold_rows.h"
#include "ops/op.h"

namespace weft {
namespace {

constexpr int64_t kWidths[] = {8, 16, 32, 64, 128, 256};  // of a product's tile
constexpr int64_t kLongestRow = 512;                      // that a fold inside of a tile has
constexpr int64_t kMostWords = 3072;                      // of a workgroup's memory for all values

/// Whether a product's weights are read once, in vectors of four words: those of blocks are, but for tiles of
/// halves.
bool reads_once(const Plan::Step& step, uint64_t most_bytes) {
  if (step.kernel == "qmatmul_halves") return false;
  if (step.kernel != "matmul_batched") return true;
  const Plan::Operand &a = step.inputs[0], &b = step.inputs[1];
  const int64_t k = a.layout.shape.back();
  return a.layout.shape.size() == 2 && a.dtype == DType::f32 && a.layout.is_contiguous() &&
         is_float(b.dtype) && b.layout.strides == std::vector<int64_t>{1, k} && b.layout.offset % 8 == 0 &&
         k % 8 == 0 && step.outputs[0].dtype == DType::f32 &&
         static_cast<uint64_t>(element_count(b.layout.shape)) * size_of(b.dtype) <= most_bytes;
}

/// Columns of a tile, one of these: none where a kernel does not go on.
std::vector<int64_t> widths_of(const Plan::Step& step, const Backend& backend) {
  const Shape out = step.outputs.empty() ? Shape{} : step.outputs[0].layout.shape;
  const bool is_attention = step.kernel == "cached_attention" && step.attrs.text("type").empty();
  const bool is_product = step.is_product && reads_once(step, backend.most_bytes());
  if (out.empty() || element_count(out) == 0 || !(is_attention || is_product)) return {};
  if (element_count(out) / out.back() > backend.joined_rows()) return {};
  std::vector<int64_t> widths;
  if (is_attention) {
    // What some of the query heads of one key head give.
    const int64_t heads = step.inputs[0].layout.shape[1],
                  group = heads / (step.inputs[1].layout.shape[1] / step.inputs[0].layout.shape[2]);
    for (int64_t some = 1; some <= group; ++some)
      if (group % some == 0) widths.push_back(out.back() / heads * some);
    return widths;
  }
  for (int64_t width : kWidths)
    if (out.back() % width == 0 && width >= backend.least_tile()) widths.push_back(width);
  return widths;
}

/// A sum over each of `rows` rows.
bool is_row_sum(const Plan::Step& step, int64_t rows) {
  if (step.kernel != "reduce_sum" || step.inputs[0].dtype != DType::f32) return false;
  const Layout& in = step.inputs[0].layout;
  return in.shape.size() == 2 && in.shape[0] == rows && in.is_contiguous() &&
         step.attrs.list("dims") == std::vector<int64_t>{1};
}

/// A fold alone, which has a kernel of its own, as a program over rows.
Plan::Step with_program(Plan::Step step) {
  if (!step.kernel.starts_with("reduce_") || step.inputs[0].dtype != DType::f32) return step;
  const Fold fold = find_op(step.kernel).fold;
  if (fold == Fold::none) return step;
  FoldRows rows(step.inputs[0].layout, DType::f32, step.outputs[0].dtype, fold, step.attrs.list("dims"));
  step.kernel = "rows";
  step.inputs[0].layout = std::move(rows.input);
  step.outputs[0].layout = std::move(rows.output);
  step.program = std::move(rows.program);
  return step;
}

/// For each place of a layout's shape, in order, where it is in storage.
std::vector<int64_t> places_of(const Layout& layout) {
  std::vector<int64_t> places = {layout.offset};
  for (size_t d = 0; d < layout.shape.size(); ++d) {
    std::vector<int64_t> next;
    next.reserve(places.size() * static_cast<size_t>(layout.shape[d]));
    for (int64_t place : places)
      for (int64_t i = 0; i < layout.shape[d]; ++i) next.push_back(place + i * layout.strides[d]);
    places = std::move(next);
  }
  return places;
}

/// Which tiles a step works on: `count` from `first` on, and how many of its places of a row one tile has.
struct Share {
  int64_t first = 0, count = 0, places = 0;
  bool operator==(const Share&) const = default;
};

/// Finds out whether what a layout reads of a tiled value is always in the tile of the place that reads it.
/// Layers of a model are alike, so answers are kept.
class Locality {
 public:
  /// `elements`: places of the layout that belong together, and count as one.
  std::optional<Share> share(const Layout& layout, const Tiled& value, int64_t rows, int64_t elements) {
    const auto key = std::tuple(layout.shape, layout.strides, layout.offset, value.columns, value.width,
                                value.first, rows, elements);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    return known_[key] = find(layout, value, rows, elements);
  }

 private:
  static std::optional<Share> find(const Layout& layout, const Tiled& value, int64_t rows, int64_t elements) {
    const std::vector<int64_t> places = places_of(layout);
    const int64_t count = std::ssize(places) / elements;
    if (count == 0 || count % rows != 0) return std::nullopt;
    const int64_t in_row = count / rows;
    const auto tile = [&](int64_t i) { return places[static_cast<size_t>(i)] % value.columns / value.width; };
    const int64_t first = tile(0), tiles = tile(in_row * elements - 1) - first + 1;
    if (tiles <= 0 || in_row % tiles != 0) return std::nullopt;
    const int64_t in_tile = in_row / tiles;
    for (int64_t i = 0; i < std::ssize(places); ++i) {
      const int64_t at = i / elements, row = at / in_row;
      if (places[static_cast<size_t>(i)] / value.columns != row || tile(i) != first + at % in_row / in_tile)
        return std::nullopt;
    }
    return Share{value.first + first, tiles, in_tile};
  }

  std::map<std::tuple<Shape, std::vector<int64_t>, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>,
           std::optional<Share>>
      known_;
};

/// A product in the making into a kernel with others.
class Joined {
 public:
  Joined(const Plan::Step& product, int64_t rows, int64_t width, Locality& locality,
         const std::set<int>& left_to_readers)
      : step_(product), rows_(rows), locality_(&locality), left_(&left_to_readers) {
    const int64_t columns = step_.outputs[0].layout.shape.back();
    step_.tiles = {{.columns = columns, .width = width, .first = 0, .count = columns / width}};
    if (step_.program) {
      // What ends the product is the first step after it.
      const Plan::Operand sums{-1, step_.program->loads[0], Layout::contiguous(step_.outputs[0].layout.shape),
                               0};
      Plan::Step rest{.kernel = "elementwise", .inputs = {sums}, .outputs = step_.outputs};
      rest.program = step_.program;
      rest.inputs.insert(rest.inputs.end(), step_.inputs.begin() + 2, step_.inputs.end());
      step_.inputs.resize(2);
      step_.program.reset();
      step_.outputs = {sums};
      take(rest);
      own_ = step_.after.size();
    } else {
      step_.outputs[0].tile = 0;
      tile_of_[step_.outputs[0].storage] = 0;
    }
  }

  /// Nothing but the product and its own end.
  bool is_alone() const { return step_.after.size() == own_ && step_.before.empty(); }
  const Plan::Step& step() const { return step_; }

  bool take(Plan::Step next) {
    const bool writes_memory = next.kernel == "put_rows" || next.kernel == "activation_codes";
    if (!writes_memory && next.kernel != "elementwise" && next.kernel != "rows") return false;
    if (!writes_memory && next.outputs.size() != 1) return false;
    if (left_->contains(next.outputs[0].storage)) return false;
    // Places that make up one: a row that is folded, or a block.
    int64_t together = next.kernel == "activation_codes" ? 32 : 1;
    const Plan::Operand* domain = next.kernel == "put_rows" ? &next.inputs[2] : &next.inputs[0];
    if (next.kernel == "rows") {
      const Shape& shape = next.inputs[0].layout.shape;
      for (size_t d = shape.size() - next.program->row_dims; d < shape.size(); ++d) together *= shape[d];
      if (together > kLongestRow) return false;
    }
    const int64_t units = element_count(domain->layout.shape) / together;

    std::optional<Share> share;
    for (Plan::Operand& input : next.inputs) {
      if (input.tile < 0) {
        if (written_.contains(input.storage)) return false;
        const auto found = tile_of_.find(input.storage);
        if (found == tile_of_.end()) continue;
        input.tile = found->second;
      }
      if (step_.tiles[static_cast<size_t>(input.tile)].columns == 1) continue;  // one for each row
      const std::optional<Share> one =
          locality_->share(input.layout, step_.tiles[static_cast<size_t>(input.tile)], rows_, together);
      if (!one || (share && *share != *one)) return false;
      share = one;
    }
    if (!share || units != share->count * share->places * rows_) return false;
    next.tiles = {{.columns = share->count * share->places,
                   .width = share->places,
                   .first = share->first,
                   .count = share->count}};
    if (writes_memory) {
      const int64_t per_word = 4 / static_cast<int64_t>(size_of(domain->dtype));
      if (share->places % per_word != 0) return false;
      written_.insert(next.outputs[0].storage);
    } else {
      Tiled made = next.tiles[0];
      const bool per_row = next.kernel == "rows" && next.program->is_per_row(next.outputs[0].layout);
      if (next.kernel == "rows" && !per_row) made.columns *= together, made.width *= together;
      int64_t words = made.width * rows_;
      for (const Tiled& tile : step_.tiles) words += tile.width * rows_;
      if (words > kMostWords) return false;
      next.outputs[0].tile = static_cast<int>(step_.tiles.size());
      tile_of_[next.outputs[0].storage] = next.outputs[0].tile;
      step_.tiles.push_back(made);
    }
    step_.after.push_back(std::move(next));
    return true;
  }

  bool reads(int storage) {
    bool found = false;
    step_.each_operand([&](Plan::Operand& o, bool) { found = found || o.storage == storage; });
    return found;
  }

  /// A step about whole rows, in every workgroup.
  void take_before(Plan::Step next) {
    Plan::Operand& out = next.outputs[0];
    const int storage = out.storage, tile = static_cast<int>(step_.tiles.size());
    const int64_t columns = element_count(out.layout.shape) / rows_;
    step_.tiles.push_back({.columns = columns, .width = columns, .first = 0, .count = step_.tiles[0].count});
    step_.each_operand([&](Plan::Operand& o, bool is_output) {
      if (!is_output && o.storage == storage) o.storage = -1, o.tile = tile;
    });
    out.storage = -1;
    out.tile = tile;
    step_.before.push_back(std::move(next));
  }

  /// Values that nobody else needs stay with the workgroups.
  void keep_inside(const std::set<int>& needed) {
    step_.each_operand([&](Plan::Operand& o, bool is_output) {
      if (o.tile >= 0 && (!is_output || !needed.contains(o.storage))) o.storage = -1;
    });
  }

  /// Everything that a kernel stores is whole words.
  bool stores_words() {
    bool words = true;
    step_.each_operand([&](Plan::Operand& o, bool is_output) {
      if (is_output && o.tile >= 0 && o.storage >= 0) words = words && size_of(o.dtype) == 4;
    });
    return words;
  }

  int64_t storages() {
    std::set<int> used;
    step_.each_operand([&](Plan::Operand& o, bool) { used.insert(o.storage); });
    used.erase(-1);
    return std::ssize(used);
  }

 private:
  Plan::Step step_;
  int64_t rows_;
  Locality* locality_;
  const std::set<int>* left_;   ///< storages of codes that whoever reads them makes
  size_t own_ = 0;              ///< steps after it that were its program
  std::map<int, int> tile_of_;  ///< storage -> tile
  std::set<int> written_;       ///< storages that are in memory only
};

/// The storages that steps read, and those that they write.
struct Touched {
  std::set<int> read, written;

  void add(Plan::Step& step) {
    step.each_operand([&](Plan::Operand& o, bool is_output) {
      if (o.storage >= 0) (is_output ? written : read).insert(o.storage);
    });
  }
  /// Whether a step may run before these.
  bool lets_pass(Plan::Step& step) const {
    bool free = true;
    step.each_operand([&](Plan::Operand& o, bool is_output) {
      free = free && !written.contains(o.storage) && !(is_output && read.contains(o.storage));
    });
    return free;
  }
};

/// Steps in the making into fewer.
class Joiner {
 public:
  Joiner(std::vector<Plan::Step>& steps, const std::set<int>& kept, const Backend& backend)
      : steps_(steps), kept_(kept), backend_(backend), done_(steps.size(), false) {
    find_codes();
  }

  std::vector<Plan::Step> run() {
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (done_[s]) continue;
      if (!join(s)) result_.push_back(steps_[s]);
      done_[s] = true;
    }
    return std::move(result_);
  }

 private:
  static constexpr size_t kAhead = 12;  // steps that are looked at behind a product, or before it

  /// Codes that the one product which reads them makes itself, while its weights are on their way; so the
  /// product in front of them ends earlier, and has tiles of less than a block. What attention leaves is few
  /// columns at hand already.
  void find_codes() {
    std::map<int, std::vector<size_t>> readers;
    std::map<int, std::string_view> made_by;
    for (size_t s = 0; s < steps_.size(); ++s)
      steps_[s].each_operand([&](Plan::Operand& o, bool is_output) {
        if (is_output)
          made_by[o.storage] = steps_[s].kernel;
        else
          readers[o.storage].push_back(s);
      });
    for (const Plan::Step& step : steps_) {
      if (step.kernel != "activation_codes") continue;
      const Plan::Operand &x = step.inputs[0], &codes = step.outputs[0];
      const std::vector<size_t>& reading = readers[codes.storage];
      if (kept_.contains(codes.storage) || reading.size() != 1 || made_by[x.storage] == "cached_attention" ||
          !x.layout.is_contiguous() || x.layout.offset % 4 != 0)
        continue;
      const Plan::Step& reader = steps_[reading[0]];
      if (reader.kernel == "qmatmul_codes" && reader.inputs[0].storage == codes.storage &&
          !widths_of(reader, backend_).empty() &&
          backend_.encodes(element_count(x.layout.shape), reader.outputs[0].layout.shape.back()))
        left_to_readers_.insert(codes.storage);
    }
  }

  /// Steps from `s` on that a product takes, at most so many.
  Joined grown(size_t s, int64_t rows, int64_t width, size_t most, std::vector<size_t>& taken) {
    Joined made(steps_[s], rows, width, locality_, left_to_readers_);
    Touched passed;
    for (size_t next = s + 1; next < std::min(steps_.size(), s + kAhead) && taken.size() < most; ++next) {
      if (passed.lets_pass(steps_[next]) && made.take(with_program(steps_[next])))
        taken.push_back(next);
      else
        passed.add(steps_[next]);
    }
    return made;
  }

  bool join(size_t s) {
    const std::vector<int64_t> widths = widths_of(steps_[s], backend_);
    if (widths.empty()) return false;
    const Shape& out = steps_[s].outputs[0].layout.shape;
    const int64_t rows = element_count(out) / out.back();
    // The narrowest tile with which most can join.
    size_t most = 0;
    int64_t best = 0;
    for (int64_t width : widths) {
      std::vector<size_t> taken;
      grown(s, rows, width, steps_.size(), taken);
      if (best == 0 || taken.size() > most) most = taken.size(), best = width;
    }
    for (size_t count = most + 1; count-- > 0;) {
      std::vector<size_t> taken;
      Joined made = grown(s, rows, best, count, taken);
      if (finish(made, s, rows, taken)) return true;
    }
    return false;
  }

  bool finish(Joined& made, size_t s, int64_t rows, const std::vector<size_t>& taken) {
    Touched rest;
    rest.read = kept_;
    for (size_t i = s + 1; i < steps_.size(); ++i)
      if (std::ranges::find(taken, i) == taken.end() && !done_[i]) rest.add(steps_[i]);
    std::vector<size_t> before;
    Touched between = rest;
    for (size_t i = result_.size(); i-- > 0 && result_.size() - i < kAhead;) {
      const int value = result_[i].outputs.empty() ? -1 : result_[i].outputs[0].storage;
      const bool joins = is_row_sum(result_[i], rows) || left_to_readers_.contains(value);
      if (joins && !between.read.contains(value) && made.reads(value)) {
        made.take_before(result_[i]);
        before.push_back(i);
      } else {
        between.add(result_[i]);
      }
    }
    if (made.is_alone()) return false;
    made.keep_inside(rest.read);
    if (!made.stores_words() || made.storages() > backend_.most_storages()) return false;
    for (size_t i : before) result_.erase(result_.begin() + static_cast<int64_t>(i));
    result_.push_back(made.step());
    for (size_t i : taken) done_[i] = true;
    return true;
  }

  std::vector<Plan::Step>& steps_;
  const std::set<int>& kept_;
  const Backend& backend_;
  std::vector<bool> done_;
  std::vector<Plan::Step> result_;
  std::set<int> left_to_readers_;  ///< storages of codes
  Locality locality_;
};

}  // namespace

void join_steps(std::vector<Plan::Step>& steps, const std::set<int>& kept, const Backend& backend) {
  steps = Joiner(steps, kept, backend).run();
}

}  // namespace weft
