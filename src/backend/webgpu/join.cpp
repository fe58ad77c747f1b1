#include "backend/webgpu/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "backend/webgpu/rows.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

/// `tile<k>`, an array of words for each tiled value from `first` on; `at_tile<k>(at)` and `in_tile<k>(at)`:
/// where an element is in it, and its bits.
void declare_tiles(Builder& builder, const Step& product, int64_t rows, size_t first) {
  const Step* encoder = encoder_of(product);  // whose codes are not words of a tile, but x of the product
  for (size_t k = first; k < product.tiles.size(); ++k) {
    if (encoder && encoder->outputs[0].tile == static_cast<int>(k)) continue;
    const Tiled& tile = product.tiles[k];
    builder.code += fmt::format("var<workgroup> tile{}: array<u32, {}>;\n", k, tile.width * rows);
    builder.code +=
        fmt::format("fn at_tile{}(at: u32) -> u32 {{ return {}at % {}u; }}\n", k,
                    rows == 1 ? "" : fmt::format("at / {}u * {}u + ", tile.columns, tile.width), tile.width);
    builder.code += fmt::format("fn in_tile{0}(at: u32) -> u32 {{ return tile{0}[at_tile{0}(at)]; }}\n", k);
  }
}

/// From an element of the output of an elementwise step to those of its inputs.
Walk walk_of(const Step& step) {
  std::vector<const Layout*> layouts;
  for (const Operand& input : step.inputs) layouts.push_back(&input.layout);
  return walk(step.outputs[0].layout.shape, layouts);
}

}  // namespace

TileSteps::TileSteps(Builder& builder, const Step& product, int64_t rows, int64_t threads, int64_t lanes)
    : builder_(builder),
      product_(product),
      rows_(rows),
      threads_(threads),
      lanes_(lanes),
      is_product_(product.kernel != "cached_attention"),
      levels_(1),
      made_(product.tiles.size()) {
  for (const Step& step : product.before)
    if (&step != encoder_of(product)) sum(step);
  if (product.outputs[0].storage && is_product_) {
    const Tiled& tile = product.tiles[0];
    levels_.push_back(fmt::format(
        "  for (var e = thread; e < {0}u; e += {1}u) {{ {2}[e / {3}u * {4}u + index * {3}u + e % {3}u] = "
        "tile0[e]; }}\n",
        rows * tile.width, threads, builder.write(buffer_of(product.outputs[0])), tile.width, tile.columns));
  }
  for (const Step& step : product.after) take(step);
}

std::string TileSteps::after() const {
  return fmt::format("{}", fmt::join(levels_, "  workgroupBarrier();\n"));
}

/// The sum over each row, which every workgroup needs: loaded before the product, added up behind it.
void TileSteps::sum(const Step& step) {
  constexpr int64_t kMostLoads = 16;
  const int64_t length = step.inputs[0].layout.shape[1];
  const int64_t loads = (length + lanes_ - 1) / lanes_;
  const int tile = step.outputs[0].tile;
  for (int64_t row = 0; row < rows_; ++row) {
    const std::string name = fmt::format("sum{}_{}", tile, row);
    const std::string load = builder_.load(step.inputs[0], fmt::format("{}u + i", row * length));
    if (lanes_ > 1 && loads <= kMostLoads) {
      // What is not added up is not waited for. All subgroups do the same.
      levels_[0] += fmt::format("  var {} = 0.0;\n", name);
      for (int64_t k = 0; k < loads; ++k) {
        before_ += fmt::format("  var {0}_{1} = 0.0;\n  {{ let i = thread % {2}u + {3}u;", name, k, lanes_,
                               k * lanes_);
        before_ += fmt::format(" if (i < {}u) {{ {}_{} = {}; }} }}\n", length, name, k, load);
        levels_[0] += fmt::format("  {0} += {0}_{1};\n", name, k);
      }
      levels_[0] += shuffled(Fold::sum, name, lanes_);
    } else {
      before_ +=
          fmt::format("  var {0} = 0.0;\n  for (var i = thread; i < {1}u; i += {2}u) {{ {0} += {3}; }}\n",
                      name, length, threads_, load);
      if (builder_.code.find("states:") == std::string::npos)
        builder_.code += fmt::format("var<workgroup> states: array<f32, {}>;\n", threads_);
      levels_[0] += fmt::format("  {{ let lane = thread; {} = {}; }}\n", name,
                                tree(builder_, Fold::sum, threads_, threads_, name));
    }
    levels_[0] += fmt::format("  if (thread == 0u) {{ tile{}[{}] = bitcast<u32>({}); }}\n", tile, row, name);
  }
}

