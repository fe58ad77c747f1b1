#pragma once

#include <memory>
#include <string>

namespace weft {

class Backend;

/// Where arrays live and are computed. Copies are handles on the same opened device.
class Device {
 public:
  /// The CPU, with one pool of threads for the whole process.
  Device();

  /// auto, cpu, webgpu, webgpu:N, webgpu:NAME. Throws when there is no such device or it cannot be opened.
  static Device open(const std::string& wanted);

  explicit Device(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  std::string name() const;
  Backend& backend() const { return *backend_; }
  const std::shared_ptr<Backend>& shared_backend() const { return backend_; }
  bool operator==(const Device& other) const { return backend_ == other.backend_; }

 private:
  std::shared_ptr<Backend> backend_;
};

/// Waits until the device has done all that was asked of it.
void synchronize(const Device& device);

}  // namespace weft
