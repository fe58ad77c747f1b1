// Attention by tiles in workgroup memory, or for few rows split over the keys. The text around the kernels:
// sizes, where rows are, how elements are loaded and stored.
#include "backend/attention.h"

#include <algorithm>
#include <bit>

#include "backend/webgpu/builder.h"
#include "backend/webgpu/cached_decode.h"
#include "backend/webgpu/join.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

/// An array (.., heads, tokens, columns) that tiles are read from.
struct Source {
  std::string_view name, field;  // in WGSL: its number, and where it starts in Head
  const Operand& x;
  bool per_query;                 // rows of queries, else of keys
  const Operand* rows = nullptr;  // where those of the keys are, if not one after the other
};

int64_t stride_from_end(const Operand& x, size_t k) {
  return x.layout.strides[x.layout.strides.size() - k];
}

/// What is read. The mask may be null.
struct Arrays {
  AttentionProblem problem;
  std::vector<Source> sources;
  const Operand* mask;
  const Operand* positions = nullptr;  // of the queries among the keys, if not one after the other from 0
  bool tokens_first = false;           // results are (tokens, heads, ..)

  int64_t head_count() const { return element_count(problem.batch) * problem.key_heads; }
};

void declare_number(Builder& builder, std::string_view name, std::string_view type,
                    const std::string& value) {
  builder.code += fmt::format("fn {}() -> {} {{ return {}; }}\n", name, type, value);
}
void declare_size(Builder& builder, std::string_view name, int64_t value) {
  declare_number(builder, name, "u32", builder.number(value));
}

/// Head and head_of(index): where the arrays of a key head start.
void declare_head(Builder& builder, const Arrays& arrays, const Layout& mask) {
  const AttentionProblem& p = arrays.problem;
  std::vector<std::pair<const Layout*, int64_t>> layouts;  // and query heads per key head
  std::string fields, values;
  for (const Source& s : arrays.sources) {
    fields += fmt::format(", {}: u32", s.field);
    layouts.emplace_back(&s.x.layout, s.per_query ? p.group : 1);
  }
  layouts.emplace_back(&mask, p.group);
  Walk heads;
  for (size_t i = 0; i < layouts.size(); ++i) {
    values += fmt::format(", at{}", i);
    heads.offsets.push_back(layouts[i].first->offset);
  }
  for (size_t d = 0; d <= p.batch.size(); ++d) {
    const bool is_head = d == p.batch.size();
    std::vector<int64_t> strides;
    for (const auto& [layout, heads_each] : layouts)
      strides.push_back(layout->strides[d] * (is_head ? heads_each : 1));
    heads.add(is_head ? p.key_heads : p.batch[d], std::move(strides));
  }
  builder.code += fmt::format(
      "struct Head {{ index: u32{}, mask: u32 }}\nfn head_of(i: u32) -> Head {{\n{}  return Head(i{});\n}}\n",
      fields, builder.unravel(heads, "i"), values);
}

/// Two neighbours of a 16-bit row in one word, where rows begin at whole words.
bool has_word_pairs(const Operand& x) {
  bool even = size_of(x.dtype) == 2 && x.layout.offset % 2 == 0 && x.layout.strides.back() == 1 &&
              x.layout.shape.back() % 2 == 0;
  for (size_t d = 0; d + 1 < x.layout.shape.size(); ++d)
    even = even && (x.layout.strides[d] % 2 == 0 || x.layout.shape[d] == 1);
  return even;
}

std::string pair_of(Builder& builder, const Operand& x) {
  if (!has_word_pairs(x)) return "";
  const std::string word = fmt::format("{}[(at + column) / 2u]", builder.read(buffer_of(x)));
  return x.dtype == DType::f16
             ? fmt::format("unpack2x16float({})", word)
             : fmt::format("vec2<f32>(weft_from_bf16({0} & 0xffffu), weft_from_bf16({0} >> 16u))", word);
}

