#pragma once

#include <vector>

#include "llm/cache.h"
#include "weft/compile.h"

namespace weft::llm {

class Model;

/// Passes of many tokens. To build a graph takes the host as long as a fast GPU needs to run it: so those of
/// the last few shapes are recorded, and run again with what changes.
class Passes {
 public:
  explicit Passes(Model& model) : model_(model) {}

  /// Model::forward(), with the caches. For models whose passes depend on the shapes of a batch only
  /// (Steps::possible).
  Array run(const Batch& batch);

 private:
  struct Recorded {
    std::vector<size_t> shape;  ///< what the graph depends on
    ArraysFunction function;
  };
  ArraysFunction& recorded(const Batch& batch);
  ArraysFunction record(const Batch& batch);

  Model& model_;
  std::vector<Recorded> recorded_;  ///< the one used last is the last
};

}  // namespace weft::llm