size_t TileSteps::level_of(const Step& step) const {
  size_t level = is_product_ ? 1 : 0;
  for (const Operand& input : step.inputs) {
    if (input.tile <= 0) continue;
    const Made& made = made_[static_cast<size_t>(input.tile)];
    // An element of a value that is as large is there for the thread that made it.
    const bool own = made.by && made.by->kernel == "elementwise" && step.kernel == "elementwise" &&
                     made.by->tiles[0] == step.tiles[0] && input.layout == step.outputs[0].layout;
    level = std::max(level, made.level + (own ? 0 : 1));
  }
  return level;
}

void TileSteps::take(const Step& step) {
  const Tiled& share = step.tiles[0];
  const int64_t per_word =
      step.kernel == "put_rows" ? 4 / static_cast<int64_t>(size_of(step.outputs[0].dtype)) : 1;
  const int64_t width = share.width / per_word;
  int64_t parts = 1;  // invocations for each place
  if (step.kernel == "activation_codes") parts = 8;
  if (step.kernel == "rows") {
    const auto length = static_cast<uint64_t>(RowWalks(step).length());
    parts = static_cast<int64_t>(std::bit_floor(std::min(length, static_cast<uint64_t>(lanes_))));
  }
  // Tile `index` has the places (row, first .. first + width).
  const std::string place = fmt::format("(place / {0}u + row) * {1}u + (index - {2}u) * {0}u + place % {0}u",
                                        width, share.columns / per_word, share.first);
  std::string condition;
  if (share.count < product_.tiles[0].count)
    condition = fmt::format("index >= {}u && index < {}u", share.first, share.first + share.count);

  // What is in memory is on its way while the product is computed, where an invocation has one place.
  const bool early = is_product_ && rows_ * width <= threads_;
  std::string body, parameters, arguments, loads;
  // Shuffles are for whole subgroups: who has no place does as the last one, and stores nothing.
  const int64_t places = rows_ * width * parts,
                invocations = parts > 1 ? (places + lanes_ - 1) / lanes_ * lanes_ : places;
  if (parts > 1) parameters += ", live: bool", arguments += fmt::format(", e < {}u", places);
  const auto load_early = [&](const std::string& name, std::string_view type, const std::string& value) {
    const std::string variable = fmt::format("early{}_{}", functions_, name);
    before_ += fmt::format("  var {}: {};\n", variable, type);
    loads += fmt::format("    {} = {};\n", variable, value);
    parameters += fmt::format(", {}: {}", name, type);
    arguments += ", " + variable;
  };
  if (step.kernel == "elementwise") {
    std::vector<bool> loaded(step.inputs.size());
    for (size_t k = 0; early && k < loaded.size(); ++k) {
      const Operand& input = step.inputs[k];
      loaded[k] = input.tile < 0;
      if (loaded[k])
        load_early(fmt::format("x{}", k), lane_type(input.dtype),
                   builder_.load(input, fmt::format("xat{}", k)));
    }
    if (!loads.empty()) loads = builder_.unravel(walk_of(step), "at", "x") + loads;
    body = element(step, loaded);
  } else if (step.kernel == "rows") {
    body = folded_row(step, parts);
  } else if (step.kernel == "activation_codes") {
    body = block_word(step);
  } else {
    const std::string suffix = std::to_string(functions_);
    declare_put(builder_, step, suffix);
    if (early) load_early("to", "u32", fmt::format("row_for{}(at)", suffix));
    body = fmt::format("  put{0}(at, {1});\n", suffix, early ? "to" : "row_for" + suffix + "(at)");
  }
  if (!loads.empty())
    before_ += fmt::format("  if (thread < {}u{}{}) {{\n    let place = thread;\n    let at = {};\n{}  }}\n",
                           rows_ * width, condition.empty() ? "" : " && ", condition, place, loads);
  const std::string name = fmt::format("after{}", functions_++);
  builder_.code += fmt::format("fn {}(at: u32, part: u32{}) {{\n{}}}\n", name, parameters, body);
  std::string text = fmt::format(
      "  for (var e = thread; e < {0}u; e += {1}u) {{\n"
      "    let place = {6};\n    {3}({4}, e % {2}u{5});\n  }}\n",
      invocations, threads_, parts, name, place, arguments,
      invocations == places ? fmt::format("e / {}u", parts)
                            : fmt::format("min(e / {}u, {}u)", parts, places / parts - 1));
  if (!condition.empty()) text = fmt::format("  if ({}) {{\n{}  }}\n", condition, text);
  const size_t level = level_of(step);
  if (levels_.size() <= level) levels_.resize(level + 1);
  levels_[level] += text;
  if (step.outputs[0].tile >= 0) made_[static_cast<size_t>(step.outputs[0].tile)] = {level, &step};
}