/// columns, row_of, load and load_pair.
void declare_sources(Builder& builder, const Arrays& arrays) {
  std::string columns, row_of, load, load_pair;
  for (size_t i = 0; i < arrays.sources.size(); ++i) {
    const Source& s = arrays.sources[i];
    builder.code += fmt::format("const {} = {}u;\n", s.name, i);
    const std::string at = fmt::format("case {}: {{ return ", s.name),
                      column = builder.number(stride_from_end(s.x, 1)),
                      token = builder.number(stride_from_end(s.x, 2));
    columns += fmt::format("{}{}; }}\n", at, builder.number(s.x.layout.shape.back()));
    if (s.per_query)
      row_of +=
          fmt::format("{}select(NOWHERE, head.{} + r % group() * {} + r / group() * {}, r < rows()); }}\n",
                      at, s.field, builder.number(stride_from_end(s.x, 3)), token);
    else
      row_of += fmt::format(
          "{}select(NOWHERE, head.{} + {} * {}, r < keys()); }}\n", at, s.field,
          s.rows ? fmt::format("u32({})", builder.load(*s.rows, "min(r, keys() - 1u)")) : "r", token);
    load += fmt::format("{}{}; }}\n", at, builder.load(s.x, fmt::format("(at + column * {})", column)));
    if (const std::string pair = pair_of(builder, s.x); !pair.empty())
      load_pair += fmt::format("{}{}; }}\n", at, pair);
  }
  const auto declare = [&](std::string_view head, const std::string& cases, std::string_view otherwise) {
    builder.code += fmt::format("fn {} {{\nswitch (source) {{\n{}default: {{ return {}; }}\n}}\n}}\n", head,
                                cases, otherwise);
  };
  declare("columns(source: u32) -> u32", columns, "0u");
  declare("row_of(source: u32, head: Head, r: u32) -> u32", row_of, "NOWHERE");
  declare("load(source: u32, at: u32, column: u32) -> f32", load, "0.0");
  builder.code +=
      "fn two_loads(source: u32, at: u32, column: u32) -> vec2<f32> {\n"
      "  let second = column + 1u < columns(source);\n"
      "  return vec2<f32>(load(source, at, column), select(0.0, load(source, at, column + u32(second)), "
      "second));\n}\n";
  declare("load_pair(source: u32, at: u32, column: u32) -> vec2<f32>", load_pair,
          "two_loads(source, at, column)");
}

void declare(Builder& builder, const Arrays& arrays) {
  const AttentionProblem& p = arrays.problem;
  const std::pair<std::string_view, int64_t> sizes[] = {{"rows", p.rows()},     {"group", p.group},
                                                        {"queries", p.queries}, {"keys", p.keys},
                                                        {"dim", p.dim},         {"value_dim", p.value_dim}};
  for (const auto& [name, value] : sizes) declare_size(builder, name, value);
  declare_size(builder, "head_rows", arrays.tokens_first ? 1 : p.queries);
  declare_size(builder, "token_rows", arrays.tokens_first ? p.heads() : 1);
  declare_number(builder, "scale", "f32", builder.real(p.scale));
  declare_number(builder, "softcap", "f32", builder.real(p.softcap));
  declare_number(builder, "back", "i32", "bitcast<i32>(" + builder.number(p.back) + ")");
  declare_number(builder, "ahead", "i32", "bitcast<i32>(" + builder.number(p.ahead) + ")");

  Shape scores = p.batch;
  scores.insert(scores.end(), {p.heads(), p.queries, p.keys});
  const Layout nothing{scores, std::vector<int64_t>(scores.size(), 0), 0};
  const Layout mask = arrays.mask ? arrays.mask->layout.expanded(scores) : nothing;
  declare_size(builder, "mask_head", mask.strides[mask.strides.size() - 3]);
  declare_size(builder, "mask_token", mask.strides[mask.strides.size() - 2]);
  declare_size(builder, "mask_column", mask.strides.back());
  std::string bias = "0.0";
  if (arrays.mask) {
    const std::string value = builder.load(*arrays.mask, "at");
    bias = (arrays.mask->dtype == DType::boolean ? "select(HIDDEN, 0.0, " : "bias_of(") + value + ")";
  }
  builder.code += fmt::format("fn mask_bias(at: u32) -> f32 {{ return {}; }}\n", bias);
  builder.code +=
      fmt::format("fn position_of(row: u32) -> i32 {{ return {}; }}\n",
                  arrays.positions ? builder.load(*arrays.positions, "min(row / group(), queries() - 1u)")
                                   : "i32(row / group())");
  declare_head(builder, arrays, mask);
  declare_sources(builder, arrays);
  builder.code += embedded::webgpu_kernels("attention_scores");
}

