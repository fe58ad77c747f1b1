#include "plan/group.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "ops/op.h"

namespace weft {
namespace {

constexpr size_t kMaxMembers = 96, kMaxInstructions = 48;
constexpr size_t kMaxBuffers = 7;  // every GPU can bind 8; one may hold numbers
// A row is the work of one workgroup when something follows its fold.
constexpr int64_t kLongRow = 1 << 16, kFewRows = 64;

/// Ops that cost no more than reading a value.
bool is_cheap(const Op& op) {
  static const std::set<std::string_view> names = {
      "add",  "sub",   "mul",    "divide", "neg",        "maximum", "minimum",    "abs",
      "sqrt", "rsqrt", "square", "clamp",  "reciprocal", "where",   "to_dtype",   "constant",
      "eq",   "ne",    "lt",     "le",     "gt",         "ge",      "logical_not"};
  return names.contains(op.name);
}

/// Strides of dims of size 1 say nothing.
Layout normal(Layout layout) {
  for (size_t d = 0; d < layout.shape.size(); ++d)
    if (layout.shape[d] == 1) layout.strides[d] = 0;
  return layout;
}

Shape without_ones(const Shape& shape) {
  Shape result;
  for (int64_t size : shape)
    if (size != 1) result.push_back(size);
  return result;
}

bool same_order(const Layout& layout) {
  return normal(layout) == normal(Layout::contiguous(layout.shape));
}

/// How many elements a layout leads to: all along dims without a stride to the same one.
int64_t reached(const Layout& layout) {
  int64_t count = 1;
  for (size_t d = 0; d < layout.shape.size(); ++d)
    if (layout.strides[d] != 0) count *= layout.shape[d];
  return count;
}

}  // namespace

Group::Group(const Graph& graph, const std::vector<Spot>& spots, int root)
    : graph_(&graph), spots_(&spots), root_(root) {
  stores_ = {step(root).first};
  const PathPtr result = std::make_shared<Path>();
  members_[root] = {{result, normal(Layout::contiguous(out(root).shape))}};
  if (is_fold(root)) {
    members_.erase(root);
    take_fold(root);
  }
}

bool Group::is_fold(const Graph::Step& step) {
  return step.node->op->fold != Fold::none && is_float(step.node->outputs[0].dtype);
}

/// Costs so little that each group that needs it computes it for itself.
bool Group::is_free(int s) const {
  const Graph::Step& made = step(s);
  if (made.constant >= 0) return true;
  if (made.node->op->name != "to_dtype") return false;
  int source = made.inputs[0];
  while (graph_->producer(source) >= 0 && step(graph_->producer(source)).node->op->kind == OpKind::view)
    source = step(graph_->producer(source)).inputs[0];
  return graph_->producer(source) < 0;
}

bool Group::only_used_here(int s) const {
  return std::ranges::all_of(step(s).users,
                             [&](int user) { return members_.contains(user) && !shared_.contains(user); });
}

/// Computed from a fold, it will be one value per row when the fold is taken in.
bool Group::is_made_of_fold(int s) const {
  const OpKind kind = step(s).node->op->kind;
  if (is_fold(s)) return true;
  if (kind != OpKind::elementwise && kind != OpKind::view) return false;
  return std::ranges::any_of(step(s).inputs, [&](int v) {
    const int p = v < 0 ? -1 : graph_->producer(v);
    return p >= 0 && step(p).users.size() == 1 && is_made_of_fold(p);
  });
}

// ---- Ways from the iteration to a member's elements.
// ------------------------------------------------------------

/// A layout over the root's shape, or over what is folded, becomes one over the iteration.
std::optional<Layout> Group::finished(Layout layout, Path::Kind level) const {
  if (matmul_ >= 0) return layout.reshaped(out(matmul_).shape);
  if (!folds_ || !root_is_row_) return layout;
  if (level == Path::Kind::element) {
    std::vector<int64_t> order = kept_;
    order.insert(order.end(), folded_.begin(), folded_.end());
    return layout.permuted(order);
  }
  Shape rows;
  for (int64_t d : kept_) rows.push_back(input_[static_cast<size_t>(d)]);
  std::optional<Layout> result = layout.reshaped(rows);
  if (!result) return std::nullopt;
  for (int64_t d : folded_) {
    result->shape.push_back(input_[static_cast<size_t>(d)]);
    result->strides.push_back(0);
  }
  return result;
}

std::optional<Layout> Group::apply(const PathPtr& path, Layout layout) const {
  const Path* at = path.get();
  for (; at->outer; at = at->outer.get()) {
    if (at->kind == Path::Kind::expand) {
      layout = layout.expanded(at->shape);
    } else {
      std::optional<Layout> viewed =
          at->view->node->op->layout(at->view->node->attrs, layout, at->view->node->outputs[0].shape);
      if (!viewed) return std::nullopt;
      layout = *std::move(viewed);
    }
  }
  return finished(std::move(layout), at->kind);
}

/// The way to the inputs of a member.
PathPtr Group::path_below(int s, const Use& use) const {
  const Graph::Step& member = step(s);
  if (is_fold(s)) return std::make_shared<Path>(Path{.kind = Path::Kind::element});
  if (member.node->op->kind == OpKind::view)
    return std::make_shared<Path>(Path{.kind = Path::Kind::view, .view = &member, .outer = use.path});
  if (use.path->kind == Path::Kind::expand && use.path->shape == out(s).shape) return use.path;
  return std::make_shared<Path>(Path{.kind = Path::Kind::expand, .shape = out(s).shape, .outer = use.path});
}

/// How a producer would be used: one entry per different way. nullopt: there is a way that no layout can say.
std::optional<std::vector<Group::Use>> Group::uses_of(int s) const {
  std::vector<Use> uses;
  for (int user : step(s).users) {
    const auto member = members_.find(user);
    if (member == members_.end()) continue;
    for (const Use& use : member->second) {
      const PathPtr path = path_below(user, use);
      std::optional<Layout> index = apply(path, Layout::contiguous(out(s).shape));
      if (!index) return std::nullopt;
      Layout known = normal(*std::move(index));
      if (std::ranges::none_of(uses, [&](const Use& u) { return u.index == known; }))
        uses.push_back({path, std::move(known)});
    }
  }
  return uses;
}

Layout Group::along_rows() const {
  Layout layout;
  for (const auto* dims : {&kept_, &folded_})
    for (int64_t d : *dims) layout.shape.push_back(input_[static_cast<size_t>(d)]);
  layout.strides.assign(layout.shape.size(), 0);
  int64_t stride = 1;
  for (size_t d = kept_.size(); d-- > 0;) {
    layout.strides[d] = stride;
    stride *= layout.shape[d];
  }
  return normal(layout);
}

// ---- Growing.
// ---------------------------------------------------------------------------------------------------

bool Group::take_fold(int s) {
  const Graph::Step& fold = step(s);
  const Shape& shape = fold.inputs[0] < static_cast<int>(graph_->leaves.size())
                           ? graph_->leaves[static_cast<size_t>(fold.inputs[0])].layout.shape
                           : graph_->value(fold.inputs[0]).shape;
  std::vector<int64_t> folded = fold.node->attrs.list("dims"), kept;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
    if (std::ranges::find(folded, d) == folded.end()) kept.push_back(d);
  if (element_count(shape) == 0) {
    if (s == root_) members_[s] = {{std::make_shared<Path>(), normal(Layout::contiguous(out(s).shape))}};
    return false;
  }
  if (matmul_ >= 0) return false;

  const Group before = *this;
  const auto undo = [&] {
    *this = before;
    return false;
  };
  if (!folds_) {
    input_ = shape, kept_ = std::move(kept), folded_ = std::move(folded);
    // A root of the result's shape makes the iteration wider; one of the input's shape has it already.
    root_is_row_ = s == root_ || without_ones(out(root_).shape) == without_ones(out(s).shape);
    if (!root_is_row_) {
      size_t trailing = 0;  // rows must be at the end: what is stored is in the iteration's order
      for (auto d = static_cast<int64_t>(shape.size()) - 1;
           d >= 0 && (shape[static_cast<size_t>(d)] == 1 || std::ranges::find(folded_, d) != folded_.end());
           --d)
        ++trailing;
      const bool ends = std::ranges::all_of(folded_, [&](int64_t d) {
        return shape[static_cast<size_t>(d)] == 1 || d >= static_cast<int64_t>(shape.size() - trailing);
      });
      if (!ends || out(root_).shape != shape) return undo();
      kept_.clear(), folded_.clear();
      for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
        (d < static_cast<int64_t>(shape.size() - trailing) ? kept_ : folded_).push_back(d);
    }
    folds_ = true;
  } else {
    // The same rows again.
    if (shape != input_) return undo();
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
      if (shape[static_cast<size_t>(d)] != 1 &&
          (std::ranges::find(folded, d) == folded.end()) != (std::ranges::find(folded_, d) == folded_.end()))
        return undo();
  }
  const Layout rows = along_rows();
  int64_t count = 1, length = 1;
  for (int64_t d : kept_) count *= input_[static_cast<size_t>(d)];
  for (int64_t d : folded_) length *= input_[static_cast<size_t>(d)];
  if (s == root_) {
    members_[s] = {{std::make_shared<Path>(), rows}};
    return true;
  }
  if (!measure()) return undo();
  std::optional<std::vector<Use>> uses = uses_of(s);
  if (!uses || uses->size() != 1 || uses->front().index != rows) return undo();
  const bool below_elements = !root_is_row_ || std::ranges::any_of(step(s).users, [&](int user) {
    return members_.at(user).front().index != rows;
  });
  if (below_elements && length > kLongRow && count < kFewRows) return undo();
  members_[s] = *std::move(uses);
  return (loads_fit() && is_small()) || undo();
}

bool Group::take_matmul(int s) {
  if (matmul_ >= 0 || folds_ || stores_.size() > 1 || !is_float(out(s).dtype)) return false;
  const Group before = *this;
  const std::optional<std::vector<Use>> uses = uses_of(s);
  if (!uses || uses->size() != 1 || !same_order(uses->front().index) ||
      element_count(out(root_).shape) != element_count(out(s).shape))
    return false;
  matmul_ = s;
  members_[s] = *uses;
  if (measure() && loads_fit() && is_small()) return true;
  *this = before;
  return false;
}

bool Group::take(int s) {
  const Graph::Step& made = step(s);
  const OpKind kind = made.node->op->kind;
  const bool free = !made.wanted && is_free(s);
  if (!free && !only_used_here(s)) return false;
  if (std::ranges::find(made.users, matmul_) != made.users.end()) return false;  // it reads memory
  if (made.wanted && (kind != OpKind::elementwise || matmul_ >= 0 || !only_used_here(s))) return false;
  if (is_fold(s)) return !made.wanted && take_fold(s);
  if (made.node->op->is_product) return !made.wanted && take_matmul(s);
  if (kind != OpKind::elementwise && kind != OpKind::view) return false;

  std::optional<std::vector<Use>> uses = uses_of(s);
  if (!uses || uses->empty()) return false;
  if (kind == OpKind::elementwise && !free) {
    if (uses->size() > 1) return false;
    const Layout& index = uses->front().index;
    const bool per_row = folds_ && index == along_rows();
    const bool repeated = !per_row && element_count(out(s).shape) < element_count(index.shape);
    if (repeated && !is_cheap(*made.node->op) && !is_made_of_fold(s)) return false;
    const bool whole = reached(index) == element_count(out(s).shape);  // not only a part is asked for
    if (made.wanted && !(whole && (per_row || same_order(index)))) return false;
    if (made.wanted && folds_ && root_is_row_ && !per_row) return false;  // only rows are stored
  }
  members_[s] = *std::move(uses);
  if (made.wanted) stores_.push_back(made.first);
  if (loads_fit(s) && is_small()) {
    if (!only_used_here(s)) shared_.insert(s);
    return true;
  }
  members_.erase(s);
  if (made.wanted) stores_.pop_back();
  return false;
}

std::set<int> Group::loads() const {
  std::set<int> values;
  for (const auto& [s, uses] : members_)
    for (int v : step(s).inputs)
      if (v >= 0 && (graph_->producer(v) < 0 || !members_.contains(graph_->producer(v)))) values.insert(v);
  return values;
}

/// The iteration has changed: ways lead elsewhere.
bool Group::measure() {
  for (auto& [s, uses] : members_)
    for (Use& use : uses) {
      std::optional<Layout> index = apply(use.path, Layout::contiguous(out(s).shape));
      if (!index) return false;
      use.index = normal(*std::move(index));
    }
  return true;
}

bool Group::loads_fit(int s) const {
  if (s == matmul_) return true;
  for (int v : step(s).inputs) {
    if (v < 0 || (graph_->producer(v) >= 0 && members_.contains(graph_->producer(v)))) continue;
    for (const Use& use : members_.at(s))
      if (!apply(path_below(s, use), (*spots_)[static_cast<size_t>(v)].layout)) return false;
  }
  return true;
}

bool Group::loads_fit() const {
  return std::ranges::all_of(members_, [&](const auto& member) { return loads_fit(member.first); });
}

bool Group::is_small() const {
  size_t instructions = 0;
  for (const auto& [s, uses] : members_)
    if (step(s).node->op->kind != OpKind::view && step(s).constant < 0) instructions += uses.size();
  std::set<int> buffers;
  for (int v : loads()) buffers.insert((*spots_)[static_cast<size_t>(v)].owner);
  return members_.size() <= kMaxMembers && instructions <= kMaxInstructions &&
         buffers.size() + stores_.size() <= kMaxBuffers;
}

void Group::grow() {
  if (is_fold(root_) && !folds_) return;  // of nothing
  std::set<int, std::greater<>> candidates;
  const auto add_inputs = [&](int s) {
    for (int v : step(s).inputs)
      if (v >= 0 && graph_->producer(v) >= 0) candidates.insert(graph_->producer(v));
  };
  add_inputs(root_);
  while (!candidates.empty()) {
    const int s = *candidates.begin();  // newest first: whoever uses it was asked before
    candidates.erase(candidates.begin());
    if (!members_.contains(s) && take(s) && s != matmul_) add_inputs(s);
  }
  // A fold alone has a kernel of its own.
  const bool alone = std::ranges::all_of(members_, [&](const auto& m) {
    return m.first == root_ || step(m.first).node->op->kind == OpKind::view;
  });
  if (alone && is_fold(root_)) {
    const Use use = members_.at(root_).front();
    members_ = {{root_, {use}}};
    folds_ = false;
  }
}

// ---- The kernel.
// ------------------------------------------------------------------------------------------------

Plan::Step Group::lowered() const {
  const Graph::Step& root = step(root_);
  const auto memory = [&](int v, Layout layout) -> Plan::Operand {
    if (v < 0) return {};
    const DType dtype =
        graph_->producer(v) < 0 ? graph_->leaves[static_cast<size_t>(v)].dtype : graph_->value(v).dtype;
    return {(*spots_)[static_cast<size_t>(v)].owner, dtype, std::move(layout)};
  };
  const auto in_memory = [&](int v) {
    return memory(v, v < 0 ? Layout{} : (*spots_)[static_cast<size_t>(v)].layout);
  };
  Plan::Step result;
  if (is_fold(root_) && !folds_) {
    result.kernel = root.node->op->name;
    result.attrs = root.node->attrs;
    result.inputs = {in_memory(root.inputs[0])};
    result.outputs = {memory(root.first, Layout::contiguous(out(root_).shape))};
    return result;
  }

  // Loads are numbered as they are met, and come before all instructions; so those count from kFirst for now.
  constexpr int kFirst = 1 << 20;
  ElementwiseProgram program;
  std::map<std::pair<int, size_t>, int> computed;  // member and use -> register
  std::vector<Plan::Operand> loads;
  if (matmul_ >= 0) {
    loads.push_back({-1, out(matmul_).dtype, {}});
    program.loads.push_back(out(matmul_).dtype);
  }
  const auto load = [&](int v, const PathPtr& path) {
    const Spot& spot = (*spots_)[static_cast<size_t>(v)];
    Plan::Operand operand = memory(v, normal(*apply(path, spot.layout)));
    for (size_t i = 0; i < loads.size(); ++i)
      if (loads[i].storage == operand.storage && loads[i].dtype == operand.dtype &&
          loads[i].layout == operand.layout)
        return static_cast<int>(i);
    program.loads.push_back(operand.dtype);
    loads.push_back(std::move(operand));
    return static_cast<int>(loads.size()) - 1;
  };
  const auto value_at = [&](auto& self, int v, const PathPtr& path) -> int {
    const int s = graph_->producer(v);
    const auto member = s < 0 ? members_.end() : members_.find(s);
    if (member == members_.end()) return load(v, path);
    if (s == matmul_) return 0;
    const Layout index = normal(*apply(path, Layout::contiguous(out(s).shape)));
    size_t use = 0;
    while (member->second[use].index != index) ++use;
    if (const auto found = computed.find({s, use}); found != computed.end()) return found->second;

    const Graph::Step& made = step(s);
    const PathPtr below = path_below(s, member->second[use]);
    if (made.node->op->kind == OpKind::view) return computed[{s, use}] = self(self, made.inputs[0], below);
    ElementwiseProgram::Instruction instruction{.op = &made.node->op->scalar, .dtype = out(s).dtype};
    for (size_t i = 0; i < made.inputs.size(); ++i) instruction.inputs[i] = self(self, made.inputs[i], below);
    if (is_fold(s)) {
      instruction.op = nullptr;
      instruction.fold = made.node->op->fold;
    }
    for (size_t i = 0; i < made.node->op->scalar_attrs.size(); ++i)
      instruction.attrs[i] = made.node->attrs.number(made.node->op->scalar_attrs[i]);
    instruction.constant = made.constant;
    program.instructions.push_back(instruction);
    return computed[{s, use}] = kFirst + static_cast<int>(program.instructions.size()) - 1;
  };
  const auto final_register = [&](int reg) {
    return reg < kFirst ? reg : reg - kFirst + static_cast<int>(loads.size());
  };

  for (int v : stores_) {
    const int s = graph_->producer(v);
    program.stores.push_back(value_at(value_at, v, members_.at(s).front().path));
    const Layout& index = members_.at(s).front().index;
    result.outputs.push_back(memory(v, matmul_ >= 0 ? Layout::contiguous(out(matmul_).shape) : index));
  }
  for (ElementwiseProgram::Instruction& i : program.instructions)
    for (int& input : i.inputs) input = final_register(input);
  for (int& store : program.stores) store = final_register(store);
  if (folds_) program.row_dims = folded_.size();

  result.kernel = folds_ ? "rows" : "elementwise";
  if (matmul_ >= 0) {
    result.kernel = step(matmul_).node->op->name;
    result.is_product = true;
    result.attrs = step(matmul_).node->attrs;
    for (int v : step(matmul_).inputs) result.inputs.push_back(in_memory(v));
    loads.erase(loads.begin());
  }
  for (Plan::Operand& operand : loads) result.inputs.push_back(std::move(operand));
  result.program = std::move(program);
  return result;
}

}  // namespace weft
