#pragma once

#include <vector>

#include "backend/webgpu/builder.h"
#include "quant/packing.h"

/// Matrix products: what is multiplied, the parts that fit into bindings, and the forms that multiply them.
namespace weft::webgpu {

/// One factor: a as (m, k), b as (n, k), whatever their order in memory.
struct Factor {
  gpu::Buffer buffer;
  DType dtype = DType::f32;
  int64_t size = 0;                  ///< m or n
  int64_t stride = 0, k_stride = 0;  ///< elements

  /// Neighbours in memory are neighbours in k, and not rows of a or columns of b.
  bool along_k() const;
};

/// out (batch, m, n) = a (batch, m, k) b (batch, n, k), or a part of such a product.
struct Product {
  Factor a, b;
  int64_t k = 0;
  Walk batch;                                 ///< operands a, b, out
  int64_t row_stride = 0, column_stride = 1;  ///< of out
  int64_t slices = 1;                         ///< of k, each with an output of its own
  bool adds = false;                          ///< to what earlier parts left in out

  void cut(int64_t into);   ///< sets `slices` to that or less, so that none is empty
  int64_t slice_k() const;  ///< k of a slice; the last one may have less
};

/// Where a product goes: elements in the order of the whole output. 32-bit sums where k was cut.
struct Target {
  gpu::Buffer buffer;
  DType dtype = DType::f32;
  int64_t count = 0;               ///< elements of one slice
  const Step* epilogue = nullptr;  ///< whose program makes elements of the output from those of the product
};

/// Weights in blocks that are the factor b (n, k): what a form of matrices unpacks while it makes its tiles.
struct PackedFactor {
  Operand words;
  quant::Packing packing;
};

/// What the choice of a form depends on, apart from the product.
struct MatmulDevice {
  bool software = false;  ///< invocations are SIMD lanes of a CPU, and memory of a workgroup gains nothing
  int64_t busy = 32'768;  ///< invocations that keep it busy: 256 for each of 128 cores
  gpu::Features features;
  gpu::Limits limits;

  explicit MatmulDevice(const gpu::Device& device);
  /// Invocations that one subgroupAdd sums over; 0 when that is not known.
  uint32_t subgroup() const;
  /// The shape of subgroup matrices for halves with sums in f32; null when there is none.
  const gpu::MatrixConfig* matrix() const;
};

/// `packed`: b, for a product in one part that has the form of matrices. Input 1 of the step says its shape
/// as halves.
void matmul(Context& context, const Step& step, const MatmulDevice& device,
            const PackedFactor* packed = nullptr);

/// Whether the step's program can run where the elements of its product are stored.
bool takes_epilogue(const Step& step);

/// Parts whose operands each fit into a binding of `limit` bytes, in the order to run them.
std::vector<Product> parts_that_fit(const Product& whole, uint64_t limit);

/// What a workgroup computes, and how it divides that among its invocations (or subgroups, for matrices).
struct Tile {
  int64_t m = 0, n = 0, k = 0;
  int64_t rows = 0, columns = 0;
  int64_t threads = 0;
  uint32_t bytes = 0;  ///< of the workgroup's memory
};

/// One dispatch.
struct MatmulStep {
  Context& context;
  const MatmulDevice& device;
  const Product& product;
  const Target& target;
  Tile tile = {};
  const PackedFactor* packed = nullptr;  ///< the factor b
};

/// Workgroups of a slice.
int64_t groups_of(const Product& product, const Tile& tile);

// ---- Forms: matmul.cpp says which one is for what.
// -------------------------------------------------------------------------------

void multiply_elements(const MatmulStep& step);
void multiply_vectors(const MatmulStep& step);
void multiply_blocks(const MatmulStep& step);
void multiply_tiles(const MatmulStep& step);
void multiply_matrices(const MatmulStep& step);

// ---- WGSL that the forms are written around.
// -------------------------------------------------------------------------------------

/// T, the type that is summed; sizes, strides and offsets as functions.
void declare_product(Builder& builder, const MatmulStep& step);

/// What becomes of a sum: `result(at, x0)`, the bits to store for x0 at the linear index `at` of the output.
/// The place for everything that is to happen to an element before it is stored.
std::string result_function(Builder& builder, const Target& target);

/// `store(at, v, count)`: `count` of four neighbours, each through `result`.
void declare_store(Builder& builder, const MatmulStep& step);

/// `four_a(base, outer, k) -> vec4<T>`: elements (outer, k .. k + 3), or (outer .. outer + 3, k) when not
/// along k; 0 where k is outside of the matrix. `name` is a or b.
void declare_four(Builder& builder, const MatmulStep& step, char name, bool along_k);

/// `eight_a(base, outer, k) -> vec4<u32>`: the bits of eight halves, in the same way.
void declare_eight(Builder& builder, const MatmulStep& step, char name);

/// Whether both factors are aligned vectors of four elements.
bool loads_fours(const Product& product);
/// Whether every group of four elements that a form stores begins at an even index.
bool stores_whole_words(const Product& product);

}  // namespace weft::webgpu