// ---- Results. -----------------------------------------------------------------------------------

/// Where a kernel's results go: into its outputs, or where their rows end within words or too many buffers
/// would be bound, into sums of f32 that are converted afterwards.
class Results {
 public:
  Results(Context& context, std::vector<std::pair<std::string_view, Operand>> outputs, size_t bound)
      : outputs_(std::move(outputs)) {
    int64_t size = 0;
    bool direct = bound + outputs_.size() <= context.device.limits().max_storage_buffers;
    for (const auto& [name, to] : outputs_) {
      direct = direct && (size_of(to.dtype) == 4 || to.layout.shape.back() % 2 == 0);
      size += element_count(to.layout.shape);
    }
    if (!direct) sums_ = std::make_shared<WebgpuStorage>(context.scratch(size, "attention"));
  }
  bool direct() const { return !sums_; }

  /// store(output, at, v, both): v, or its first element, goes to an output from `at` on, which is even.
  void declare(Builder& builder) const {
    std::string cases;
    int64_t offset = 0;
    for (const auto& [name, to] : outputs_) {
      const bool words = direct() && size_of(to.dtype) == 2;
      const std::string buffer = builder.write(direct() ? buffer_of(to) : sums_->buffer());
      cases += fmt::format("    case {}: {{\n", name);
      if (words)
        cases += fmt::format("      {}[at / 2u] = {} | ({} << 16u);\n", buffer, encode(to.dtype, "v.x"),
                             encode(to.dtype, "v.y"));
      else
        cases += fmt::format(
            "      let to = at + {1};\n      {0}[to] = bitcast<u32>(v.x);\n"
            "      if (both) {{ {0}[to + 1u] = bitcast<u32>(v.y); }}\n",
            buffer, builder.number(offset));
      cases += "    }\n";
      if (!direct()) offset += element_count(to.layout.shape);
    }
    builder.code += fmt::format(
        "fn store(output: u32, at: u32, v: vec2<f32>, both: bool) {{\n  switch (output) {{\n{}    default: "
        "{{}}\n  "
        "}}\n}}\n",
        cases);
  }

  /// After the dispatch.
  void finish(Context& context) const {
    if (direct()) return;
    int64_t offset = 0;
    for (const auto& [name, to] : outputs_) {
      Layout layout = Layout::contiguous(to.layout.shape);
      layout.offset = offset;
      convert_all(context, {sums_, DType::f32, layout}, to.dtype, buffer_of(to));
      offset += element_count(to.layout.shape);
    }
  }

 private:
  std::vector<std::pair<std::string_view, Operand>> outputs_;
  std::shared_ptr<WebgpuStorage> sums_;
};

/// store_stats(row, top, share) from the largest score and 1 / the sum of weights, 0 where nothing was seen.
void declare_store_stats(Builder& builder, const Operand& stats) {
  builder.code += fmt::format(
      "fn store_stats(row: u32, top: f32, share: f32) {{\n  let whole = round(top);\n"
      "  {0}[2u * row] = bitcast<u32>(select(whole, 0.0, share == 0.0));\n"
      "  {0}[2u * row + 1u] = bitcast<u32>(share * exp(whole - top));\n}}\n",
      builder.write(buffer_of(stats)));
}

// ---- Tiles. -------------------------------------------------------------------------------------

/// Sizes of the tiles, and of the slices in which they are multiplied.
struct Tiling {
  bool software;
  int64_t tiles;  // in workgroup memory
  int64_t tile, chunks, slice;

  Tiling(const Context& context, const AttentionProblem& p, int64_t rows, int64_t tile_count)
      : software(context.software), tiles(tile_count) {
    choose(p, 64);
    // llvmpipe compiles for seconds what is unrolled, so there little is.
    if (software || rows <= 32 || memory() > context.device.limits().max_workgroup_memory) choose(p, 32);
  }
  int64_t wide() const { return tile / 4; }
  int threads() const { return static_cast<int>(wide() * wide()); }

