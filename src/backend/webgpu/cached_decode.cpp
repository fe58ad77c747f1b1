// Attention of few tokens over a cache: the text around cached_decode.wgsl, cached_combine.wgsl and
// cached_lanes.wgsl.
#include "backend/webgpu/cached_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <set>

#include "backend/webgpu/join.h"
#include "backend/webgpu/webgpu_backend.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

constexpr int64_t kMostTokens = 64;
constexpr int64_t kMostColumns = 512;  // of a value
constexpr int64_t kMostSplits = 64;
constexpr int64_t kFewSplits = 16;   // that the product behind attention puts together
constexpr int64_t kFewestKeys = 32;  // of a split
constexpr int64_t kMostHeads = 8;    // of a workgroup
constexpr int64_t kSpan = 1024;      // keys whose rows a workgroup holds
constexpr int64_t kBatch = 8;        // splits whose sums are loaded before the first is used
// More splits keep more of a GPU busy, and cost the last workgroup 0.35 us each. 32 heads of 128 columns over
// 4096 keys on an H200: 17.7, 23.4 and 34.7 us with 16, 32 and 64 splits of 8 key heads.
constexpr int64_t kGroups = 128;
// More invocations hide more of the memory's latency, where there are enough keys for all: 64 us instead of
// 81 for 32,768 keys there, but 12.3 instead of 10.3 for 512.
constexpr int64_t kThreads = 256, kManyThreads = 512, kManyKeys = 8192;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t bit_ceil(int64_t x) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(x)));
}

/// Columns of a tile of the steps behind attention, and the tiles that they have in common.
struct Behind {
  int64_t width, common;
};
std::optional<Behind> behind(const Step* joined) {
  if (!joined) return std::nullopt;
  return Behind{joined->tiles[0].width, common_tiles(*joined)};
}

/// How a workgroup shares out its work; see cached_decode.wgsl.
struct Sharing {
  bool shuffles;
  int64_t threads;
  int64_t heads, blocks;  // query heads of a workgroup, and how many such blocks share a key head
  int64_t team, loads, value_loads, keys;
  int64_t lanes, crew, at_once = 2;
  int64_t splits;       // at most: a token that sees few keys has fewer
  int64_t most_splits;  // of all numbers of keys

  /// `way`: threads, heads and, at most, splits.
  Sharing(const gpu::Device& device, const CachedProblem& p, int64_t key_count, const Way& way)
      : threads(way[0]), heads(way[1]), blocks(ceil_div(p.group(), way[1])) {
    const gpu::Features& features = device.features();
    shuffles = features.subgroups && features.subgroup_min >= 4;
    lanes = shuffles ? std::min<int64_t>(features.subgroup_min, 32) : 32;
    team = std::clamp<int64_t>(bit_ceil(std::min(p.dim, p.value_dim) / 8), 4, lanes);
    crew = shuffles ? lanes : team;
    loads = ceil_div(p.dim / 8, team);
    value_loads = ceil_div(p.value_dim / 8, team);
    keys = 4 * threads / team;
    splits = std::min(ceil_div(key_count, keys), way[2]);
    most_splits = way[2];
    if (memory(p) > device.limits().max_workgroup_memory) at_once = 1;
  }

  static Way usual(const gpu::Device& device, const CachedProblem& p, int64_t key_count) {
    const bool many = key_count >= kManyKeys && device.limits().max_workgroup_threads >= kManyThreads;
    // What is done for each head is unrolled, and llvmpipe takes a second to compile it for one.
    const bool cpu = device.type() == gpu::AdapterType::cpu,
               wide = std::max(p.dim, p.value_dim) > AttentionProblem::kMaxDim, few = p.tokens == 1 && !many;
    const int64_t most_heads = cpu || few ? 2 : (wide ? 4 : kMostHeads),
                  blocks = p.group() / divisor(p.group(), most_heads),
                  groups = p.tokens * p.key_heads * blocks;
    const int64_t threads = few && !wide ? std::clamp<int64_t>(bit_ceil(2 * p.dim), 64, kThreads) : kThreads;
    return {many ? kManyThreads : threads, p.group() / blocks,
            std::clamp<int64_t>(kGroups / groups, 1, few ? kFewSplits : kMostSplits)};
  }

