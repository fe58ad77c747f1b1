#pragma once

#include <array>
#include <functional>

#include "backend/webgpu/builder.h"
#include "quant/packing.h"

/// Packed weights and products with them.
namespace weft::webgpu {

/// Elements without gaps, from an offset that is a multiple of `align`: those of the operand, or a copy.
Operand without_gaps(Context& context, const Operand& operand, int64_t align);

/// What a dispatch of a product does.
struct QuantForm {
  bool tiles = false;        ///< qmatmul_tiles*.wgsl, else qmatmul_vectors.wgsl with
  int64_t threads = 1;       ///< in a workgroup
  int64_t lanes = 1;         ///< threads that share rows of weights
  int64_t rows = 1;          ///< of weights for each thread
  int64_t vectors = 1;       ///< rows of x
  int64_t ahead = 1;         ///< blocks whose loads are under way at once; `lanes` times it divides a row's
  bool subgroups = false;    ///< sum over lanes with shuffles, else through the workgroup's memory
  bool barriers = true;      ///< false: nothing is kept in the workgroup's memory
  bool interleaved = false;  ///< qmatmul_lanes.wgsl, with rows of weights that are
  bool beside = false;       ///< qmatmul_rows.wgsl, with rows of weights that lie side by side
  int64_t memory = 0;        ///< bytes of the workgroup's memory that others need
};
/// Of packed weights whose rows have so many blocks.
QuantForm packed_form(const gpu::Device& device, int64_t m, int64_t blocks);
/// Of n rows of floats with so many units.
QuantForm floats_form(const gpu::Device& device, int64_t m, int64_t n, int64_t units);
/// On software adapters: each lane of a subgroup takes rows of weights, for tiles of so many of them, times m
/// rows of x.
QuantForm lanes_form(const gpu::Features& features, int64_t tile, int64_t m);
/// Of the workgroup's memory, for sums, a table of levels and what others need.
int64_t shared_bytes(const QuantForm& form);
/// The largest number up to `most` that divides `x`.
int64_t divisor(int64_t x, int64_t most);

/// Statements that make words `part`, of 8, of the codes of block `at`, in the order that
/// qmatmul_x_codes.wgsl describes, of the four elements `own`. `put(i, word)`; `blocks`: of all rows.
/// `x4(i)`: four elements; empty where the parts of a block are made by neighbours of a subgroup, which
/// shuffle. Nothing is put where `live` is false: on an H200 shuffles cost 0.5 us where some of a subgroup
/// are missing, so all of them come here.
std::string code_words(const std::string& own, const std::string& x4, const std::string& put,
                       const std::string& blocks, int64_t bits);
/// Of codes of 16 bits of so many elements.
int64_t bytes_of_codes(int64_t elements);
/// The step before a product that makes codes of its input, in every workgroup; null: there is none.
const Step* encoder_of(const Step& product);
/// THREADS, LANES, ROWS, VECTORS and AHEAD of a form.
std::vector<gpu::Constant> constants_of(const QuantForm& form);
/// The text that has multiply_vectors.
std::string vectors_text(const QuantForm& form);

/// What a block of a row of weights, and one of x, are and give: levels, scales, load_x, dot_x. Codes of x
/// have `bits`, floats 0; `floats`: what a workgroup makes those codes of itself. Returns what main does
/// first.
std::string declare_product(Context& context, Builder& builder, const Operand& x, const Operand& packed,
                            const quant::Packing& packing, int64_t bits, const QuantForm& form,
                            const Operand* floats = nullptr);
/// The same for weights that are floats, k of them in a row, a multiple of 8.
void declare_product(Context& context, Builder& builder, const Operand& x, const Operand& w, int64_t k);

/// qmatmul_packed or qmatmul_codes in a given form.
void multiply_packed(Context& context, const Step& step, const QuantForm& form);

/// Of a step's packed weights, by its attributes.
quant::Packing packing_of(const Step& step);
/// Input 1 of a product, packed, as floats (n, k) in the step's scratch.
Operand unpacked_weights(Context& context, const Step& product, DType dtype);

/// Codes and scales of a row as WGSL functions: `levels(row, block)`, `scales(row, block)`, and what these
/// are made of, `blocks()`, `offset()`. `shared`: tables are in the workgroup's memory, where main puts
/// pair_of(i) into pairs[i].
void declare_packed(Context& context, Builder& builder, const Operand& packed, const quant::Packing& packing,
                    bool shared);

/// What the functions that read packed weights go by: packed4, packed, blocks, the starts of sections,
/// offset, halves.
void declare_sections(Context& context, Builder& builder, const Operand& packed,
                      const quant::Packing& packing);
/// The eight words of bytes that a unit of codes becomes (quant/packing.h), as expressions of `type`: u32, or
/// a vector of words of several rows. `word(i)`: of the unit.
std::array<std::string, 8> code_bytes(uint32_t bits, const std::function<std::string(uint32_t)>& word,
                                      std::string_view type);
/// The levels of a table, four in a word: numbers, so that types share a kernel.
std::string table_words(Builder& builder, const quant::Coding& coding);

std::string_view name_of_scales(quant::Scales scales);

}  // namespace weft::webgpu
