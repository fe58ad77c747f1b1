#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/library.h"
#include "gpu/report.h"

namespace weft::gpu {

/// A GPU (or software renderer) as one library sees it.
class Adapter {
 public:
  /// Name, driver, ids, type and limits as the library tells them; features and costs are left to probing.
  const AdapterReport& info() const { return *info_; }
  const Library& library() const { return library_; }

  /// What the library claims; whether it is true is for prove_features() (truth.h) to find out.
  bool claims(uint32_t feature) const;
  std::vector<uint32_t> claimed_features() const;

  /// A handle to make one device from. Dawn's adapters are used up by that, so it is asked for a new one each
  /// time.
  std::shared_ptr<abi::AdapterImpl> handle_for_device() const;

  const abi::Limits& raw_limits() const { return *raw_limits_; }

 private:
  friend class Library;
  /// The question that this adapter was the answer to (Dawn only).
  struct Request {
    uint32_t backend = 0, power = 0;
    bool fallback = false;
  };
  Adapter(Library library, abi::Adapter handle, Request request);
  static abi::Adapter request(const Library::State& library, const Request& request);

  Library library_;
  Request request_;
  std::shared_ptr<abi::AdapterImpl> handle_;
  std::shared_ptr<const AdapterReport> info_;
  std::shared_ptr<const abi::Limits> raw_limits_;
};

}  // namespace weft::gpu