  void declare(Builder& builder) const {
    const int64_t rows = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(slice / chunks)));
    const std::pair<const char*, int64_t> constants[] = {
        {"TILE", tile},         {"WIDE", wide()},
        {"THREADS", threads()}, {"SLICE", slice},
        {"TILES", tiles},       {"CHUNKS", chunks},
        {"ROWS", rows},         {"FETCHES", tile * slice / 2 / threads()}};
    for (const auto& [name, value] : constants)
      builder.settings.push_back({name, static_cast<uint32_t>(value)});
    declare_number(builder, "slice_end", "u32", software ? builder.number(slice) : "SLICE");
    declare_number(builder, "rows_end", "u32", software ? builder.number(rows) : "ROWS");
    builder.code += embedded::webgpu_kernels("attention_tile");
  }

 private:
  void choose(const AttentionProblem& p, int64_t size) {
    tile = size;
    chunks = (std::max(p.dim, p.value_dim) + tile - 1) / tile;
    slice = software
                ? std::max<int64_t>(4, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(chunks))))
                : 16;
  }
  /// Slices and tiles; and for each row where it is, and 24 bytes of what kernels know about it.
  int64_t memory() const { return (2 * slice + tiles * tile) * (wide() + 1) * 16 + 40 * tile; }
};

void by_tiles(Context& context, const Arrays& arrays, const Operand& out, const Operand& stats) {
  const Tiling tiling(context, arrays.problem, arrays.problem.rows(), 1);
  const Results results(context, {{"OUT", out}}, 5);
  Builder builder("attention");
  declare(builder, arrays);
  tiling.declare(builder);
  results.declare(builder);
  declare_store_stats(builder, stats);
  builder.code += embedded::webgpu_kernels("attention");
  const int64_t blocks = (arrays.problem.rows() + tiling.tile - 1) / tiling.tile;
  builder.groups(context, arrays.head_count() * blocks, tiling.threads(), "  attend(index, thread);\n");
  results.finish(context);
}

// ---- Matrices of subgroups. ---------------------------------------------------------------------

/// Rows of whole 16 bytes.
bool has_eights(const Operand& x) {
  bool whole = x.dtype == DType::f16 && x.layout.offset % 8 == 0 && x.layout.strides.back() == 1;
  for (size_t d = 0; d + 1 < x.layout.shape.size(); ++d)
    whole = whole && (x.layout.strides[d] % 8 == 0 || x.layout.shape[d] == 1);
  return whole;
}

/// Whether keys and values are halves that matrices can be made of. Queries, and weights, are rounded to
/// halves then.
bool fit_matrices(const Context& context, const Arrays& arrays) {
  const gpu::Features& features = context.device.features();
  const AttentionProblem& p = arrays.problem;
  const bool has_matrices = std::ranges::any_of(features.matrices, [](const gpu::MatrixConfig& m) {
    return m.input == "f16" && m.output == "f32" && m.m == 16 && m.n == 16 && m.k == 16;
  });
  return has_matrices && features.subgroup_min == 32 && features.subgroup_max == 32 && p.dim % 16 == 0 &&
         p.value_dim % 16 == 0 && p.rows() >= 32 && has_eights(arrays.sources[1].x) &&
         has_eights(arrays.sources[2].x);
}

void by_matrices(Context& context, const Arrays& arrays, const Operand& out, const Operand& stats) {
  const AttentionProblem& p = arrays.problem;
  constexpr int64_t kWarps = 4, kThreads = 32 * kWarps, kKeys = 32, kRows = 16 * kWarps;
  const auto fetches = [](int64_t eights) { return (kKeys * eights + kThreads - 1) / kThreads; };
  const std::pair<const char*, int64_t> constants[] = {{"WARPS", kWarps},
                                                       {"KEYS", kKeys},
                                                       {"KEY_EIGHTS", p.dim / 8},
                                                       {"VALUE_EIGHTS", p.value_dim / 8},
                                                       {"KEY_PARTS", p.dim / 16},
                                                       {"VALUE_PARTS", p.value_dim / 16},
                                                       {"KEY_FETCHES", fetches(p.dim / 8)},
                                                       {"VALUE_FETCHES", fetches(p.value_dim / 8)},
                                                       {"KEY_MATRICES", kKeys / 16},
                                                       {"SCORE_FOURS", kKeys / 8},
                                                       {"SCORE_EIGHTS", kKeys / 16}};
  const Results results(context, {{"OUT", out}}, 6);
  Builder builder("attention_matrices");
  for (const auto& [name, value] : constants)
    builder.settings.push_back({name, static_cast<uint32_t>(value)});
  builder.settings.push_back({"MASKED", arrays.mask != nullptr});
  declare(builder, arrays);
  results.declare(builder);
  declare_store_stats(builder, stats);
  const auto eight = [&](const Operand& x) {
    const std::string b = builder.read(buffer_of(x));
    return fmt::format(
        "let i = at / 2u + 4u * eight; return vec4<u32>({0}[i], {0}[i + 1u], {0}[i + 2u], {0}[i + 3u]);", b);
  };
  builder.code += fmt::format(
      "fn load_eight(source: u32, at: u32, eight: u32) -> vec4<u32> {{\n  if (source == KEY) {{ {} }}\n  "
      "{}\n}}\n",
      eight(arrays.sources[1].x), eight(arrays.sources[2].x));
  builder.code += embedded::webgpu_kernels("attention_matrices");
  builder.groups(context, arrays.head_count() * ((p.rows() + kRows - 1) / kRows), kThreads,
                 "  attend(index, thread);\n");
  results.finish(context);
}