std::string TileSteps::stored(const Operand& out, std::string_view at, const std::string& bits) {
  std::string text = fmt::format("  let bits = {};\n", bits);
  if (out.tile >= 0) text += fmt::format("  tile{0}[at_tile{0}({1})] = bits;\n", out.tile, at);
  if (out.storage) text += fmt::format("  {}[{}] = bits;\n", builder_.write(buffer_of(out)), at);
  return text;
}

std::string TileSteps::element(const Step& step, const std::vector<bool>& loaded) {
  const ElementwiseProgram& program = *step.program;
  std::string text = builder_.unravel(walk_of(step), "at", "x");
  for (size_t k = 0; k < step.inputs.size(); ++k)
    if (!loaded[k])
      text += fmt::format("  let x{} = {};\n", k, builder_.load(step.inputs[k], fmt::format("xat{}", k)));
  size_t reg = program.loads.size();
  for (const Instruction& i : program.instructions)
    text += fmt::format("  let x{} = {};\n", reg++, expression(builder_, program, i));
  return text +
         stored(step.outputs[0], "at", encode(step.outputs[0].dtype, fmt::format("x{}", program.stores[0])));
}

/// Rows are short: one invocation takes a whole one, or so many neighbours do.
std::string TileSteps::folded_row(const Step& step, int64_t parts) {
  const ElementwiseProgram& program = *step.program;
  const RowWalks walks(step);
  const Registers regs(program, walks.per_row);
  std::string text = builder_.unravel(walks.row, "at", "r");
  const auto elements = [&](const std::vector<size_t>& wanted) {
    std::string inner = builder_.unravel(walks.element, "j", "e");
    for (size_t reg : regs.elements_for(wanted))
      inner += fmt::format("  let x{} = {};\n", reg,
                           reg < regs.loads()
                               ? builder_.load(step.inputs[reg], fmt::format("rat{0} + eat{0}", reg))
                               : expression(builder_, program, regs.instruction(reg)));
    return inner;
  };
  const std::string loop = fmt::format("  for (var j = part; j < {}u; j += {}u) {{\n", walks.length(), parts);
  for (size_t k = 0; k < regs.loads(); ++k)
    if (regs.per_row[k])
      text += fmt::format("  let x{} = {};\n", k, builder_.load(step.inputs[k], fmt::format("rat{}", k)));
  text += row_statements(builder_, regs, 0);
  for (int depth = 1; depth <= regs.max_depth(); ++depth) {
    std::vector<size_t> inputs;
    std::string starts, folds, ends;
    for (size_t reg : regs.folds_at(depth)) {
      const Instruction& i = regs.instruction(reg);
      inputs.push_back(static_cast<size_t>(i.inputs[0]));
      starts += fmt::format("  var acc{} = {};\n", reg, start_of(i.fold));
      folds += fmt::format("  acc{} = {};\n", reg,
                           joined(i.fold, fmt::format("acc{}", reg), fmt::format("x{}", i.inputs[0])));
      ends += shuffled(i.fold, fmt::format("acc{}", reg), parts);
      ends += fmt::format("  let x{} = {};\n", reg, narrow(i.dtype, fmt::format("acc{}", reg)));
    }
    text += fmt::format("{}{}{}{}  }}\n{}", starts, loop, elements(inputs), folds, ends);
    text += row_statements(builder_, regs, depth);
  }
  const Operand& out = step.outputs[0];
  const auto reg = static_cast<size_t>(program.stores[0]);
  const std::string bits = encode(out.dtype, fmt::format("x{}", reg));
  if (program.is_per_row(out.layout))
    return text + (parts > 1 ? "  if (part > 0u || !live) { return; }\n" : "") + stored(out, "at", bits);
  if (parts > 1) text += "  if (!live) { return; }\n";
  return text + loop + elements({reg}) + stored(out, fmt::format("(at * {}u + j)", walks.length()), bits) +
         "  }\n";
}

