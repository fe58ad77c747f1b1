#include "backend/webgpu/matmul.h"

#include <algorithm>
#include <optional>

#include "backend/webgpu/join.h"
#include "backend/webgpu/qmatmul.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::webgpu {
namespace {

using Form = void (*)(const MatmulStep& step);

struct Choice {
  Form form;
  Tile tile;
  int64_t slices = 1;
};

constexpr int64_t kVectors = 8;  // what counts as a few rows or columns

Product product_of(const Operand& a, const Operand& b) {
  const size_t rank = a.layout.shape.size();
  const Layout &x = a.layout, &y = b.layout;
  Product p{.a = {buffer_of(a), a.dtype, x.shape[rank - 2], x.strides[rank - 2], x.strides[rank - 1]},
            .b = {buffer_of(b), b.dtype, y.shape[rank - 1], y.strides[rank - 1], y.strides[rank - 2]},
            .k = x.shape[rank - 1],
            .row_stride = y.shape[rank - 1]};
  // The same b for all (weights): the rows of a's matrices become one tall matrix if they are evenly spaced.
  size_t batch_rank = rank - 2;
  for (; batch_rank > 0; --batch_rank) {
    const size_t d = batch_rank - 1;
    const int64_t size = x.shape[d];
    if (size != 1 && (y.strides[d] != 0 || (p.a.size != 1 && x.strides[d] != p.a.size * p.a.stride))) break;
    if (size != 1 && p.a.size == 1) p.a.stride = x.strides[d];
    p.a.size *= size;
  }
  p.batch.offsets = {x.offset, y.offset, 0};
  int64_t out_stride = p.a.size * p.b.size;
  for (size_t d = 0; d < batch_rank; ++d) out_stride *= x.shape[d];
  for (size_t d = 0; d < batch_rank; ++d) {
    out_stride /= x.shape[d];
    p.batch.add(x.shape[d], {x.strides[d], y.strides[d], out_stride});
  }
  return p;
}

/// Whether swapped() makes vectors of the columns, whose elements then lie side by side.
bool has_few_columns(const Product& p) {
  return p.b.size <= kVectors && p.b.size < p.a.size && p.row_stride == p.b.size;
}

/// out^T = b^T a^T.
Product swapped(Product p) {
  std::swap(p.a, p.b);
  std::swap(p.row_stride, p.column_stride);
  std::swap(p.batch.offsets[0], p.batch.offsets[1]);
  for (Walk::Dim& dim : p.batch.dims) std::swap(dim.strides[0], dim.strides[1]);
  return p;
}

/// Slices of k that bring a grid near `wanted` invocations, none of them shorter than `shortest`.
int64_t slices_for(const Product& p, const Tile& tile, int64_t wanted, int64_t shortest) {
  const int64_t slices = std::min((wanted - 1) / (groups_of(p, tile) * tile.threads) + 1, p.k / shortest);
  return std::max<int64_t>(slices, 1);
}

/// The first of the tiles, largest first, that fits and keeps the device busy; else the last that fits, with
/// k in slices.
std::optional<Choice> choose_tile(Form form, std::span<const Tile> tiles, const Product& p,
                                  const MatmulDevice& device) {
  std::optional<Choice> choice;
  for (const Tile& tile : tiles) {
    if (tile.bytes > device.limits.max_workgroup_memory || tile.threads > device.limits.max_workgroup_threads)
      continue;
    choice = {form, tile};
    if (groups_of(p, tile) * tile.threads >= device.busy) return choice;
  }
  if (choice) choice->slices = slices_for(p, choice->tile, device.busy, 512);
  return choice;
}

Choice choose_vectors(const Product& p, const MatmulDevice& device) {
  const int64_t lanes = device.subgroup() ? device.subgroup() : 32;
  // Loads in a row hide each other's latency; more vectors need the registers for their sums.
  const int64_t at_once = !loads_fours(p) || p.a.size > 4 ? 1 : p.a.size > 2 ? 2 : 4;
  const Tile along{
      .m = p.a.size, .n = 256 / lanes, .k = lanes * 4 * std::min(at_once, 128 / lanes), .threads = 64};
  const Tile across{.m = p.a.size, .n = 128, .k = 16 * at_once, .threads = 128};
  if (p.b.along_k()) return {multiply_vectors, along, slices_for(p, along, device.busy / 4, 1024)};
  return {multiply_vectors, across, slices_for(p, across, 8 * device.busy, 512)};
}

Choice choose(const Product& p, const MatmulDevice& device) {
  // 37, 35, 34 and 25 TFLOP/s in f32 on an H200, of 43 that its registers allow: the first one reads less of
  // the workgroup's memory for each product, the second has twice as many invocations. 8 x 16 are no faster.
  static constexpr Tile kTiles[] = {
      {.m = 128, .n = 128, .k = 16, .rows = 16, .columns = 8, .threads = 128, .bytes = 16'896},
      {.m = 128, .n = 128, .k = 16, .rows = 8, .columns = 8, .threads = 256, .bytes = 16'896},
      {.m = 64, .n = 64, .k = 16, .rows = 8, .columns = 4, .threads = 128, .bytes = 8'704},
      {.m = 32, .n = 32, .k = 16, .rows = 4, .columns = 4, .threads = 64, .bytes = 4'608}};
  if (device.software)
    return {multiply_blocks, {.m = 32, .n = 32, .k = 4, .rows = 4, .columns = 4, .threads = 64}};
  if (p.a.size <= kVectors) return choose_vectors(p, device);
  if (p.a.dtype == DType::f16 && p.b.dtype == DType::f16 && device.matrix()) {
    // 255, 244 and 175 TFLOP/s; the second keeps a GPU busy with half as many workgroups.
    const int64_t lanes = device.subgroup();
    const Tile tiles[] = {
        {.m = 128, .n = 128, .k = 32, .rows = 64, .columns = 64, .threads = 4 * lanes, .bytes = 20'480},
        {.m = 128, .n = 128, .k = 64, .rows = 64, .columns = 32, .threads = 8 * lanes, .bytes = 36'864},
        {.m = 64, .n = 64, .k = 64, .rows = 32, .columns = 32, .threads = 4 * lanes, .bytes = 18'432},
        {.m = 32, .n = 64, .k = 64, .rows = 32, .columns = 16, .threads = 4 * lanes, .bytes = 13'824}};
    // None whose second half would be empty, and the last only for rows that are few enough.
    const std::span all = tiles;
    const auto fitting = p.a.size <= 32 ? all.last(1) : p.a.size <= 64 ? all.subspan(2, 1) : all.first(3);
    if (const auto choice = choose_tile(multiply_matrices, fitting, p, device)) return *choice;
  }
  // Short sums are over before the few invocations of the first one have hidden how they begin and end: with
  // 256 elements of k the second was a sixth faster, with 2,048 and more the first is.
  constexpr int64_t kLong = 1024;
  const std::span all = kTiles;
  const bool is_long = p.k >= kLong;
  const auto choice = choose_tile(multiply_tiles, is_long ? all : all.subspan(1), p, device);
  if (!choice) fail(ErrorKind::unsupported, "[matmul] workgroups of this device are too small for a tile");
  return *choice;
}

/// Whether an invocation per element is enough. A software adapter takes longer to compile anything else than
/// to run a small product whose factors are not vectors in memory.
bool is_simple(const Product& p, const MatmulDevice& device) {
  constexpr int64_t kShort = 16, kSmall = int64_t{1} << 22;
  return p.k < kShort ||
         (device.software && !loads_fours(p) && p.a.size * p.b.size * p.k * p.batch.count() < kSmall);
}

/// Whether it is better to unpack weights for every tile of rows than once, through memory. Llama-8B Q4_K on
/// an H200, 512 rows: 12,660 instead of 11,230 tokens per second; but SmolLM2, whose halves stay in the
/// cache, 87,500 instead of 93,700, and Llama-1B Q8_0 47,300 instead of 53,800. 128 rows of those: 28,300
/// instead of 29,500 and 26,700 instead of 25,200; of Llama-1B Q4_K 31,600 instead of 25,700.
bool unpacks_inside(const Product& p, quant::Type type) {
  constexpr int64_t kFewRows = 128, kCached = int64_t{1} << 24;
  return p.a.size <= kFewRows || (p.b.size * p.k >= kCached && quant::coding(type).bits < 8);
}

/// out = the sum of the slices.
void finish(Context& context, const Target& sums, int64_t slices, const Operand& out, const Target& target) {
  Builder builder("matmul_finish");
  const std::string from = builder.read(sums.buffer);
  builder.code = fmt::format("alias T = {};\n", lane_type(sums.dtype)) + result_function(builder, target);
  builder.code += fmt::format(
      "fn element(i: u32) -> Result {{\n  var sum = T(0);\n"
      "  for (var s = 0u; s < {}; s++) {{ sum += bitcast<T>({}[s * {} + i]); }}\n"
      "  return Result(result(i, sum));\n}}\n",
      builder.number(slices), from, builder.number(sums.count));
  builder.map(context, std::span(&out, 1));
}

}  // namespace

MatmulDevice::MatmulDevice(const gpu::Device& device)
    : software(device.type() == gpu::AdapterType::cpu),
      features(device.features()),
      limits(device.limits()) {}

uint32_t MatmulDevice::subgroup() const {
  const bool known =
      features.subgroups && features.subgroup_min == features.subgroup_max && features.subgroup_max <= 64;
  return known ? features.subgroup_max : 0;
}

const gpu::MatrixConfig* MatmulDevice::matrix() const {
  for (const gpu::MatrixConfig& m : features.matrices)
    if (subgroup() && m.input == "f16" && m.output == "f32" && 32 % m.m == 0 && 32 % m.n == 0 &&
        32 % m.k == 0)
      return &m;
  return nullptr;
}

int64_t groups_of(const Product& p, const Tile& tile) {
  return (p.a.size + tile.m - 1) / tile.m * ((p.b.size + tile.n - 1) / tile.n) * p.batch.count();
}

void matmul(Context& context, const Step& step, const MatmulDevice& device, const PackedFactor* packed) {
  const Operand &a = step.inputs[0], &b = step.inputs[1], &out = step.outputs[0];
  const Target target{buffer_of(out), out.dtype, element_count(out.layout.shape),
                      step.program ? &step : nullptr};
  if (target.count == 0) return;
  const auto is_word = [](DType d) { return d == DType::i32 || d == DType::u32; };
  const bool floats = is_float(a.dtype) && is_float(b.dtype) && is_float(out.dtype);
  if (!floats && !(is_word(a.dtype) && a.dtype == b.dtype && a.dtype == out.dtype))
    fail(ErrorKind::unsupported, "[matmul] no kernel for {} x {} -> {} on the GPU", name_of(a.dtype),
         name_of(b.dtype), name_of(out.dtype));

  Product whole = product_of(a, b);
  const auto limit = device.limits.max_binding_size;
  if (!packed && is_simple(whole, device) && parts_that_fit(whole, limit).size() == 1)
    return multiply_elements({context, device, whole, target});
  std::vector<Product> parts = packed ? std::vector{whole} : parts_that_fit(whole, limit);
  for (Product& part : parts)
    if (!packed && !device.software && has_few_columns(part)) part = swapped(part);
  if (parts.size() == 1) {
    const auto sums_that_fit = static_cast<int64_t>(limit / 4) / target.count;
    parts[0].cut(std::min(choose(parts[0], device).slices, sums_that_fit));
  }

  // Where k is cut, and where rows of halves begin within a word, 32-bit sums come first.
  const bool half = size_of(out.dtype) == 2;
  const bool direct = std::ranges::all_of(
      parts, [&](const Product& p) { return p.slices == 1 && !p.adds && (!half || stores_whole_words(p)); });
  Target sums = target;
  if (!direct) {
    sums.buffer = context.scratch(parts[0].slices * target.count, "matmul");
    sums.dtype = floats ? DType::f32 : out.dtype;
    sums.epilogue = nullptr;
  }
  for (const Product& part : parts) {
    const Choice choice = choose(part, device);
    choice.form({context, device, part, sums, choice.tile, packed});
  }
  if (!direct) finish(context, sums, parts[0].slices, out, target);
}

void qmatmul_halves(Context& context, const Step& step) {
  if (element_count(step.outputs[0].layout.shape) == 0) return;
  const MatmulDevice device(context.device);
  const PackedFactor packed{step.inputs[1], packing_of(step)};
  const Layout transposed = Layout::contiguous({packed.packing.n, packed.packing.k}).permuted({1, 0});
  Step product = step;
  product.inputs[0] = without_gaps(context, step.inputs[0], 8);
  product.inputs[1] = {step.inputs[1].storage, DType::f16, transposed};
  const Product whole = product_of(product.inputs[0], product.inputs[1]);
  if (choose(whole, device).form == multiply_matrices && unpacks_inside(whole, packed.packing.type) &&
      parts_that_fit(whole, device.limits.max_binding_size).size() == 1)
    return matmul(context, product, device, &packed);
  product.inputs[1].storage = unpacked_weights(context, step, DType::f16).storage;
  matmul(context, product, device);
}

void matmul(Context& context, const Step& step) {
  if (!step.tiles.empty()) return joined_matmul(context, step);
  matmul(context, step, MatmulDevice(context.device));
}

}  // namespace weft::webgpu