// ---- Few rows. ----------------------------------------------------------------------------------

constexpr int64_t kDecodeRows = 8;       // of a workgroup, half of that where a key has many columns
constexpr int64_t kDecodeGroups = 1024;  // workgroups that fill a large GPU
constexpr int64_t kDecodeKeys = 128;     // that a workgroup takes at a time
constexpr int64_t kMostColumns = 512;    // of a value: two of them to each of 256 invocations
constexpr int64_t kFewRows = 16;         // of a head, up to which keys are split

std::string team_sum(const gpu::Features& features) {
  if (features.subgroups && features.subgroup_min >= 8)
    return "fn team_sum(x: f32, thread: u32) -> f32 {\n"
           "  let pairs = x + subgroupShuffleXor(x, 1u);\n  let fours = pairs + subgroupShuffleXor(pairs, "
           "2u);\n"
           "  return fours + subgroupShuffleXor(fours, 4u);\n}\n";
  return "var<workgroup> team_values: array<f32, 256>;\n"
         "fn team_sum(x: f32, thread: u32) -> f32 {\n  team_values[thread] = x;\n  workgroupBarrier();\n"
         "  var sum = 0.0;\n  for (var i = thread / 8u * 8u; i < thread / 8u * 8u + 8u; i++) { sum += "
         "team_values[i]; }\n"
         "  workgroupBarrier();\n  return sum;\n}\n";
}

void join_splits(Context& context, const AttentionProblem& p, int64_t splits, const gpu::Buffer& partial,
                 const Operand& out, const Operand& stats) {
  Builder builder("attention_join");
  const std::string from = builder.read(partial);
  declare_size(builder, "value_dim", p.value_dim);
  declare_size(builder, "splits", splits);
  declare_store_stats(builder, stats);
  builder.code += fmt::format("fn partial(i: u32) -> f32 {{ return bitcast<f32>({}[i]); }}\n", from);
  builder.code +=
      "fn element(i: u32) -> Result {\n"
      "  let row = i / value_dim();\n  let pitch = value_dim() + 2u;\n  let first = row * splits() * pitch;\n"
      "  var top = partial(first + value_dim());\n"
      "  for (var s = 1u; s < splits(); s++) { top = max(top, partial(first + s * pitch + value_dim())); }\n"
      "  var total = 0.0;\n  var sum = 0.0;\n"
      "  for (var s = 0u; s < splits(); s++) {\n    let at = first + s * pitch;\n"
      "    let factor = exp(partial(at + value_dim()) - top);\n"
      "    total += factor * partial(at + value_dim() + 1u);\n    sum += factor * partial(at + i % "
      "value_dim());\n  }\n"
      "  let share = select(1.0 / total, 0.0, total == 0.0);\n"
      "  if (i % value_dim() == 0u) { store_stats(row, top, share); }\n";
  builder.code += "  return Result(" + encode(out.dtype, "sum * share") + ");\n}\n";
  builder.map(context, std::span(&out, 1));
}

