#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "array/node.h"

namespace weft {

/// What an evaluation is about: the nodes of one device without a value, and everything numbered, so that two
/// graphs of the same structure look the same. Values are counted through: first the leaves, then the outputs
/// of the nodes.
struct Graph {
  struct Step {
    std::shared_ptr<Node> node;
    std::vector<int> inputs = {};  ///< values; -1 = left out
    std::vector<int> users = {};   ///< steps, each once
    int first = 0;                 ///< value of output 0
    bool wanted = false;           ///< its outputs are to be kept
    int constant = -1;             ///< index in `constants`
    bool takes_input = false;      ///< may write over input 0: nobody else sees it
  };
  struct Leaf {
    int storage = 0;  ///< index in `storages`
    DType dtype = DType::f32;
    Layout layout;
  };

  std::vector<Step> steps;  ///< inputs before users
  std::vector<Leaf> leaves;
  std::vector<StoragePtr> storages;  ///< of the leaves, each once
  std::vector<double> constants;     ///< numbers that may differ between graphs of one structure
  std::string key;                   ///< the structure: ops, attributes, shapes, layouts, what is wanted

  /// `arrays` are all on one device. A node that somebody else holds is wanted too when asking for it later
  /// would mean to compute more than one fused kernel again.
  explicit Graph(std::span<const Array> arrays);

  int producer(int value) const { return producers_[static_cast<size_t>(value)]; }  ///< step; -1 = a leaf
  size_t values() const { return producers_.size(); }
  const Value& value(int v) const;  ///< shape and dtype of the output of a step

 private:
  void number_nodes();
  void mark_wanted(std::span<const Array> arrays);
  void mark_taken();
  void write_key();
  std::vector<int> producers_;
};

}  // namespace weft
