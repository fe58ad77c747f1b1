#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpu/abi.h"

namespace weft::gpu {

class Adapter;

/// A loaded WebGPU library with its instance. Any number of them, of any class, live side by side in one
/// process. Copies are handles on the same library; the file is never unloaded (drivers do not survive that).
class Library {
 public:
  /// Loads a file and tells its ABI class from its symbols, never from its name. Throws ErrorKind::io when
  /// the file cannot be loaded, ErrorKind::unsupported when it speaks an API that weft does not. This runs
  /// driver code: for a driver that was never seen before use probe_library() first.
  static Library open(const std::filesystem::path& file);

  /// True once driver code may have run in this process.
  static bool any_opened();

  /// True while static objects are destroyed: handles that live so long leave their driver alone.
  static bool process_exiting();

  const std::filesystem::path& path() const;
  const std::string& implementation() const;  ///< "wgpu-native", "Dawn", "WebGPU"
  const std::string& version() const;         ///< for people; empty when the library does not tell
  char abi_class() const;                     ///< 'A', 'B' or 'C'

  /// Every adapter (real GPUs first), without duplicates. Empty when there is none.
  std::vector<Adapter> adapters() const;

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  explicit Library(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Shared by everything made from one library. Internal to src/gpu.
struct Library::State {
  abi::Api api;
  abi::Instance instance = nullptr;
  std::filesystem::path path;
  std::string implementation, version;
  std::vector<std::shared_ptr<void>> kept;  ///< callback data that must outlive the instance

  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

}  // namespace weft::gpu
