#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu/device.h"

namespace weft::test {

/// A WebGPU library that the tests run against.
struct TestLibrary {
  std::string name;  ///< "wgpu-native 29", "Dawn 2026" ...
  std::string path;
  bool supported = true;  ///< false: must be refused
};

/// All libraries of the lock file, fetched or not.
const std::vector<TestLibrary>& libraries();

/// The first adapter of a library, and what probing proved about it. Libraries stay loaded from test to test.
struct TestGpu {
  TestLibrary library;
  gpu::Adapter adapter;
  gpu::Features features;

  gpu::Device open(const gpu::DeviceOptions& options = {}) const {
    return gpu::Device::create(adapter, features, options);
  }
};

/// Runs `body` on every supported library that is here; a library that is not is counted as a skip.
void on_every_gpu(const std::function<void(const TestGpu&)>& body);

/// Closes what on_every_gpu() opened: at the end of the program nothing of ours may be left.
void close_gpus();

/// Kind and message of the weft::Error that `call` throws; a failed check when it throws none.
struct Caught {
  std::string kind, message;
};
Caught error_of(const std::function<void()>& call);

/// A kernel that writes i * 3 - 1 into a buffer of 64 words, and the check that it did: proof that a device
/// works.
void check_device_works(gpu::Device& device);

}  // namespace weft::test