/// Few rows: each workgroup takes a part of the keys.
void by_splits(Context& context, const Arrays& arrays, const Operand& out, const Operand& stats) {
  const AttentionProblem& p = arrays.problem;
  const int64_t most_rows = p.dim > AttentionProblem::kMaxDim ? kDecodeRows / 2 : kDecodeRows,
                rows = std::min(p.rows(), most_rows), blocks = (p.rows() + rows - 1) / rows,
                groups = arrays.head_count() * blocks, most = (p.keys + kDecodeKeys - 1) / kDecodeKeys,
                wanted = std::clamp<int64_t>(kDecodeGroups / groups, 1, most),
                split_keys = (most + wanted - 1) / wanted * kDecodeKeys,
                splits = (p.keys + split_keys - 1) / split_keys;
  const auto pairs = [](int64_t columns) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(columns + 1) / 2));
  };
  const Results results(context, {{"OUT", out}}, 5);
  const bool direct = splits == 1 && results.direct();
  Builder builder("attention_decode");
  declare(builder, arrays);
  const std::pair<std::string_view, int64_t> constants[] = {
      {"ROWS", rows}, {"PAIRS", pairs(p.value_dim)}, {"MAX_PAIRS", pairs(p.dim)}};
  for (const auto& [name, value] : constants) builder.code += fmt::format("const {} = {}u;\n", name, value);
  declare_size(builder, "splits", splits);
  declare_size(builder, "split_keys", split_keys);
  builder.code += team_sum(context.device.features());
  gpu::Buffer partial;
  builder.code += "fn finish(to: u32, split: u32, column: u32, sum: vec2<f32>, top: f32, total: f32) {\n";
  if (direct) {
    builder.code +=
        "  let share = select(1.0 / total, 0.0, total == 0.0);\n"
        "  store(OUT, to * value_dim() + column, sum * share, column + 1u < value_dim());\n"
        "  if (column == 0u) { store_stats(to, top, share); }\n}\n";
    results.declare(builder);
    declare_store_stats(builder, stats);
  } else {
    partial = context.scratch(arrays.head_count() * p.rows() * splits * (p.value_dim + 2), "attention");
    builder.code += fmt::format(
        "  let at = (to * splits() + split) * (value_dim() + 2u);\n  {0}[at + column] = "
        "bitcast<u32>(sum.x);\n"
        "  if (column + 1u < value_dim()) {{ {0}[at + column + 1u] = bitcast<u32>(sum.y); }}\n"
        "  if (column == 0u) {{\n    {0}[at + value_dim()] = bitcast<u32>(top);\n"
        "    {0}[at + value_dim() + 1u] = bitcast<u32>(total);\n  }}\n}}\n",
        builder.write(partial));
  }
  builder.code += embedded::webgpu_kernels("attention_decode");
  builder.groups(context, groups * splits, 256, "  decode(index, thread);\n");
  if (!direct) join_splits(context, p, splits, partial, out, stats);
}

// ---- Over a cache. ------------------------------------------------------------------------------

Operand floats(Context& context, const Shape& shape) {
  return {std::make_shared<WebgpuStorage>(context.scratch(element_count(shape), "attention")), DType::f32,
          Layout::contiguous(shape)};
}

/// The values of some rows of a cache in blocks, f32 (keys, columns).
Operand unpacked_rows(Context& context, const Operand& cache, const Operand& rows, quant::Type type) {
  const quant::Traits& block = quant::traits(type);
  const int64_t keys = element_count(rows.layout.shape), bytes = cache.layout.shape[1];
  const Layout picked = Layout::contiguous({keys, bytes});
  const Operand blocks{std::make_shared<WebgpuStorage>(context.scratch((keys * bytes + 3) / 4, "attention")),
                       DType::u8, picked};
  const Attrs dim{{"dim", int64_t{0}}};
  index_select(context,
               {.kernel = "index_pick", .inputs = {cache, rows}, .outputs = {blocks}, .attrs = &dim});
  const Operand values = floats(context, {keys, bytes / block.block_bytes * block.block_elements});
  const Attrs attrs{{"type", std::string(block.name)}, {"shape", values.layout.shape}};
  dequantize(context, {.kernel = "dequantize", .inputs = {blocks}, .outputs = {values}, .attrs = &attrs});
  return values;
}

