#pragma once

#include <map>
#include <set>

#include "backend/webgpu/builder.h"

namespace weft::webgpu {

/// Kernels of little work that follow each other become one: a single workgroup runs them in order, with
/// barriers where one needs what another wrote. A dispatch costs the host and the GPU a few microseconds
/// each, and that is more than these take.
class SmallKernels {
 public:
  explicit SmallKernels(Context& context) : context_(context) {}

  /// The kernel comes next: as a part of one with those before it, or by itself.
  void add(const Builder& kernel);
  /// Nothing more comes.
  void finish();

 private:
  /// Names of buffers that were used since the last barrier.
  struct Touched {
    std::set<std::string> read, written;
    bool waits = false;  ///< for those before
  };
  bool is_small(const Builder& kernel) const;
  bool fits(const Builder& kernel) const;
  static void append(Builder& all, const Builder& part, size_t index, Touched& touched);

  Context& context_;
  std::vector<Builder> parts_;  ///< of the kernel in the making
};

}  // namespace weft::webgpu
