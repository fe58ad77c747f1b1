#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "array/attrs.h"
#include "array/layout.h"
#include "backend/elementwise.h"
#include "weft/array.h"

/// The op registry: one row per op. C++ functions, conformance runner, bindings and docs/ops.md read the same
/// rows.
namespace weft {

struct AttrSpec {
  std::string name;
  AttrValue fallback = {};  ///< monostate: absent unless given
  bool required = false;
};

struct OutputSpec {
  Shape shape;
  DType dtype;
};

struct Op;

/// A checked call: attributes are complete, inputs counted. A missing optional input is an empty Array.
struct OpCall {
  const Op& op;
  const std::vector<Array>& inputs;
  const Attrs& attrs;
  const Device& device;
};

/// A call whose gradient is wanted: `output_grads` are those of its outputs (empty Array = zero).
struct GradCall : OpCall {
  const std::vector<Array>& outputs;
  const std::vector<Array>& output_grads;
};

using Infer = std::function<std::vector<OutputSpec>(const OpCall&)>;
using Compose = std::function<std::vector<Array>(const OpCall&)>;
/// One array per input; an empty one where no gradient flows.
using Gradient = std::function<std::vector<Array>(const GradCall&)>;
/// The layout of a view over its input, given the output's shape; nullopt when elements would have to move
/// (some reshapes).
using ViewLayout =
    std::function<std::optional<Layout>(const Attrs& attrs, const Layout& input, const Shape& output)>;

enum class OpKind {
  elementwise,  ///< `scalar` says how; shapes broadcast; the planner fuses
  view,         ///< `layout` gives a layout over the input's storage, or the planner copies
  primitive,    ///< a kernel of that name in every backend
  composed,     ///< written in other ops; its gradient follows from theirs
};

struct Op {
  std::string name;
  OpKind kind = OpKind::composed;
  int min_inputs = 1, max_inputs = 1;  ///< -1 = any number
  std::vector<AttrSpec> attrs = {};
  int promotes_from = -1;  ///< inputs from this one on are brought to one dtype; -1 = none
  Infer infer = {};        ///< all but composed
  Compose compose = {};    ///< composed, or what a fused primitive computes: its reference and fallback
  Gradient gradient =
      {};  ///< not for composed; missing: differentiating through it is an error that names it
  bool stops_gradient = false;                 ///< on purpose: what is behind it is not differentiated
  bool only_moves = false;                     ///< its gradient too: it takes that of a half in f32
  ViewLayout layout = {};                      ///< view only
  ScalarOp scalar = {};                        ///< elementwise only
  std::vector<std::string> scalar_attrs = {};  ///< attributes that the scalar op reads, at most two, in order
  /// A primitive that changes input 0: its kernel finds input 0's values in the output and gets none for it.
  /// They are copied there first, unless nobody else could see them change.
  bool in_place = false;
  Fold fold = Fold::none;   ///< a primitive that folds floats over its `dims`: the planner fuses it too
  bool is_product = false;  ///< a primitive of two factors, whose kernel can go on with the ops behind it
};

/// Throws ErrorKind::invalid for an unknown name.
const Op& find_op(std::string_view name);
std::vector<const Op*> all_ops();  ///< sorted by name

/// Checks and records a call. For a composed op: the arrays it is made of.
/// `on`: where an op without inputs runs.
std::vector<Array> apply(const Op& op, std::vector<Array> inputs, Attrs attrs = {}, const Device& on = {});
std::vector<Array> apply(std::string_view op, std::vector<Array> inputs, Attrs attrs = {},
                         const Device& on = {});

/// apply() of an op with one output: `call("softmax", {x}, {{"dim", -1}})`.
Array call(std::string_view op, std::vector<Array> inputs, Attrs attrs = {}, const Device& on = {});

// ---- For family files.
// -----------------------------------------------------------------------------------------

/// Rows of one family, collected by registry.cpp.
std::vector<Op> elementwise_ops();
std::vector<Op> composed_elementwise_ops();
std::vector<Op> movement_ops();
std::vector<Op> reduction_ops();
std::vector<Op> indexing_ops();
std::vector<Op> matmul_ops();
std::vector<Op> quant_ops();
std::vector<Op> creation_ops();
std::vector<Op> nn_ops();
std::vector<Op> attention_ops();
std::vector<Op> conv_ops();
std::vector<Op> loss_ops();
std::vector<Op> random_ops();

/// Sums a gradient over the dims that broadcasting added, back to `shape`. Sums of halves are f32.
Array unbroadcast(const Array& grad, const Shape& shape);

/// A constant of x's dtype and device, shape ().
Array scalar_like(const Array& x, double value);

}  // namespace weft
