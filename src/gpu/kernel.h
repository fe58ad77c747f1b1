#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/wgsl.h"

namespace weft::gpu {

struct KernelSource {
  std::string_view name;  ///< stands in error messages and traces
  std::string_view wgsl;  ///< in the dialect of wgsl.h, entry point `main`
  std::vector<Constant> constants = {};
};

/// A compiled compute shader. Copies are handles on the same pipeline.
class Kernel {
 public:
  Kernel() = default;
  const std::string& name() const;
  size_t binding_count() const;
  uint32_t params_size() const;
  explicit operator bool() const { return state_ != nullptr; }

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }
  explicit Kernel(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace weft::gpu
