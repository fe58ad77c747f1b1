#pragma once

#include <string>

namespace weft::cli {

struct DevicesOptions {
  bool json = false;
  bool explain = false;
  std::string device;  ///< --device; empty = not given
};

/// `weft devices`. Exit status 0 when a device can be used.
int devices(const DevicesOptions& options);

/// `weft selftest`: a matmul and three more ops on the chosen device. Exit status 0 when all are right.
int selftest(const std::string& device);

}  // namespace weft::cli
