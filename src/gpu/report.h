#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What is known about WebGPU libraries and their adapters: plain data, made by probing (probe.h), kept in
/// the cache, read by device selection, `weft devices` and `weft doctor`.
namespace weft::gpu {

enum class AdapterType { discrete = 1, integrated = 2, cpu = 3, unknown = 4 };  // numbers of webgpu.h
const char* to_string(AdapterType type);

struct Limits {
  uint64_t max_buffer_size = 0;
  uint64_t max_binding_size = 0;  ///< maxStorageBufferBindingSize
  uint32_t max_storage_buffers = 0;
  uint32_t max_workgroup_memory = 0;
  uint32_t max_workgroup_threads = 0;
  uint32_t max_workgroups = 0;  ///< per dimension of a dispatch
  uint32_t storage_alignment = 0;
  uint32_t uniform_alignment = 0;
  uint32_t max_immediates = 0;  ///< bytes
};

/// One shape a subgroup can multiply: (m,k) x (k,n), e.g. 16x16x16 f16 -> f32.
struct MatrixConfig {
  std::string input, output;  ///< WGSL scalar types
  uint32_t m = 0, n = 0, k = 0;
};

/// True only when a shader that uses the feature compiled, ran and gave the right answer on this adapter.
struct Features {
  bool f16 = false;
  bool subgroups = false;
  bool dot4 = false;        ///< dot4I8Packed
  bool unpack_f16 = false;  ///< unpack2x16float is exact for subnormals, too
  bool pack_f16 = false;    ///< pack2x16float rounds to nearest even: to subnormals and to infinity, too
  bool immediates = false;
  bool timestamps = false;
  /// The last workgroup to add to a counter sees what the others exchanged into memory before they added:
  /// WGSL orders nothing between workgroups, but GPUs do.
  bool last_workgroup = false;
  /// Invocations of a workgroup that is one subgroup see what the others wrote into the workgroup's memory
  /// without a barrier: WGSL does not promise it, but SIMD lanes of a CPU have no other way.
  bool lockstep = false;
  bool images = false;  ///< kernels can read buffers through textures (Access::image)
  uint32_t subgroup_min = 0, subgroup_max = 0;
  std::vector<MatrixConfig> matrices;  ///< empty = no subgroup matrices
  uint32_t matrix_feature = 0;         ///< this library's number for the subgroup matrix feature
};

struct AdapterReport {
  std::string name;     ///< "NVIDIA H200", "llvmpipe (LLVM 19.1.7, 256 bits)"
  std::string driver;   ///< driver name and version as the library tells it
  std::string backend;  ///< "Vulkan", "Metal", "D3D12"
  AdapterType type = AdapterType::unknown;
  uint32_t vendor_id = 0, device_id = 0;
  Limits limits;
  Features features;
  double submit_us = 0;    ///< empty submit and its fence, wall time
  double dispatch_us = 0;  ///< one of many small dependent dispatches in a pass
  std::string error;       ///< why the adapter cannot be used; empty = usable

  bool usable() const { return error.empty(); }
};

enum class LibraryStatus { usable, refused, unloadable, crashed, timed_out };
const char* to_string(LibraryStatus status);

struct LibraryReport {
  std::string path;
  LibraryStatus status = LibraryStatus::usable;
  std::string implementation;  ///< "wgpu-native", "Dawn", "WebGPU" (neither's own symbols)
  std::string abi;             ///< class A, B, C or L of docs/webgpu-abi.md
  std::string version;         ///< as the library tells it; only for people
  std::string message;         ///< one line: what was found, what to do; empty when usable
  std::vector<AdapterReport> adapters;

  bool usable() const { return status == LibraryStatus::usable; }
};

/// JSON text of the cache and of `--json`.
std::string to_json(const LibraryReport& report);
LibraryReport library_report_from_json(const std::string& text);

}  // namespace weft::gpu