/// Words `part` of the codes and rests of block `at`.
std::string TileSteps::block_word(const Step& step) {
  const Operand& x = step.inputs[0];
  const Layout* layouts[] = {&x.layout};
  const std::string name = fmt::format("block_x{}", functions_), four = name + "_4", put = name + "_put";
  if (builder_.code.find("fn fact_of(") == std::string::npos)
    builder_.code += embedded::webgpu_kernels("codes");
  builder_.code += fmt::format("fn {}(i: u32) -> f32 {{\n{}  return {};\n}}\n", name,
                               builder_.unravel(walk(x.layout.shape, layouts), "i"), builder_.load(x, "at0"));
  builder_.code += fmt::format(
      "fn {1}(i: u32) -> vec4<f32> {{ return vec4<f32>({0}(4u * i), {0}(4u * i + 1u), {0}(4u * i + 2u), "
      "{0}(4u * i + 3u)); }}\n",
      name, four);
  builder_.code += fmt::format("fn {}(i: u32, word: u32) {{ {}[i] = word; }}\n", put,
                               builder_.write(buffer_of(step.outputs[0])));
  return code_words(four + "(at * 8u + part)", lanes_ >= 8 ? "" : four, put,
                    fmt::format("{}u", element_count(x.layout.shape) / 32), step.attrs->integer("bits"));
}

namespace {

/// How a product with packed weights and tiles can be run. A way: lanes that share rows of weights, those
/// rows, blocks at a time, tiles of a workgroup. Its threads follow from them, so that a step of the search
/// changes one thing.
struct PackedWays {
  gpu::Limits limits;
  bool cpu, subgroups;
  Tiled tile;
  int64_t common, blocks, vectors;
  int64_t memory = 0;  // of a tile of each value
  int64_t staged;      // bytes for an x that has to be in the workgroup's memory; 0: it need not