  /// Tiles of the steps behind attention that a workgroup has.
  int64_t tiles(const CachedProblem& p, const Behind& behind) const {
    return heads * p.value_dim / behind.width;
  }
  bool joins(const CachedProblem& p, const Behind& behind) const {
    const int64_t count = tiles(p, behind);
    return count > 0 && p.group() % heads == 0 && heads * p.value_dim == count * behind.width &&
           behind.common % count == 0;
  }
  /// Loads of wide heads would be unrolled into a text that takes minutes to compile.
  bool is_possible(const gpu::Device& device, const CachedProblem& p,
                   const std::optional<Behind>& behind) const {
    // Each head's splits are put together by a group of lanes of its own.
    return heads * lanes <= threads && loads <= 4 && heads * value_loads <= 2 * kMostHeads &&
           memory(p) <= device.limits().max_workgroup_memory && (!behind || joins(p, *behind));
  }
  /// Bytes of a workgroup.
  int64_t memory(const CachedProblem& p) const {
    const int64_t without_shuffles = shuffles ? 0 : 5 * threads, spans = p.in_order() ? 0 : 2;
    const int64_t crews = threads / crew;
    return 4 * (heads * (p.dim + 2 * crews + p.value_dim + 2 * kMostSplits + 8) + spans * kSpan +
                at_once * crews * p.value_dim + without_shuffles + 16);
  }
};

/// Rows of whole eights, side by side.
bool has_eights(const Operand& cache) {
  return cache.layout.strides[1] == 1 && cache.layout.strides[0] % 8 == 0 && cache.layout.offset % 8 == 0;
}

using Numbers = std::vector<std::pair<const char*, int64_t>>;

/// What all forms have: constants of the text, sizes, and functions that read.
class Reads {
 public:
  Reads(Context& context, const CacheReads& reads)
      : context_(context),
        in_(reads),
        key_count_(reads.problem.pitch > 0 ? reads.problem.pitch
                                           : element_count(reads.key_positions.layout.shape)) {}

 protected:
  bool has_slopes() const { return in_.slopes.storage != nullptr; }
  /// Several, whose keys follow each other.
  bool has_sequences() const {
    return in_.problem.pitch > 0 && element_count(in_.key_positions.layout.shape) > in_.problem.pitch;
  }
  bool has_sinks() const { return in_.sinks.storage != nullptr; }
  /// Rows of whole eights, in a dtype that is loaded as words.
  bool fits() const {
    const CachedProblem& p = in_.problem;
    const DType dtype = in_.keys.dtype;
    return p.dim % 8 == 0 && p.value_dim % 8 == 0 && in_.values.dtype == dtype &&
           (dtype == DType::f16 || dtype == DType::f32) && has_eights(in_.keys) && has_eights(in_.values);
  }
  void declare_sizes(Builder& builder, const Numbers& constants) const;
  /// `all`: with what tells which keys a token sees.
  void declare_reads(Builder& builder, bool all) const;
  void declare_sink(Builder& builder) const;

  Context& context_;
  const CacheReads& in_;
  int64_t key_count_;  ///< that a token may see
};

class Decode : Reads {
 public:
  Decode(Context& context, const CacheReads& reads) : Reads(context, reads), sharing_(choose()) {
    parts_lanes_ = lanes_for_parts();
    one_dispatch_ = is_single() || (parts_lanes_ == 0 && context.device.features().last_workgroup &&
                                    buffers(true) <= most_buffers());
  }

  bool possible() const {
    const CachedProblem& p = in_.problem;
    return fits() && p.tokens <= kMostTokens && p.value_dim <= kMostColumns &&
           sharing_.is_possible(context_.device, p, behind(in_.joined)) &&
           buffers(one_dispatch_) <= most_buffers();
  }

