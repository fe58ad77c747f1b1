#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "doctor/checks.h"
#include "doctor/doctor.h"

namespace weft::doctor::test {

/// A folder tree that stands for a whole machine, made and removed by a test.
class FakeMachine {
 public:
  FakeMachine();
  ~FakeMachine();
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  /// The System of a user who owns none of the tree's files; tests change it as they need.
  System system;
  /// What the WebGPU probe is to report.
  std::vector<gpu::LibraryReport> libraries;

  void file(const std::string& path, const std::string& text = "");
  /// A device node: a plain file with these permission bits.
  void node(const std::string& path, unsigned mode = 0666);
  void link(const std::string& path, const std::string& target);
  void remove(const std::string& path);
  std::string text(const std::string& path) const;

  void os(const std::string& id, const std::string& name, const std::string& kernel = "6.8.0-45-generic");
  void pci(const std::string& slot, const std::string& vendor, const std::string& device,
           const std::string& pci_class = "0x030000");
  /// /dev/dri/renderD128 of a kernel driver.
  void render_node(const std::string& driver, unsigned mode = 0666);

  /// A stub library under the name of the one it plays: library("libvulkan.so.1", "stub_vulkan").
  void library(const std::string& name, const std::string& stub);
  /// libvulkan.so.1 with a script for it: see stubs/stub_vulkan.cpp.
  void vulkan(const std::string& script);
  /// A manifest in /usr/share/vulkan/icd.d; the driver it names is the healthy stub unless `stub` says
  /// otherwise (empty: no file).
  void driver(const std::string& manifest, const std::string& library_name,
              const std::string& stub = "stub_icd");

  Facts facts() const;
  std::vector<Finding> findings() const;
  /// The finding with that id, if there is one.
  std::optional<Finding> finding(const std::string& id) const;
  /// The same where it has to be: fails the test when there is none.
  Finding must_find(const std::string& id) const;

  struct Output {
    int exit_code;
    std::string text;
    std::string last_line() const;
  };
  Output doctor(bool json = false, bool fix = false, bool test = false,
                const std::vector<SelfTest>& tests = {}) const;

 private:
  std::filesystem::path root_;
};

extern const char* const kLlvmpipe;  ///< a line of the Vulkan script: Mesa 25.0's software driver

gpu::AdapterReport adapter(const std::string& name, gpu::AdapterType type,
                           const std::string& backend = "Vulkan");
gpu::LibraryReport wgpu(const std::vector<gpu::AdapterReport>& adapters,
                        const std::string& version = "29.0.1.1", const std::string& abi = "C");

bool has(const std::string& text, const std::string& part);

/// A healthy workstation: Ubuntu, AMD GPU, RADV, wgpu-native, an OpenCL device. No check may complain about
/// it.
void make_healthy(FakeMachine& machine);

}  // namespace weft::doctor::test
