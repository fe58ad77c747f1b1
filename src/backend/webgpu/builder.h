#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/elementwise.h"
#include "backend/webgpu/layout.h"
#include "backend/webgpu/tape.h"
#include "gpu/recorder.h"

/// Writing WGSL: numbers, buffers and element types of a kernel, and the shapes that most kernels have.
namespace weft::webgpu {

const gpu::Buffer& buffer_of(const Operand& operand);

std::string_view lane_type(DType dtype);  ///< "f32", "i32", "u32", "bool"
/// The lane value of an element's bits, a u32.
std::string decode(DType dtype, std::string_view bits);
/// The bits that are stored for a value of the dtype's lane, as u32.
std::string encode(DType dtype, std::string_view value);
/// A lane value wrapped or rounded to a dtype that is narrower than its lane.
std::string narrow(DType dtype, std::string value);
std::string convert(DType from, DType to, std::string_view value);

/// `struct Result`, with the bits of each output.
std::string result_struct(size_t outputs);

/// Makes one kernel and records its dispatch. The text holds no sizes, offsets or constants: those are
/// numbers in Params (or in a buffer when there are many), so that a pipeline serves every shape of its rank.
class Builder {
 public:
  explicit Builder(std::string_view name);
  /// Numbers become part of the text, for kernels that are made for a few shapes anyway.
  bool literal = false;
  /// Elements that the kernel is about, where each costs little: with few of them it may become a part of
  /// another kernel (small.h). 0: it does not.
  int64_t elements = 0;
  /// A workgroup is a subgroup whose lanes are in step (Features::lockstep): barriers are left out.
  bool lockstep = false;

  std::string number(int64_t value);                        ///< the name of a u32; negative values wrap
  std::string changing(int64_t value);                      ///< one that is not part of the text in any case
  std::string real(float value);                            ///< an f32, which may be infinite or NaN
  std::string constant(DType dtype, double value, int id);  ///< constant `id` of the plan, a lane value
  /// The name of an array<u32>, or of an array of vectors of 2 or 4 words.
  std::string read(const gpu::Binding& part, int width = 1);
  std::string write(const gpu::Binding& part, int width = 1);
  /// The name of a texture with the words of a buffer (Features::images): vector i of four is at (i %
  /// gpu::kImageWidth, i / gpu::kImageWidth).
  std::string image(const gpu::Buffer& buffer);
  std::string share(const gpu::Binding& part);                    ///< the name of an array<atomic<u32>>
  std::string load(const Operand& operand, std::string_view at);  ///< the element's lane value
  std::string bits(const Operand& operand, std::string_view at);  ///< the element's bits as u32

  /// Statements that turn the index `i` into `<prefix>at0`, `<prefix>at1` ... (offsets in the operands) and
  /// `<prefix>c0`,
  /// ... (coordinates), all u32.
  std::string unravel(const Walk& walk, std::string_view i, std::string_view prefix = "");

  std::string code;                     ///< functions, after the declarations
  std::vector<gpu::Constant> settings;  ///< constants of the text

  /// `fn element(i: u32) -> Result` of `code` gives the outputs' bits r0, r1 ...: one invocation per word of
  /// the narrowest output.
  void map(Context& context, std::span<const Operand> outputs);
  void map(Context& context, DType dtype, int64_t count, const gpu::Buffer& to);

  /// `code` has a body for `main` that sees `index` (of the workgroup, below `groups`) and `thread`.
  void groups(Context& context, int64_t groups, int threads, std::string_view body);

 private:
  friend class SmallKernels;
  void dispatch(Context& context);

  std::string name_, loaders_, body_;  ///< body_: of main
  int64_t groups_ = 0;
  int threads_ = 0;
  std::vector<uint32_t> numbers_;
  std::vector<ConstantWord> constants_;
  std::vector<gpu::Binding> bindings_;
  std::vector<int> widths_;
  std::vector<bool> writes_;
};

/// Records one step. Throws ErrorKind::unsupported when there is no such kernel.
void record(Context& context, const Step& step);
/// All of them, one after the other.
void record_steps(Context& context, std::span<const Step> steps);
bool has_kernel(std::string_view name);

// ---- One function per family of kernels.
// -----------------------------------------------------------------------

void elementwise(Context& context, const Step& step);
void rows(Context& context, const Step& step);
void copy(Context& context, const Step& step);
void pad_constant(Context& context, const Step& step);
void cat(Context& context, const Step& step);
void tril(Context& context, const Step& step);
void triu(Context& context, const Step& step);
void reduce(Context& context, const Step& step);
void matmul(Context& context, const Step& step);
void scan(Context& context, const Step& step);
void gather(Context& context, const Step& step);
void index_select(Context& context, const Step& step);
void scatter(Context& context, const Step& step);
void put_rows(Context& context, const Step& step);
void search_sorted(Context& context, const Step& step);
void sort(Context& context, const Step& step);
void quantize(Context& context, const Step& step);
void dequantize(Context& context, const Step& step);
void repack(Context& context, const Step& step);
void dequantize_packed(Context& context, const Step& step);
void qmatmul(Context& context, const Step& step);
void qmatmul_halves(Context& context, const Step& step);
void activation_codes(Context& context, const Step& step);
void expert_matmul(Context& context, const Step& step);
void random_bits(Context& context, const Step& step);
void attention(Context& context, const Step& step);
void attention_backward(Context& context, const Step& step);
void cached_attention(Context& context, const Step& step);

/// The value of an instruction that does not fold, over registers x0, x1 ...
std::string expression(Builder& builder, const ElementwiseProgram& program,
                       const ElementwiseProgram::Instruction& instruction);

/// `put<suffix>(i, row)`: word i of the rows that put_rows writes; `row_for<suffix>(i)`: the row it goes to.
void declare_put(Builder& builder, const Step& step, std::string_view suffix);

/// x itself where its elements follow each other from the first on, else a copy.
Operand contiguous(Context& context, const Operand& x);

/// to[i] = from element i, converted; both contiguous.
void convert_all(Context& context, const Operand& from, DType dtype, const gpu::Buffer& to);

}  // namespace weft::webgpu