  void record() {
    const CachedProblem& p = in_.problem;
    Builder builder("cached_decode");
    declare(builder, one_dispatch_);
    declare_reads(builder, looks_for_keys());
    gpu::Buffer partial;
    if (!is_single())
      partial = context_.scratch(p.tokens * p.heads * sharing_.splits * (p.value_dim + 4), "attention");
    if (is_single()) {
      declare_store(builder);
    } else if (one_dispatch_) {
      const std::string parts = builder.share(partial);
      // & 0 is not known to be 0 when it is compiled: what was there is waited for.
      builder.code += fmt::format(
          "fn put(at: u32, x: f32) -> u32 {{ return atomicExchange(&{0}[at], bitcast<u32>(x)) & {1}; }}\n"
          "fn partial(at: u32) -> f32 {{ return bitcast<f32>(atomicLoad(&{0}[at])); }}\n",
          parts, builder.number(0));
      declare_counters(builder);
      declare_store(builder);
    } else {
      builder.code +=
          fmt::format("fn put(at: u32, x: f32) -> u32 {{ {}[at] = bitcast<u32>(x); return 0u; }}\n",
                      builder.write(partial));
    }
    builder.code += embedded::webgpu_kernels("cached_places");
    builder.code += embedded::webgpu_kernels("cached_rows");
    builder.code += embedded::webgpu_kernels("cached_splits");
    if (one_dispatch_ && !is_single()) builder.code += embedded::webgpu_kernels("cached_combine");
    builder.code += embedded::webgpu_kernels("cached_decode");
    builder.groups(context_, places() * sharing_.splits, static_cast<int>(sharing_.threads),
                   "  decode(index, thread);\n");
    if (parts_lanes_ > 0)
      leave(partial);
    else if (!one_dispatch_)
      combine(partial);
  }

 private:
  int64_t places() const { return in_.problem.tokens * in_.problem.key_heads * sharing_.blocks; }
  size_t most_buffers() const { return context_.device.limits().max_storage_buffers; }
  /// That the kernel of the splits has bound.
  size_t buffers(bool one_dispatch) const {
    std::set<const Storage*> bound;
    const auto add = [&](const Operand& o) {
      if (o.storage) bound.insert(o.storage.get());
    };
    for (const Operand* o : {&in_.q, &in_.keys, &in_.values, &in_.positions, &in_.slopes}) add(*o);
    if (looks_for_keys()) add(in_.key_positions), add(in_.key_sequences);
    if (looks_for_keys() || has_sequences()) add(in_.sequences);
    if (in_.key_rows) add(*in_.key_rows);
    if (!one_dispatch) return bound.size() + 1;  // sums of the splits
    add(in_.out);
    add(in_.sinks);
    for (const Step& step : in_.joined ? in_.joined->after : std::vector<Step>())
      for (const auto* operands : {&step.inputs, &step.outputs})
        for (const Operand& o : *operands) add(o);
    return bound.size() + (is_single() ? 0 : 2);  // and counters
  }

  /// A token may see any of the keys, and not just those up to itself.
  bool looks_for_keys() const { return !in_.problem.in_order(); }
  Sharing choose() const;
  int64_t lanes_for_parts() const;
  void leave(const gpu::Buffer& partial) const;
  /// A workgroup takes all keys, by choice and not for want of them: a text that grows needs no other kernel.
  bool is_single() const { return sharing_.most_splits == 1; }
  void declare(Builder& builder, bool ends) const;
  void declare_counters(Builder& builder) const;
  void declare_store(Builder& builder) const;
  void combine(const gpu::Buffer& partial) const;

  Sharing sharing_;
  int64_t parts_lanes_;  ///< Context::Parts::lanes; 0: what splits leave is put together here
  bool one_dispatch_;
};

