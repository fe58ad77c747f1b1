#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/awake.h"
#include "base/error.h"
#include "gpu/callback.h"
#include "gpu/series.h"

/// What the handles of device.h, buffer.h and kernel.h point at. Internal to src/gpu.
namespace weft::gpu {

inline constexpr uint64_t round_up(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

/// Written by callbacks of the library, on whatever thread; read by the next foreground call.
struct DeviceErrors {
  std::mutex mutex;
  std::optional<Error> pending;     // first uncaptured error since the last check
  std::optional<std::string> lost;  // set once, stays
};

/// A WebGPU buffer of the pool or of a Buffer handle. The id names it in bind group keys, and is never used
/// again.
struct Memory {
  abi::Buffer handle = nullptr;
  uint64_t id = 0;
  uint64_t capacity = 0;
  std::byte* mapped = nullptr;  // of upload() and staging buffers
  uint64_t last_use = 0;        // in the pool: when it came there
};

struct Buffer::State : std::enable_shared_from_this<Buffer::State> {
  std::shared_ptr<Device::State> device;
  Memory memory;
  uint64_t size = 0;
  enum class Fate { pooled, destroyed, kept } fate = Fate::pooled;  ///< of the memory when the handle goes
  uint64_t held_by = 0;                                             ///< the last recorder that did
  std::string label;
  ~State();
};

/// A texture with a copy of a buffer's words.
struct Image {
  abi::Texture texture = nullptr;
  abi::TextureView view = nullptr;
  uint64_t bytes = 0;
  bool is_fresh = false;  ///< nothing was written to the buffer since it was copied
};

/// Layouts depend only on how bindings are used and how Params travel, so kernels share them.
struct Layout {
  abi::BindGroupLayout group = nullptr;
  abi::PipelineLayout pipeline = nullptr;
};

struct Kernel::State {
  std::weak_ptr<Device::State> device;
  abi::ComputePipeline pipeline = nullptr;               ///< null until Device::State::finish(), or:
  std::string mistake;                                   ///< why there is none
  abi::ShaderModule module = nullptr;                    ///< until then
  std::shared_ptr<Answer<abi::ComputePipeline>> answer;  ///< of begin_pipeline()
  abi::Future future{};
  const Layout* layout = nullptr;
  std::vector<Access> accesses;
  uint32_t params_size = 0;
  ParamsPath params = ParamsPath::none;
  std::string name;
};

/// Key of a bind group: layout, then id, offset and size of each binding.
using BindKey = std::vector<uint64_t>;
struct BindKeyHash {
  size_t operator()(const BindKey& key) const {
    uint64_t hash = 0x9e3779b97f4a7c15;
    for (uint64_t word : key) hash = (hash ^ word) * 0xff51afd7ed558ccd, hash ^= hash >> 32;
    return hash;
  }
};

/// One buffer of the uniform arena; Params of a dispatch take one slot of it, chosen by a dynamic offset.
struct UniformChunk {
  Memory memory;
  abi::BindGroup group = nullptr;
};
inline constexpr uint64_t kUniformSlot = 256;         // bytes, the largest alignment any adapter asks for
inline constexpr uint64_t kUniformChunkSlots = 1024;  // 256 KiB

struct Device::State : std::enable_shared_from_this<Device::State> {
  std::shared_ptr<Library::State> library;
  abi::Device device = nullptr;
  abi::Queue queue = nullptr;
  std::string name, stack;
  uint64_t recorders = 0;  ///< so far
  AdapterType type = AdapterType::unknown;
  Limits limits;
  Features features;
  DeviceOptions options;
  std::chrono::milliseconds deadline{};  ///< of a wait
  std::shared_ptr<DeviceErrors> errors = std::make_shared<DeviceErrors>();
  Counters counters;

  std::map<std::string, Layout> layouts;                                    // by signature
  std::unordered_map<std::string, std::shared_ptr<Kernel::State>> kernels;  // by name and text
  std::vector<std::shared_ptr<Kernel::State>> unfinished;                   // without a pipeline
  abi::BindGroupLayout uniform_layout = nullptr;
  std::vector<UniformChunk> uniforms;
  std::unordered_map<BindKey, abi::BindGroup, BindKeyHash> bind_groups;
  std::unordered_map<uint64_t, std::vector<BindKey>> bind_keys_of;  // buffer id -> its bind groups
  uint64_t bind_group_releases = 0;
  BindKey bind_key;                                // scratch of bind_group()
  std::multimap<uint64_t, Memory> pool;            // by capacity
  std::vector<Memory> staging;                     // free readback buffers
  std::unordered_map<std::string, Memory> tables;  // by name
  std::unordered_map<uint64_t, Image> images;      // by buffer id
  uint64_t next_id = 1;
  uint64_t pool_clock = 0;  // buffers that came back so far
  bool hung = false;        ///< the driver stopped answering
  Awake awake;              ///< while a software adapter is waited for

  const abi::Api& api() const { return library->api; }
  ~State();

  /// Throws the pending error or the loss of the device.
  void check();
  [[noreturn]] void throw_lost();
  void set_lost(const std::string& why);
  bool lost() const;
  /// Nothing may be called any more: the driver hangs, or the process is at its end.
  bool dead() const { return hung || Library::process_exiting(); }

  /// Waits for an asynchronous answer; throws ErrorKind::lost or ErrorKind::timeout naming `what`.
  /// `injected`: nobody will answer, and the driver is not to blame.
  void wait(abi::Future future, const AnswerBase& answer, std::string_view what, bool injected = false);

  /// Throws ErrorKind::memory for what no buffer of this device can hold.
  void check_size(uint64_t bytes, std::string_view label) const;

  /// Creates a WebGPU buffer; throws ErrorKind::memory or ErrorKind::invalid with the label.
  Memory create_memory(uint64_t capacity, uint64_t usage, const std::string& label, bool mapped);
  void destroy_memory(Memory memory);     ///< with the bind groups that refer to it
  void release_bind_groups(uint64_t id);  ///< those that refer to a buffer

  /// The image of a buffer, made when it is first asked for.
  Image& image_of(const Buffer::State& buffer);
  void destroy_image(uint64_t id);
  /// The buffer is written: its image is to be copied again.
  void outdate_image(uint64_t id) {
    if (const auto image = images.find(id); image != images.end()) image->second.is_fresh = false;
  }

  const Layout& layout_of(const Wgsl& wgsl);

  /// The library makes the pipeline in a thread of its own.
  void begin_pipeline(Kernel::State& kernel);
  /// All cores make these: wgpu-native has no asynchronous call.
  void make_pipelines(std::span<const std::shared_ptr<Kernel::State>> wanted);
  void finish_kernels();
  /// Until the kernel has its pipeline; throws what is wrong with it.
  void finish(const Kernel::State& kernel);

  abi::BindGroup bind_group(const Kernel::State& kernel, std::span<const BindingView> bindings);
  /// Forgets all bind groups when there are too many: a leak of distinct bindings must not become a leak of
  /// memory.
  void limit_bind_groups();
  const UniformChunk& uniform_chunk(size_t index);

  /// Keeps memory for reuse. What was not used for longest makes room for it.
  void give_pool(Memory memory);

  Memory take_staging(uint64_t bytes);
  void give_staging(Memory memory);

  /// Resolves when all work submitted so far is done.
  std::pair<abi::Future, std::shared_ptr<AnswerBase>> work_done();
};

struct Series::State {
  struct Dispatch {
    const Kernel::State* kernel = nullptr;
    abi::BindGroup group = nullptr;
    Grid grid;
    std::span<const std::byte> params;
    size_t first = 0;  ///< of its bindings
  };
  std::shared_ptr<Device::State> device;
  uint64_t releases = 0;  ///< Device::State::bind_group_releases when it was begun
  std::vector<Dispatch> dispatches;
  std::vector<BindingView> bindings;
};

/// Errors of the calls between construction and pop(), which returns the message of the first one. Every push
/// is popped exactly once, in the reverse order (wgpu-native aborts on an empty stack).
class ErrorScope {
 public:
  ErrorScope(Device::State& device, uint32_t filter);
  ~ErrorScope();
  ErrorScope(const ErrorScope&) = delete;
  ErrorScope& operator=(const ErrorScope&) = delete;
  std::optional<std::string> pop();

 private:
  Device::State& device_;
  bool open_ = true;
};

}  // namespace weft::gpu