  PackedWays(const gpu::Device& device, const Step& product, int64_t m, int64_t of_row, int64_t x_bytes)
      : limits(device.limits()),
        cpu(device.type() == gpu::AdapterType::cpu),
        subgroups(device.features().subgroups),
        tile(product.tiles[0]),
        common(common_tiles(product)),
        blocks(of_row),
        vectors(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(m)))),
        staged(x_bytes) {
    const Step* encoder = encoder_of(product);
    if (encoder) staged = bytes_of_codes(element_count(encoder->inputs[0].layout.shape));
    for (size_t k = 0; k < product.tiles.size(); ++k)
      if (!encoder || encoder->outputs[0].tile != static_cast<int>(k))
        memory += 4 * product.tiles[k].width * m;
  }

  QuantForm form_of(const Way& way) const {
    const int64_t threads = tile.width * way[3] / way[1] * way[0];
    return QuantForm{.threads = threads,
                     .lanes = way[0],
                     .rows = way[1],
                     .vectors = vectors,
                     .ahead = way[2],
                     .subgroups = subgroups,
                     .beside = true,
                     .memory = memory * way[3] + 4 * threads};
  }
  bool possible(const Way& way) const {
    const int64_t lanes = way[0], rows = way[1], ahead = way[2], tiles = way[3];
    const QuantForm form = form_of(way);
    return blocks % (lanes * ahead) == 0 && ahead <= 8 && rows * vectors <= 8 && rows * ahead <= 16 &&
           tile.width * tiles % rows == 0 && tile.width * tiles <= 128 && common % tiles == 0 &&
           form.threads >= 32 && form.threads <= limits.max_workgroup_threads &&
           (staged == 0 || (lanes > 1 && form.threads % 8 == 0)) &&
           shared_bytes(form) + staged <= limits.max_workgroup_memory;
  }
  Way usual() const {
    const int64_t busy = cpu ? 64 : 512;  // invocations
    int64_t tiles = 1;
    while (tile.width * tiles < 32 && common % (2 * tiles) == 0) tiles *= 2;
    return with_lanes(std::max<int64_t>(staged > 0 ? 2 : 1, busy / (tile.width * tiles)), tiles);
  }
  /// No more lanes than those, and as many blocks at a time as they can have: beside more than 512
  /// invocations there are too few registers for eight.
  Way with_lanes(int64_t most, int64_t tiles) const {
    const int64_t lanes = divisor(blocks, most), ahead = tile.width * tiles * lanes > 512 ? 4 : 8;
    return {lanes, 1, divisor(blocks / lanes, cpu ? 1 : ahead / vectors), tiles};
  }
  /// Doubling and halving does not lead to all of them: rows of 18 blocks can have 2, 3, 6, 9 or 18 lanes.
  std::vector<Way> others() const {
    std::vector<Way> ways;
    for (int64_t lanes = 2; lanes <= 64; ++lanes) {
      int64_t tiles = usual()[3];
      while (tiles > 1 && tile.width * tiles * lanes > limits.max_workgroup_threads) tiles /= 2;
      if (blocks % lanes == 0) ways.push_back(with_lanes(lanes, tiles));
    }
    return ways;
  }
};

/// Storages that a step and those around it read and write.
size_t storages_of(const Step& step) {
  std::set<const Storage*> bound;
  const auto add = [&](const Step& one) {
    for (const auto* operands : {&one.inputs, &one.outputs})
      for (const Operand& o : *operands)
        if (o.storage) bound.insert(o.storage.get());
  };
  add(step);
  std::ranges::for_each(step.before, add);
  std::ranges::for_each(step.after, add);
  return bound.size();
}

/// Bytes of the workgroup's memory in which codes of attention are put together from its parts.
int64_t bytes_of_parts(const Step& product, int64_t heads, int64_t lanes) {
  return 4 * (element_count(product.inputs[0].layout.shape) + heads * lanes);
}

}  // namespace

bool takes_parts(const gpu::Device& device, const Step& product, const StoragePtr& codes, int64_t heads,
                 int64_t lanes) {
  // What was left, and sinks, are bound as well.
  if (product.kernel != "qmatmul_codes" || product.tiles.empty() || product.inputs[0].storage != codes ||
      storages_of(product) + 2 > device.limits().max_storage_buffers)
    return false;
  const PackedWays ways(device, product, 1, product.attrs->integer("k") / 32,
                        bytes_of_parts(product, heads, lanes));
  return ways.possible(ways.usual());
}