void Reads::declare_sizes(Builder& builder, const Numbers& constants) const {
  const CachedProblem& p = in_.problem;
  for (const auto& [name, value] : constants)
    builder.settings.push_back({name, static_cast<uint32_t>(value)});
  const Numbers dims = {{"DIM", p.dim},
                        {"EIGHTS", p.dim / 8},
                        {"VALUE_DIM", p.value_dim},
                        {"VALUE_EIGHTS", p.value_dim / 8},
                        {"KEY_HEADS", p.key_heads},
                        {"GROUP", p.group()}};
  for (const auto& [name, value] : dims) builder.settings.push_back({name, static_cast<uint32_t>(value)});
  const std::pair<const char*, bool> conditions[] = {{"HALVES", in_.keys.dtype == DType::f16},
                                                     {"CAUSAL", p.causal},
                                                     {"WINDOW", p.window > 0},
                                                     {"PITCH", p.pitch > 0},
                                                     {"SEQUENCES", has_sequences()},
                                                     {"SOFTCAP", p.softcap > 0},
                                                     {"SLOPES", has_slopes()},
                                                     {"SINKS", has_sinks()}};
  for (const auto& [name, value] : conditions) builder.settings.push_back({name, value});
}

Sharing Decode::choose() const {
  const Way usual = Sharing::usual(context_.device, in_.problem, key_count_);
  if (!fits() || in_.problem.tokens > kMostTokens)
    return Sharing(context_.device, in_.problem, key_count_, usual);
  const CachedProblem& p = in_.problem;
  // Who asks may do so when the step, and whoever opened the device, are gone.
  const auto possible = [device = context_.device, p, steps = behind(in_.joined),
                         keys = key_count_](const Way& way) {
    return way[0] >= 64 && way[0] <= device.limits().max_workgroup_threads && way[1] <= kMostHeads &&
           way[1] <= p.group() && way[2] <= kMostSplits && way[2] <= ceil_div(keys, kFewestKeys) &&
           Sharing(device, p, keys, way).is_possible(device, p, steps);
  };
  const Way way =
      context_.choose({.key = fmt::format("cached_attention {} x {} heads of {} x {} and {}, {} keys of {}{}",
                                          p.tokens, p.heads, p.key_heads, p.dim, p.value_dim, key_count_,
                                          name_of(in_.keys.dtype), in_.joined ? ", joined" : ""),
                       .usual = usual,
                       .possible = possible,
                       .others = {{512, 1, 1}, {1024, 1, 1}}});  // nothing to be put together
  return Sharing(context_.device, p, key_count_, way);
}

/// Only codes are made of what attention gives, for one product, which comes next: it puts the splits
/// together while it waits for its weights. Then nobody has to find out who is last, which takes three round
/// trips to memory.
int64_t Decode::lanes_for_parts() const {
  const gpu::Features& features = context_.device.features();
  const CachedProblem& p = in_.problem;
  const Step* joined = in_.joined;
  if (!joined || joined->after.size() != 1 || joined->after[0].kernel != "activation_codes" ||
      in_.out.storage || p.tokens > 1 || is_single() || !features.subgroups || context_.behind.empty())
    return 0;
  const int64_t lanes = std::min<int64_t>(features.subgroup_min, kFewSplits);
  const bool fits =
      lanes >= 8 && sharing_.most_splits <= lanes &&
      takes_parts(context_.device, context_.behind[0], joined->after[0].outputs[0].storage, p.heads, lanes);
  return fits ? lanes : 0;
}

void Decode::leave(const gpu::Buffer& partial) const {
  const CachedProblem& p = in_.problem;
  context_.parts = {.codes = in_.joined->after[0].outputs[0].storage,
                    .left = partial,
                    .heads = p.heads,
                    .columns = p.value_dim,
                    .splits = sharing_.splits,
                    .lanes = parts_lanes_,
                    .sinks = in_.sinks};
  context_.keep_scratch();
}

