#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "doctor/system.h"

namespace weft::doctor {

enum class Container { none, docker, podman, kubernetes, other };
enum class Wsl { no, one, two };

/// Snapdragon X chips: what each needs, by its name in the device tree.
struct Snapdragon {
  const char* compatible;
  const char* gpu;
  int mesa_major, mesa_minor;  ///< first Mesa whose Turnip knows the GPU
  const char* firmware;        ///< prefix of the files in /lib/firmware/qcom
  const char* zap;  ///< shader that unlocks the GPU, signed by the laptop's maker; nullptr = none needed
};

/// Operating system and what surrounds it.
struct Platform {
  std::string distribution;     ///< "Ubuntu 24.04.1 LTS"
  std::string id;               ///< "ubuntu"
  std::string package_manager;  ///< apt, dnf, pacman, zypper, apk; empty = unknown
  std::string kernel;           ///< as `uname -r`
  Container container = Container::none;
  Wsl wsl = Wsl::no;
  const Snapdragon* snapdragon = nullptr;
};

Platform find_platform(const System& system);
const char* to_string(Container container);

enum class GpuKind { nvidia, amd, intel, qualcomm, wsl, other };

/// A GPU that the kernel shows, whether or not a driver can use it.
struct Gpu {
  GpuKind kind = GpuKind::other;
  std::string name;   ///< "NVIDIA GPU 10de:2335"
  std::string where;  ///< "PCI 0000:01:00.0", "/dev/dxg", "device tree"
};

std::vector<Gpu> find_gpus(const System& system, const Platform& platform);

/// A node through which drivers reach a GPU.
struct DeviceNode {
  std::string path;
  std::string driver;  ///< kernel driver, e.g. "amdgpu"; empty when not known
  Node node;
  int error = 0;  ///< errno of opening it; 0 = may be used
};

std::vector<DeviceNode> find_device_nodes(const System& system);

/// Software by what it is for; the name of the package depends on the distribution.
enum class Package { vulkan_loader, mesa_vulkan, opencl, x_libraries, firmware };

/// "sudo apt install libvulkan1": the command for this machine (all known ones when the manager is not
/// known).
std::string install_command(const System& system, const Platform& platform, Package package);

}  // namespace weft::doctor
