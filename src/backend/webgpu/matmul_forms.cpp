// The forms of a matrix product: one kernel each, written around declare_product().
#include "backend/webgpu/matmul.h"

#include "backend/webgpu/qmatmul.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

gpu::Constant constant(std::string name, int64_t value) {
  return {std::move(name), static_cast<uint32_t>(value)};
}

/// What all kernels but the first are told. A chunk is what an invocation loads at once.
void declare(Builder& builder, const MatmulStep& step) {
  const Tile& t = step.tile;
  builder.settings = {constant("TILE_M", t.m),
                      constant("TILE_N", t.n),
                      constant("TILE_K", t.k),
                      constant("ROWS", t.rows),
                      constant("COLUMNS", t.columns),
                      constant("THREADS", t.threads),
                      {"A_ALONG_K", step.product.a.along_k()},
                      {"B_ALONG_K", step.product.b.along_k()}};
  declare_product(builder, step);
  declare_store(builder, step);
}

void run(Builder& builder, const MatmulStep& step, std::initializer_list<std::string_view> kernels) {
  for (std::string_view kernel : kernels) builder.code += embedded::webgpu_kernels(kernel);
  builder.groups(step.context, groups_of(step.product, step.tile) * step.product.slices,
                 static_cast<int>(step.tile.threads), "  multiply(index, thread);\n");
}

}  // namespace

void multiply_elements(const MatmulStep& step) {
  Builder builder("matmul_elements");
  declare_product(builder, step);
  declare_four(builder, step, 'a', true);
  declare_four(builder, step, 'b', true);
  builder.code += result_function(builder, step.target) + R"(
fn element(i: u32) -> Result {
  let column = i % size_n();
  let row = i / size_n() % size_m();
  let start = bases(i / size_n() / size_m());
  var sum = T(0);
  for (var k = 0u; k < size_k(); k += 4u) { sum += dot(four_a(start.x, row, k), four_b(start.y, column, k)); }
  return Result(result(i, sum));
}
)";
  builder.map(step.context, step.target.dtype, step.target.count, step.target.buffer);
}

void multiply_vectors(const MatmulStep& step) {
  const Product& p = step.product;
  const bool along_k = p.b.along_k();
  const int64_t lanes = 4 * step.tile.threads / step.tile.n;
  Builder builder("matmul_vectors");
  declare(builder, step);
  declare_four(builder, step, 'a', true);
  declare_four(builder, step, 'b', along_k);
  for (gpu::Constant c : {constant("VECTORS", p.a.size), constant("LANES", lanes),
                          constant("AT_ONCE", step.tile.k / (along_k ? 4 * lanes : 16))})
    builder.settings.push_back(std::move(c));
  builder.settings.push_back({"SIDE_BY_SIDE", p.column_stride != 1});
  builder.settings.push_back({"SUBGROUP_TOTALS", step.device.subgroup() == lanes});
  run(builder, step, {"matmul_vectors"});
}

void multiply_blocks(const MatmulStep& step) {
  Builder builder("matmul_blocks");
  declare(builder, step);
  declare_four(builder, step, 'a', step.product.a.along_k());
  declare_four(builder, step, 'b', step.product.b.along_k());
  run(builder, step, {"matmul", "matmul_blocks"});
}

void multiply_tiles(const MatmulStep& step) {
  const Tile& t = step.tile;
  Builder builder("matmul_tiles");
  declare(builder, step);
  declare_four(builder, step, 'a', step.product.a.along_k());
  declare_four(builder, step, 'b', step.product.b.along_k());
  for (gpu::Constant c :
       {constant("A_CHUNKS", t.m * t.k / 4 / t.threads), constant("B_CHUNKS", t.n * t.k / 4 / t.threads),
        constant("ROW_FOURS", t.rows / 4), constant("COLUMN_FOURS", t.columns / 4)})
    builder.settings.push_back(std::move(c));
  run(builder, step, {"matmul", "matmul_tiles"});
}

void multiply_matrices(const MatmulStep& step) {
  const Tile& t = step.tile;
  const gpu::MatrixConfig& matrix = *step.device.matrix();
  const bool a_along_k = step.product.a.along_k(), b_along_k = step.product.b.along_k();
  Builder builder("matmul_matrices");
  declare(builder, step);
  declare_eight(builder, step, 'a');
  if (step.packed)
    declare_packed(step.context, builder, step.packed->words, step.packed->packing, false);
  else
    declare_eight(builder, step, 'b');
  builder.settings.push_back({"PACKED", step.packed != nullptr});
  for (gpu::Constant c :
       {constant("MATRIX_M", matrix.m), constant("MATRIX_N", matrix.n), constant("MATRIX_K", matrix.k),
        constant("DOWN", t.rows / matrix.m), constant("ACROSS", t.columns / matrix.n),
        constant("K_STEPS", t.k / matrix.k), constant("A_CHUNKS", t.m * t.k / 8 / t.threads),
        constant("B_LOADS", t.n * t.k / (step.packed ? 32 : 8) / t.threads),
        constant("A_LINES", a_along_k ? t.m : t.k), constant("B_LINES", b_along_k ? t.n : t.k),
        constant("A_LINE_CHUNKS", (a_along_k ? t.k : t.m) / 8),
        constant("B_LINE_CHUNKS", (b_along_k ? t.k : t.n) / 8), constant("LANES", step.device.subgroup())})
    builder.settings.push_back(std::move(c));
  run(builder, step, {"matmul", "matmul_matrices"});
}

}  // namespace weft::webgpu