std::pair<Step, QuantForm> joined_packed(Context& context, const Step& product, int64_t m, int64_t blocks) {
  const Context::Parts* parts = context.parts_of(product.inputs[0].storage);
  const PackedWays ways(context.device, product, m, blocks,
                        parts ? bytes_of_parts(product, parts->heads, parts->lanes) : 0);
  const Way way =
      context.choose({.key = fmt::format("{} {} {} x {} x {} blocks in tiles of {}{}", product.kernel,
                                         product.attrs->text("type"), m, ways.tile.columns, blocks,
                                         ways.tile.width, encoder_of(product) ? ", of floats" : ""),
                      .usual = ways.usual(),
                      .possible = [ways](const Way& w) { return ways.possible(w); },
                      .others = ways.others()});
  return {widened(product, way[3]), ways.form_of(way)};
}

/// The same for weights that are floats.
QuantForm joined_floats(Context& context, const Step& product, int64_t m, int64_t units) {
  constexpr int64_t kBusy = int64_t{132} * 1024;  // invocations
  const int64_t most = context.device.limits().max_workgroup_threads;
  const Tiled& tile = product.tiles[0];
  QuantForm form = floats_form(context.device, m, tile.columns, units);
  const int64_t most_lanes = form.lanes;
  form.tiles = false;
  form.vectors = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(m)));
  form.rows = 1;
  // So many workgroups need no help from each other; then x is loaded less often.
  if (tile.count >= 4096 && m == 1 && form.lanes >= 16) form.lanes = 16, form.rows = 4;
  const auto fits = [&](int64_t threads) {
    return threads <= most && threads / form.lanes * form.rows <= tile.width;
  };
  form.threads = form.lanes;
  while (fits(form.threads * 2) && (form.threads < 256 || form.threads * tile.count < kBusy))
    form.threads *= 2;

  // Lanes, rows and units as above; turns of a workgroup.
  const auto threads_of = [=](const Way& way) { return tile.width / (way[1] * way[3]) * way[0]; };
  const auto possible = [=](const Way& way) {
    const int64_t lanes = way[0], rows = way[1], ahead = way[2], turns = way[3];
    return lanes <= most_lanes && rows * form.vectors <= 8 && tile.width % (rows * turns) == 0 &&
           turns <= 16 && threads_of(way) <= most && threads_of(way) >= std::min<int64_t>(32, form.threads) &&
           ahead <= 4 && (ahead == 1 || units % (lanes * ahead) == 0);
  };
  const Way way = context.choose(
      {.key =
           fmt::format("{} {} x {} x {} in tiles of {}", product.kernel, m, tile.columns, units, tile.width),
       .usual = {form.lanes, form.rows, form.ahead, tile.width / (form.threads / form.lanes * form.rows)},
       .possible = possible});
  form.lanes = way[0], form.rows = way[1], form.ahead = way[2], form.threads = threads_of(way);
  return form;
}

void multiply_joined(Context& context, Builder& builder, const Step& product, const QuantForm& form,
                     std::string body) {
  const Tiled& tile = product.tiles[0];
  const int64_t rows = element_count(product.outputs[0].layout.shape) / tile.columns,
                turns = tile.width / (form.threads / form.lanes * form.rows);
  // llvmpipe makes a coroutine of a kernel with barriers, whose variables are all in memory: 2.4 times
  // slower.
  builder.lockstep = form.interleaved && context.device.features().lockstep;
  declare_tiles(builder, product, rows, 0);
  builder.code += "fn store(at: u32, x: f32) { tile0[at_tile0(at)] = bitcast<u32>(x); }\n";
  builder.code += embedded::webgpu_kernels("qmatmul_places");
  builder.code += vectors_text(form);
  // Groups of them have no gaps.
  const int64_t lanes =
      form.subgroups ? std::min<int64_t>(context.device.features().subgroup_min, form.threads & -form.threads)
                     : 1;
  const TileSteps steps(builder, product, rows, form.threads, lanes);
  // Weights come from farthest: they are on their way before what the steps behind the product need.
  if (form.beside) body += "  let begun = begin(index, thread);\n";
  body += "  const row = 0u;\n" + steps.before();
  if (form.beside)
    body += "  multiply_from(index, thread, begun);\n";
  else
    body += fmt::format(
        "  for (var turn = 0u; turn < {0}u; turn++) {{ multiply_vectors(index * {0}u + turn, thread); }}\n",
        turns);
  builder.groups(context, tile.count, static_cast<int>(form.threads), body + steps.after());
}