void Decode::declare(Builder& builder, bool ends) const {
  const CachedProblem& p = in_.problem;
  builder.settings = {{"SHUFFLES", sharing_.shuffles},
                      {"ONE_DISPATCH", one_dispatch_ && !is_single()},
                      {"SINGLE", is_single()},
                      {"ENDS", ends},
                      {"IN_ORDER", p.in_order()}};
  declare_sizes(builder,
                {{"THREADS", sharing_.threads},
                 {"HEADS", sharing_.heads},
                 {"TEAM", sharing_.team},
                 {"LOADS", sharing_.loads},
                 {"KEYS", sharing_.keys},
                 {"VALUE_LOADS", sharing_.value_loads},
                 {"CREW", sharing_.crew},
                 {"CREWS", sharing_.threads / sharing_.crew},
                 {"LANES", sharing_.lanes},
                 {"QUERY_LOADS", (sharing_.heads * p.dim / 4 + sharing_.threads - 1) / sharing_.threads},
                 {"AT_ONCE", sharing_.at_once},
                 {"SPAN", kSpan},
                 {"MOST_SPLITS", kMostSplits},
                 {"BATCH", kBatch},
                 {"BLOCKS", sharing_.blocks}});
  // Not part of the text: one that grows would need another kernel.
  builder.code += fmt::format("fn splits() -> u32 {{ return {}; }}\n", builder.number(sharing_.splits));
}

void Reads::declare_reads(Builder& builder, bool all) const {
  const CachedProblem& p = in_.problem;
  const auto declare = [&](std::string_view head, std::string_view type, const std::string& value) {
    builder.code += fmt::format("fn {} -> {} {{ return {}; }}\n", head, type, value);
  };
  const auto element = [&](const Operand& list) {
    return builder.load(list, fmt::format("({} + i * {})", builder.number(list.layout.offset),
                                          builder.number(list.layout.strides[0])));
  };
  const auto words = [&](std::string_view name, const Operand& cache) {
    const auto first = cache.layout.offset * static_cast<int64_t>(size_of(cache.dtype)) / 16;
    declare(fmt::format("{}_words(i: u32)", name), "vec4<u32>",
            fmt::format("{}[{} + i]", builder.read(buffer_of(cache), 4), builder.number(first)));
    declare(fmt::format("{}_pitch()", name), "u32", builder.number(cache.layout.strides[0] / 8));
  };
  words("key", in_.keys);
  words("value", in_.values);
  const Layout& q = in_.q.layout;
  declare("query_element(token: u32, head: u32, column: u32)", "f32",
          builder.load(in_.q, fmt::format("({} + token * {} + head * {} + column * {})",
                                          builder.number(q.offset), builder.number(q.strides[0]),
                                          builder.number(q.strides[1]), builder.number(q.strides[2]))));
  declare("key_row(i: u32)", "u32", in_.key_rows ? fmt::format("u32({})", element(*in_.key_rows)) : "i");
  declare("position(i: u32)", "i32", element(in_.positions));
  if (all) {
    declare("key_position(i: u32)", "i32", element(in_.key_positions));
    declare("key_sequence(i: u32)", "i32", element(in_.key_sequences));
  }
  if (all || has_sequences()) declare("sequence(i: u32)", "i32", element(in_.sequences));
  if (has_slopes()) declare("slope(head: u32)", "f32", builder.load(in_.slopes, "head"));
  declare("keys()", "u32", builder.number(key_count_));
  declare("scale()", "f32", builder.real(p.scale));
  declare("softcap()", "f32", builder.real(p.softcap));
  declare("window()", "i32", fmt::format("bitcast<i32>({})", builder.number(p.window)));
}

void Reads::declare_sink(Builder& builder) const {
  if (has_sinks())
    builder.code +=
        fmt::format("fn sink(head: u32) -> f32 {{ return {}; }}\n", builder.load(in_.sinks, "head"));
}

