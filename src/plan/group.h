#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "plan/graph.h"
#include "plan/plan.h"

namespace weft {

/// Where a value is when it is in memory.
struct Spot {
  int owner = 0;  ///< the value whose storage it is in: itself, or what it is a view of
  Layout layout;
};

/// The way from a place of a group's iteration to an element of a member: broadcasts and views.
struct Path {
  enum class Kind { result, element, expand, view };
  Kind kind = Kind::result;  ///< result: the root's shape; element: the input of a fold
  Shape shape = {};          ///< of expand
  const Graph::Step* view = nullptr;
  std::shared_ptr<const Path> outer = nullptr;  ///< the rest of the way; null for result and element
};
using PathPtr = std::shared_ptr<const Path>;

/// Steps of a graph that become one kernel: a root whose value is stored, and producers whose values only
/// the group needs. Three kinds of step take part: elementwise ops, views between them, folds of floats. One
/// matmul may be at the bottom; the rest is then its epilogue.
class Group {
 public:
  /// The root is elementwise or a fold.
  Group(const Graph& graph, const std::vector<Spot>& spots, int root);
  static bool is_fold(const Graph::Step& step);

  /// Takes in producers as long as that is right and worth it.
  void grow();

  std::set<int> loads() const;                                ///< values that have to be in memory
  const std::vector<int>& stores() const { return stores_; }  ///< values that will be

  /// The kernel; operands' storages are still the values that own them.
  Plan::Step lowered() const;

 private:
  /// A member is computed once for each different way that leads to it.
  struct Use {
    PathPtr path;
    Layout index;  ///< element of the member's own row-major order for each place of the iteration
  };
  using Members = std::map<int, std::vector<Use>>;

  const Graph::Step& step(int s) const { return graph_->steps[static_cast<size_t>(s)]; }
  const Value& out(int s) const { return step(s).node->outputs[0]; }
  bool is_fold(int s) const { return is_fold(step(s)); }
  bool is_free(int s) const;
  bool only_used_here(int s) const;
  bool is_made_of_fold(int s) const;

  std::optional<Layout> finished(Layout layout, Path::Kind level) const;
  std::optional<Layout> apply(const PathPtr& path, Layout layout) const;
  std::optional<std::vector<Use>> uses_of(int s) const;
  PathPtr path_below(int s, const Use& use) const;
  Layout along_rows() const;  ///< index of a value that there is one of per row

  bool take(int s);
  bool take_fold(int s);
  bool take_matmul(int s);
  bool measure();               ///< finds the indices of all uses anew
  bool loads_fit(int s) const;  ///< what the member loads has a layout over the iteration
  bool loads_fit() const;
  bool is_small() const;

  const Graph* graph_;
  const std::vector<Spot>* spots_;
  int root_;
  Members members_;
  std::set<int> shared_;     ///< members that others compute too
  std::vector<int> stores_;  ///< values; the root's first
  int matmul_ = -1;
  bool folds_ = false;                  ///< there is a fold, and:
  bool root_is_row_ = false;            ///< the root is one per row
  Shape input_;                         ///< shape that is folded
  std::vector<int64_t> kept_, folded_;  ///< its dims
};

}  // namespace weft