int64_t common_tiles(const Step& step) {
  int64_t common = 0;
  const auto add = [&](const Tiled& tile) { common = std::gcd(common, std::gcd(tile.first, tile.count)); };
  std::ranges::for_each(step.tiles, add);
  for (const Step& after : step.after) add(after.tiles[0]);
  return common;
}

Step widened(Step step, int64_t times) {
  const auto widen = [times](Tiled& tile) { tile.width *= times, tile.first /= times, tile.count /= times; };
  for (size_t k = 0; k < step.tiles.size(); ++k) {
    // What comes before the product is about whole rows.
    const bool before = std::ranges::any_of(
        step.before, [k](const Step& s) { return s.outputs[0].tile == static_cast<int>(k); });
    if (!before) widen(step.tiles[k]);
  }
  for (Step& after : step.after) std::ranges::for_each(after.tiles, widen);
  return step;
}

void declare_tail(Builder& builder, const Step& attention, int64_t threads, int64_t lanes,
                  std::string_view words) {
  builder.code += fmt::format("fn in_tile0(at: u32) -> u32 {{ return {}; }}\n", words);
  declare_tiles(builder, attention, 1, 1);
  const TileSteps steps(builder, attention, 1, threads, lanes);
  builder.code += "fn tail(row: u32, index: u32, thread: u32) {\n" + steps.after() + "}\n";
}

void apart(Context& context, const Step& step) {
  std::vector<StoragePtr> made(step.tiles.size());
  const auto in_memory = [&](Operand o, bool is_output) {
    if (o.tile < 0) return o;
    StoragePtr& storage = made[static_cast<size_t>(o.tile)];
    if (is_output) {
      const int64_t bytes = element_count(o.layout.shape) * static_cast<int64_t>(size_of(o.dtype));
      storage =
          o.storage ? o.storage : std::make_shared<WebgpuStorage>(context.scratch((bytes + 3) / 4, "joined"));
    }
    return Operand{storage, o.dtype, o.layout};
  };
  const auto run = [&](const Step& part) {
    Step alone{.kernel = part.kernel, .attrs = part.attrs, .program = part.program};
    for (const Operand& input : part.inputs) alone.inputs.push_back(in_memory(input, false));
    for (const Operand& output : part.outputs) alone.outputs.push_back(in_memory(output, true));
    record(context, alone);
  };
  for (const Step& part : step.before) run(part);
  run(step);
  for (const Step& part : step.after) run(part);
}

void joined_matmul(Context& context, const Step& product) {
  const Operand &x = product.inputs[0], &w = product.inputs[1];
  const int64_t m = x.layout.shape[0], k = x.layout.shape[1], n = product.tiles[0].columns;
  const QuantForm form = joined_floats(context, product, m, k / (w.dtype == DType::f32 ? 4 : 8));
  Builder builder(product.kernel);
  builder.literal = true;
  builder.settings = constants_of(form);
  builder.code =
      fmt::format("fn size_m() -> u32 {{ return {}u; }}\nfn size_n() -> u32 {{ return {}u; }}\n", m, n);
  declare_product(context, builder, x, w, k);
  multiply_joined(context, builder, product, form, "");
}

}  // namespace weft::webgpu