/// Every run leaves the counters as it found them, at 0, so they are the same buffer each time.
void Decode::declare_counters(Builder& builder) const {
  const std::vector<uint32_t> zeros(static_cast<size_t>(places()));
  const gpu::Buffer counters = context_.device.alloc(zeros.size() * 4, "counters");
  context_.device.write(counters, 0, std::as_bytes(std::span(zeros)));
  builder.code += fmt::format(
      "fn count(i: u32, more: u32) -> u32 {{ return atomicAdd(&{0}[i], more); }}\n"
      "fn reset(i: u32) {{ atomicStore(&{0}[i], 0u); }}\n",
      builder.share(counters));
}

/// What the combining ends with.
void Decode::declare_store(Builder& builder) const {
  declare_sink(builder);
  builder.code +=
      fmt::format("fn store(at: u32, x: f32) {{ {} }}\n",
                  in_.out.storage ? builder.write(buffer_of(in_.out)) + "[at] = bitcast<u32>(x);" : "");
  if (in_.joined)
    declare_tail(builder, widened(*in_.joined, sharing_.tiles(in_.problem, *behind(in_.joined))),
                 sharing_.threads, sharing_.shuffles ? sharing_.lanes : 1,
                 fmt::format("bitcast<u32>(outcomes[at % {}u])", sharing_.heads * in_.problem.value_dim));
  else
    builder.code += "fn tail(row: u32, index: u32, thread: u32) {}\n";
}

void Decode::combine(const gpu::Buffer& partial) const {
  Builder builder("cached_combine");
  declare(builder, true);
  builder.code +=
      fmt::format("fn partial(at: u32) -> f32 {{ return bitcast<f32>({}[at]); }}\n", builder.read(partial));
  declare_store(builder);
  builder.code += embedded::webgpu_kernels("cached_places");
  builder.code += embedded::webgpu_kernels("cached_splits");
  builder.code += embedded::webgpu_kernels("cached_combine");
  builder.groups(context_, places(), static_cast<int>(sharing_.threads),
                 "  combine(place_of(index), splits(), thread);\n");
}

/// Without barriers, for software adapters.
class Lanes : Reads {
 public:
  Lanes(Context& context, const CacheReads& reads)
      : Reads(context, reads),
        lanes_(context.device.features().subgroup_min),
        blocks_(ceil_div(reads.problem.group(), kLaneHeads)),
        heads_(ceil_div(reads.problem.group(), blocks_)) {}

  bool possible() const {
    return fits() && context_.device.features().subgroups && !in_.joined &&
           std::max(in_.problem.dim, in_.problem.value_dim) <= kMostColumns;
  }

  void record() const {
    const CachedProblem& p = in_.problem;
    Builder builder("cached_lanes");
    declare_sizes(builder, {{"HEADS", heads_},
                            {"LANES", lanes_},
                            {"SLOTS", ceil_div(p.dim / 8, lanes_)},
                            {"VALUE_SLOTS", ceil_div(p.value_dim / 8, lanes_)},
                            {"BLOCKS", blocks_}});
    builder.code = fmt::format("fn lanes() -> u32 {{ return {}; }}\n", builder.number(lanes_));
    declare_reads(builder, true);
    declare_sink(builder);
    builder.code += fmt::format("fn store(at: u32, x: f32) {{ {}[at] = bitcast<u32>(x); }}\n",
                                builder.write(buffer_of(in_.out)));
    for (const char* part : {"cached_places", "cached_rows", "cached_lanes"})
      builder.code += embedded::webgpu_kernels(part);
    builder.groups(context_, p.tokens * p.key_heads * blocks_, static_cast<int>(lanes_),
                   "  decode(index, thread);\n");
  }

 private:
  static constexpr int64_t kLaneHeads = 4;      // whose sums a lane holds
  static constexpr int64_t kMostColumns = 128;  // 256 take half a minute to compile

  int64_t lanes_, blocks_, heads_;
};

template <typename Form>
bool recorded(Form form) {
  if (!form.possible()) return false;
  form.record();
  return true;
}

}  // namespace

bool decode_cached(Context& context, const CacheReads& reads) {
  return (context.software && recorded(Lanes(context, reads))) || recorded(Decode(context, reads));
}

}  // namespace weft::webgpu