/// What is added to the scores, f32 (heads or 1, n, keys): -inf where a key is not seen. `ints`: rows,
/// positions and sequences of keys, positions and sequences.
Operand cache_mask(Context& context, const CachedProblem& p, const std::vector<Operand>& ints,
                   const Operand& slopes) {
  const int64_t keys = element_count(ints[0].layout.shape);
  const Operand mask = floats(context, {slopes.storage ? p.heads : 1, p.tokens, keys});
  Builder builder("cache_mask");
  builder.code = fmt::format(
      "fn element(i: u32) -> Result {{\n  let key = i % {0};\n  let token = i / {0} % {1};\n"
      "  let distance = {2} - {3};\n  var seen = {4} == {5};\n",
      builder.number(keys), builder.number(p.tokens), builder.load(ints[3], "token"),
      builder.load(ints[1], "key"), builder.load(ints[4], "token"), builder.load(ints[2], "key"));
  if (p.causal) builder.code += "  seen = seen && distance >= 0;\n";
  if (p.window > 0)
    builder.code += fmt::format("  seen = seen && distance < i32({});\n", builder.number(p.window));
  std::string bias = "0.0";
  if (slopes.storage)
    bias = fmt::format(
        "-f32(distance) * {}",
        builder.load(slopes, fmt::format("(i / ({} * {}))", builder.number(keys), builder.number(p.tokens))));
  builder.code += fmt::format("  return Result({});\n}}\n",
                              encode(DType::f32, fmt::format("select(-weft_inf(), {}, seen)", bias)));
  builder.map(context, std::span(&mask, 1));
  return mask;
}

/// A sink is a score more in the softmax's sum, and nothing more in what is summed up.
void add_sinks(Context& context, const CachedProblem& p, const Operand& sums, const Operand& stats,
               const Operand& sinks, const Operand& out) {
  Builder builder("attention_sinks");
  builder.code =
      fmt::format("fn element(i: u32) -> Result {{\n  let row = i / {};\n", builder.number(p.value_dim));
  // exp(80) is finite, and more than enough.
  const std::string divisor =
      fmt::format("(1.0 + exp(min({} - {}, 80.0)) * {})",
                  builder.load(sinks, fmt::format("(row % {})", builder.number(p.heads))),
                  builder.load(stats, "(2u * row)"), builder.load(stats, "(2u * row + 1u)"));
  builder.code += fmt::format("  return Result({});\n}}\n",
                              encode(DType::f32, builder.load(sums, "i") + " / " + divisor));
  builder.map(context, std::span(&out, 1));
}

}  // namespace

void attention(Context& context, const Step& step) {
  const Operand &q = step.inputs[0], &k = step.inputs[1], &v = step.inputs[2];
  const bool masked = step.inputs.size() > 3 && step.inputs[3].storage;
  const Arrays arrays{.problem{q.layout, k.layout, v.layout, *step.attrs},
                      .sources = {{"QUERY", "q", q, true}, {"KEY", "k", k, false}, {"VALUE", "v", v, false}},
                      .mask = masked ? &step.inputs[3] : nullptr};
  if (q.dtype == DType::f16 && fit_matrices(context, arrays))
    return by_matrices(context, arrays, step.outputs[0], step.outputs[1]);
  (arrays.problem.rows() <= kFewRows ? by_splits : by_tiles)(context, arrays, step.outputs[0],
                                                             step.outputs[1]);
}

