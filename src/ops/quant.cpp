// Weights in ggml's blocks, u8 (rows, row bytes), and repacked for products.
#include <algorithm>

#include "base/error.h"
#include "ops/shorthand.h"
#include "quant/packing.h"

namespace weft {
namespace {

using Specs = std::vector<OutputSpec>;

/// Words that activation_codes makes of 32 elements: 8 or 16 of codes, 4 of scale and sums.
int64_t code_words(const OpCall& c) {
  const int64_t bits = c.attrs.integer("bits");
  if (bits != 8 && bits != 16)
    fail(ErrorKind::invalid, "[{}] codes of {} bits, expected 8 or 16", c.op.name, bits);
  return bits + 4;
}

quant::Type type_of(const OpCall& c) {
  return quant::type_from_name(c.attrs.text("type"));
}

// ---- Primitives.
// ------------------------------------------------------------------------------------------------

Specs infer_dequantize(const OpCall& c) {
  const Array& w = c.inputs[0];
  const quant::Traits& block = quant::traits(type_of(c));
  const Shape& shape = c.attrs.list("shape");
  if (w.dtype() != DType::u8 || w.ndim() == 0)
    fail(ErrorKind::invalid, "[dequantize] blocks are {} {}, expected u8 (rows, bytes)", name_of(w.dtype()),
         to_string(w.shape()));
  if (w.shape(-1) % block.block_bytes != 0)
    fail(ErrorKind::invalid, "[dequantize] rows of {} bytes are not whole {} blocks of {}", w.shape(-1),
         block.name, block.block_bytes);
  const int64_t held = w.size() / block.block_bytes * block.block_elements;
  if (std::ranges::any_of(shape, [](int64_t size) { return size < 0; }) || element_count(shape) != held)
    fail(ErrorKind::invalid, "[dequantize] {} of {} hold {} elements, not {}", to_string(w.shape()),
         block.name, held, to_string(shape));
  return {{shape, DType::f32}};
}

Specs infer_quantize(const OpCall& c) {
  const Array& x = c.inputs[0];
  const quant::Traits& block = quant::traits(type_of(c));
  if (x.dtype() != DType::f32 || x.ndim() == 0 || x.shape(-1) % block.block_elements != 0)
    fail(ErrorKind::invalid, "[quantize] x is {} {}, expected f32 whose last dim is whole {} blocks of {}",
         name_of(x.dtype()), to_string(x.shape()), block.name, block.block_elements);
  Shape shape = x.shape();
  shape.back() = shape.back() / block.block_elements * block.block_bytes;
  return {{shape, DType::u8}};
}

/// The packing of n rows of the attributes' "type" and "k". How rows are put together does not change its
/// size.
quant::Packing packing_of(const OpCall& c, int64_t n) {
  const int64_t k = c.attrs.integer("k");
  if (n < 0 || k < 0) fail(ErrorKind::invalid, "[{}] weights of ({},{})", c.op.name, n, k);
  return {type_of(c), n, k, 1};
}

void check_packed(const OpCall& c, const Array& packed, const quant::Packing& packing) {
  if (packed.dtype() != DType::u32 || packed.shape() != Shape{packing.size})
    fail(ErrorKind::invalid, "[{}] packed weights are {} {}; repack gives u32 ({}) for {} ({},{})", c.op.name,
         name_of(packed.dtype()), to_string(packed.shape()), packing.size, quant::traits(packing.type).name,
         packing.n, packing.k);
}

Specs infer_repack(const OpCall& c) {
  const Array& w = c.inputs[0];
  const int64_t k = c.attrs.integer("k");
  if (w.dtype() != DType::u8 || w.ndim() != 2)
    fail(ErrorKind::invalid, "[repack] blocks are {} {}, expected u8 (rows, bytes)", name_of(w.dtype()),
         to_string(w.shape()));
  const quant::Packing packing = packing_of(c, w.shape(0));
  if (w.shape(1) != static_cast<int64_t>(quant::row_bytes(packing.type, static_cast<uint64_t>(k))))
    fail(ErrorKind::invalid, "[repack] rows of {} bytes are not {} elements of {}", w.shape(1), k,
         quant::traits(packing.type).name);
  return {{{packing.size}, DType::u32}};
}

Specs infer_dequantize_packed(const OpCall& c) {
  const quant::Packing packing = packing_of(c, c.attrs.integer("n"));
  check_packed(c, c.inputs[0], packing);
  const DType dtype = dtype_from_name(c.attrs.text("dtype"));
  if (dtype != DType::f32 && dtype != DType::f16)
    fail(ErrorKind::invalid, "[dequantize_packed] gives f32 or f16, not {}", name_of(dtype));
  return {{{packing.n, packing.k}, dtype}};
}

/// Of x whose last dim, `expected` long, is summed over.
Specs infer_product(const OpCall& c, DType dtype, int64_t expected, const quant::Packing& packing) {
  const Array& x = c.inputs[0];
  check_packed(c, c.inputs[1], packing);
  if (x.dtype() != dtype)
    fail(ErrorKind::invalid, "[{}] x is {}, expected {}", c.op.name, name_of(x.dtype()), name_of(dtype));
  if (x.ndim() == 0 || x.shape(-1) != expected)
    fail(ErrorKind::invalid, "[{}] inner dimensions differ: {} x ({},{})^T, expected (..,{})", c.op.name,
         to_string(x.shape()), packing.n, packing.k, expected);
  Shape shape = x.shape();
  shape.back() = packing.n;
  return {{shape, DType::f32}};
}

Specs infer_qmatmul_packed(const OpCall& c) {
  const quant::Packing packing = packing_of(c, c.attrs.integer("n"));
  return infer_product(c, DType::f32, packing.k, packing);
}

std::vector<Array> qmatmul_packed_gradient(const GradCall& c) {
  const Array w = call("dequantize_packed", {c.inputs[1]}, c.attrs);  // the same type, n and k
  return {call("matmul", {c.output_grads[0], w}), Array()};
}

Specs infer_activation_codes(const OpCall& c) {
  const Array& x = c.inputs[0];
  if (x.dtype() != DType::f32 || x.ndim() == 0 || x.shape(-1) % 32 != 0)
    fail(ErrorKind::invalid, "[activation_codes] x is {} {}, expected f32 whose last dim is a multiple of 32",
         name_of(x.dtype()), to_string(x.shape()));
  Shape shape = x.shape();
  shape.back() = shape.back() / 32 * code_words(c);
  return {{shape, DType::u32}};
}

Specs infer_qmatmul_codes(const OpCall& c) {
  const quant::Packing packing = packing_of(c, c.attrs.integer("n"));
  return infer_product(c, DType::u32, packing.k / 32 * code_words(c), packing);
}

Specs infer_qmatmul_halves(const OpCall& c) {
  const quant::Packing packing = packing_of(c, c.attrs.integer("n"));
  if (c.inputs[0].ndim() != 2)
    fail(ErrorKind::invalid, "[qmatmul_halves] x is {}, expected (rows,{})", to_string(c.inputs[0].shape()),
         packing.k);
  return infer_product(c, DType::f16, packing.k, packing);
}

std::vector<Array> compose_qmatmul_halves(const OpCall& c) {
  Attrs attrs = c.attrs;
  attrs.set("dtype", std::string(name_of(DType::f16)));
  const Array w = call("dequantize_packed", {c.inputs[1]}, attrs);
  return {call("matmul_batched", {c.inputs[0], transpose(w, 0, 1)},
               {{"dtype", std::string(name_of(DType::f32))}})};
}

/// x (m, ..), a stack of matrices, the matrix of each row of the result, i32 (r): x serves r / m rows each.
Specs infer_expert_matmul(const OpCall& c) {
  const Array &x = c.inputs[0], &w = c.inputs[1], &ids = c.inputs[2];
  const int64_t n = c.attrs.integer("n"), k = c.attrs.integer("k"), experts = c.attrs.integer("experts"),
                bits = c.attrs.integer("bits");
  if (n < 1 || k < 1 || experts < 1)
    fail(ErrorKind::invalid, "[expert_matmul] a stack of ({},{},{})", experts, n, k);
  if (!c.attrs.text("type").empty())
    check_packed(c, w, packing_of(c, experts * quant::whole_panels(n)));
  else if (!is_float(w.dtype()) || w.shape() != Shape{experts, n, k})
    fail(ErrorKind::invalid, "[expert_matmul] the stack is {} {}, expected a float ({},{},{})",
         name_of(w.dtype()), to_string(w.shape()), experts, n, k);
  const DType dtype = bits > 0 ? DType::u32 : DType::f32;
  const int64_t columns = bits > 0 ? k / 32 * code_words(c) : k;
  if (x.dtype() != dtype || x.ndim() != 2 || x.shape(1) != columns || x.shape(0) == 0)
    fail(ErrorKind::invalid, "[expert_matmul] x is {} {}, expected {} (rows,{})", name_of(x.dtype()),
         to_string(x.shape()), name_of(dtype), columns);
  if (ids.dtype() != DType::i32 || ids.ndim() != 1 || ids.shape(0) % x.shape(0) != 0)
    fail(ErrorKind::invalid, "[expert_matmul] ids are {} {}, expected i32 for each of {} rows",
         name_of(ids.dtype()), to_string(ids.shape()), x.shape(0));
  return {{{ids.shape(0), n}, DType::f32}};
}

std::vector<Op> primitive_rows() {
  const AttrSpec type{"type", {}, true}, n{"n", {}, true}, k{"k", {}, true}, bits{"bits", int64_t{16}};
  return {
      {.name = "dequantize",
       .kind = OpKind::primitive,
       .attrs = {type, {"shape", {}, true}},
       .infer = infer_dequantize},
      // x f32 (.., k) -> blocks, u8 (.., row bytes): those of ggml's reference quantisers
      {.name = "quantize", .kind = OpKind::primitive, .attrs = {type}, .infer = infer_quantize},
      // w (n, row bytes) -> words in an order that is the device's own (quant/packing.h), once for a model.
      {.name = "repack", .kind = OpKind::primitive, .attrs = {type, k}, .infer = infer_repack},
      // repack(w) -> its values (n, k), in f32 or rounded to f16 for products that want halves
      {.name = "dequantize_packed",
       .kind = OpKind::primitive,
       .attrs = {type, n, k, {"dtype", std::string("f32")}},
       .infer = infer_dequantize_packed},
      // x f32 (.., k), repack(w) -> x w^T f32 (.., n), in f32 on the values of w
      {.name = "qmatmul_packed",
       .kind = OpKind::primitive,
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {type, n, k},
       .infer = infer_qmatmul_packed,
       .gradient = qmatmul_packed_gradient,
       .is_product = true},
      // Activations in 8 or 16 bits: of each 32 elements the largest size a gives a scale s = a / 127 and
      // codes c = round(x / s), half to even, a byte; with 16 bits the rest, round(256 (x / s - c)), is
      // another byte, at most 127 in size. The words are in an order that is the device's own; only the
      // leading dims may be reshaped.
      {.name = "activation_codes",
       .kind = OpKind::primitive,
       .attrs = {bits},
       .infer = infer_activation_codes},
      // activation_codes(x), repack(w) -> (s (c + rest / 256)) w^T f32 (.., n): the rounding of x is the only
      // loss. Products of codes are summed in integers within a group of w's scales, the rest in f32.
      {.name = "qmatmul_codes",
       .kind = OpKind::primitive,
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {type, n, k, bits},
       .infer = infer_qmatmul_codes,
       .is_product = true},
      // x f16 (m, k), repack(w) -> x w^T f32 (m, n): values of w rounded to f16, sums in f32, for many rows
      // where a device multiplies matrices of halves.
      {.name = "qmatmul_halves",
       .kind = OpKind::primitive,
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {type, n, k},
       .infer = infer_qmatmul_halves,
       .compose = compose_qmatmul_halves,
       .is_product = true},
      // x (m, k) f32, a stack of matrices (experts, n, k), ids i32 (r) -> rows i: x[i / (r / m)] w[ids[i]]^T.
      // Of a `type`: repack of (experts * n filled up to whole panels, k). With `bits`: codes of x.
      {.name = "expert_matmul",
       .kind = OpKind::primitive,
       .min_inputs = 3,
       .max_inputs = 3,
       .attrs = {{"type", std::string()}, n, k, {"experts", {}, true}, {"bits", int64_t{0}}},
       .infer = infer_expert_matmul},
  };
}

// ---- Composed.
// --------------------------------------------------------------------------------------------------

Array qmatmul(const OpCall& c) {
  const Array &x = c.inputs[0], &w = c.inputs[1];
  const int64_t n = c.attrs.integer("n"), k = c.attrs.integer("k");
  if (!is_float(x.dtype())) fail(ErrorKind::invalid, "[qmatmul] x is {}, not a float", name_of(x.dtype()));
  if (x.ndim() == 0 || x.shape(-1) != k)
    fail(ErrorKind::invalid, "[qmatmul] inner dimensions differ: {} x ({},{})^T", to_string(x.shape()), n, k);
  if (w.ndim() != 2 || w.shape(0) != n)
    fail(ErrorKind::invalid, "[qmatmul] weights are {}, expected ({}, bytes)", to_string(w.shape()), n);
  const Attrs type{{"type", c.attrs.text("type")}, {"k", k}};
  if (quant::coding(type_of(c)).bits == 0) {  // plain floats
    const Array weights = call("dequantize", {w}, {{"type", c.attrs.text("type")}, {"shape", Ints{n, k}}});
    return as(call("matmul", {as(x, DType::f32), transpose(weights, 0, 1)}), x.dtype());
  }
  return as(call("qmatmul_packed", {as(x, DType::f32), call("repack", {w}, type)}, c.attrs), x.dtype());
}

Array qembedding(const OpCall& c) {
  const Array &w = c.inputs[0], &idx = c.inputs[1];
  const quant::Traits& block = quant::traits(type_of(c));
  if (w.ndim() != 2)
    fail(ErrorKind::invalid, "[qembedding] the table has shape {}, expected (rows, bytes)",
         to_string(w.shape()));
  const Array rows = call("index_select", {w, reshape(idx, {idx.size()})}, {{"dim", int64_t{0}}});
  Shape shape = idx.shape();
  shape.push_back(w.shape(1) / block.block_bytes * block.block_elements);
  return call("dequantize", {rows}, {{"type", c.attrs.text("type")}, {"shape", Ints(shape)}});
}

}  // namespace

std::vector<Op> quant_ops() {
  std::vector<Op> all = primitive_rows();
  for (Op& op : std::vector<Op>{
           composed1("qmatmul", 2, 2, {{"type", {}, true}, {"n", {}, true}, {"k", {}, true}}, qmatmul),
           composed1("qembedding", 2, 2, {{"type", {}, true}}, qembedding),
       })
    all.push_back(std::move(op));
  return all;
}

}  // namespace weft
