#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"

namespace weft::bench_ops {

/// A plain copy between two buffers that are larger than the caches: the driver's or a kernel's, whichever is
/// faster. What a device's bandwidth is measured by.
class Copy {
 public:
  /// `large`: buffers as a real GPU needs them.
  Copy(Backend& backend, bool large);

  void run();
  double bytes() const { return 2.0 * static_cast<double>(bytes_); }  ///< read and written
  double speed();                                                     ///< of these, per second

 private:
  Backend& backend_;
  const uint64_t bytes_;
  const std::vector<StoragePtr> storages_;
  std::unique_ptr<Prepared> kernel_;
  bool by_kernel_ = false;
};

}  // namespace weft::bench_ops