/// The inputs of cached_attention as those of attention: rows of the cache where they are, and a mask.
void cached_attention(Context& context, const Step& step) {
  const auto optional = [&](size_t i) {
    const bool given = i < step.inputs.size() && step.inputs[i].storage;
    return given ? contiguous(context, step.inputs[i]) : Operand{};
  };
  const Operand &q = step.inputs[0], &out = step.outputs[0], sinks = optional(8), slopes = optional(9);
  const CachedProblem p(q.layout.shape, step.inputs[1].layout.shape, step.inputs[2].layout.shape,
                        *step.attrs);
  if (p.value_dim > kMostColumns)
    fail(ErrorKind::unsupported, "[cached_attention] values of {} columns; on a GPU up to {} are possible",
         p.value_dim, kMostColumns);
  // Rows, positions and sequences of keys; positions and sequences.
  std::vector<Operand> ints(step.inputs.begin() + 3, step.inputs.begin() + 8);
  const Operand* places = p.type ? nullptr : &ints[0];
  const auto floats_of = [&](const Operand& cache) {
    return p.type ? unpacked_rows(context, cache, ints[0], *p.type) : cache;
  };
  const Operand cached_keys = floats_of(step.inputs[1]), cached_values = floats_of(step.inputs[2]);
  if (decode_cached(context, {p, q, cached_keys, cached_values, places, ints[1], ints[2], ints[3], ints[4],
                              sinks, slopes, out, step.tiles.empty() ? nullptr : &step}))
    return;
  if (!step.tiles.empty()) return apart(context, step);

  for (Operand& list : ints) list = contiguous(context, list);
  const int64_t keys = element_count(ints[0].layout.shape);
  const auto heads_of = [&](const Operand& from, int64_t dim) {
    const std::vector<int64_t>& strides = from.layout.strides;
    return Operand{
        from.storage, from.dtype,
        Layout{{p.key_heads, keys, dim}, {dim * strides[1], strides[0], strides[1]}, from.layout.offset}};
  };
  const Operand queries{q.storage, q.dtype, q.layout.permuted({1, 0, 2})},
      k = heads_of(cached_keys, p.dim), v = heads_of(cached_values, p.value_dim),
      stats = floats(context, {p.tokens * p.heads, 2});
  // Keys of one sequence are where their positions say. Otherwise a mask tells which are seen.
  const bool in_order = p.in_order() && p.pitch == keys && !slopes.storage;
  Attrs attrs{{"scale", double{p.scale}}, {"causal", in_order}};
  if (in_order && p.window > 0) attrs.set("window", p.window);
  const Operand mask = in_order ? Operand{} : cache_mask(context, p, ints, slopes);
  if (p.softcap > 0) attrs.set("softcap", double{p.softcap});
  const Arrays arrays{.problem{queries.layout, k.layout, v.layout, attrs},
                      .sources = {{"QUERY", "q", queries, true},
                                  {"KEY", "k", k, false, places},
                                  {"VALUE", "v", v, false, places}},
                      .mask = in_order ? nullptr : &mask,
                      .positions = in_order ? &ints[3] : nullptr,
                      .tokens_first = true};
  const Operand sums = sinks.storage ? floats(context, out.layout.shape) : out;
  const bool few =
      arrays.problem.rows() <= kFewRows || std::max(p.dim, p.value_dim) > AttentionProblem::kMaxDim;
  // What is read from the cache was rounded already.
  (few ? by_splits : fit_matrices(context, arrays) ? by_matrices : by_tiles)(context, arrays, sums, stats);
  if (sinks.storage) add_sinks(context, p, sums, stats, sinks, out);
}

void attention_backward(Context& context, const Step& step) {
  const Operand &q = step.inputs[0], &k = step.inputs[1], &v = step.inputs[2], &d_out = step.inputs[3];
  const bool masked = step.inputs.size() > 6 && step.inputs[6].storage;
  const Arrays arrays{.problem{q.layout, k.layout, v.layout, *step.attrs},
                      .sources = {{"QUERY", "q", q, true},
                                  {"KEY", "k", k, false},
                                  {"VALUE", "v", v, false},
                                  {"GRADIENT", "d", d_out, true}},
                      .mask = masked ? &step.inputs[6] : nullptr};
  const Operand stats = contiguous(context, step.inputs[4]), delta = contiguous(context, step.inputs[5]);
  const Tiling tiling(context, arrays.problem, std::max(arrays.problem.rows(), arrays.problem.keys), 2);
  const size_t bound = masked ? 7 : 6;
  const auto run = [&](std::string_view name, int64_t rows, const Results& results) {
    Builder builder(name);
    declare(builder, arrays);
    tiling.declare(builder);
    builder.code += fmt::format(
        "fn stats_of(head: Head, row: u32) -> vec3<f32> {{\n"
        "  let at = output_row(head, min(row, rows() - 1u));\n  return vec3<f32>({}, {}, {});\n}}\n",
        builder.load(stats, "(2u * at)"), builder.load(stats, "(2u * at + 1u)"), builder.load(delta, "at"));
    results.declare(builder);
    builder.code += embedded::webgpu_kernels(name);
    builder.groups(context, arrays.head_count() * ((rows + tiling.tile - 1) / tiling.tile), tiling.threads(),
                   "  differentiate(index, thread);\n");
    results.finish(context);
  };
  run("attention_backward_rows", arrays.problem.rows(),
      Results(context, {{"QUERY", step.outputs[0]}}, bound));
  run("attention_backward_keys", arrays.problem.keys,
      Results(context, {{"KEY", step.outputs[1]}, {"VALUE", step.outputs[2]}}, bound));
}

}  // namespace weft::webgpu
