#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "array/node.h"
#include "backend/backend.h"
#include "backend/elementwise.h"
#include "plan/graph.h"

namespace weft {

/// A graph made ready: a flat list of kernels over numbered storage, to be run as often as a graph of that
/// structure comes. Storages are counted through: those of the leaves, then those that the plan allocates.
class Plan {
 public:
  struct Operand {
    int storage = -1;  ///< -1 = left out
    DType dtype = DType::f32;
    Layout layout = {};
    int tile = -1;  ///< Operand::tile
  };
  struct Step {
    std::string_view kernel;
    std::vector<Operand> inputs, outputs;
    Attrs attrs = {};
    bool is_product = false;  ///< Op::is_product
    std::optional<ElementwiseProgram> program = {};
    std::vector<Tiled> tiles = {};
    std::vector<Step> before = {}, after = {};

    /// All operands, those of the steps inside too.
    void each_operand(const std::function<void(Operand&, bool is_output)>& visit);
  };
  struct Result {
    int storage = 0;
    Layout layout;
  };

  /// What runs of a plan allocated, for each place in the order of the storages. Kept from run to run, the
  /// same memory comes to the same places: a GPU finds its bind groups again. What somebody still holds is
  /// left alone.
  using Memory = std::vector<std::vector<StoragePtr>>;

  /// `often`: Backend::prepare().
  Plan(const Graph& graph, const Backend& backend, bool often);

  /// The values of the wanted steps' outputs, in order.
  std::vector<Result> const& results() const { return results_; }
  /// Runs it on the storages and constants of a graph of the same structure; returns all storages. Threads
  /// that work on graphs of the same structure share a plan, and run it one after the other.
  std::vector<StoragePtr> run(Backend& backend, std::vector<StoragePtr> storages,
                              std::span<const double> constants, Memory& memory);

  const std::vector<Step>& steps() const { return steps_; }

 private:
  void share_memory();

  size_t leaves_ = 0;  ///< storages that are given
  bool often_ = false;
  std::vector<Step> steps_;
  std::vector<uint64_t> sizes_;  ///< bytes of the storages that are allocated
  std::vector<Result> results_;
  std::mutex running_;
  std::unique_ptr<Prepared> prepared_;  ///< has the storages and constants of the run at hand
};

}  // namespace weft
