#pragma once

#include <cstddef>
#include <cstdint>

/// The part of webgpu.h that compute needs, in our own words: handles, structs and function pointers as they
/// are in ABI class C (wgpu-native 29+, Dawn since mid-2025). What classes A (wgpu-native 24-27) and B (Dawn
/// of early 2025) lay out differently is a number or a flag of AbiTraits below, and nowhere else.
namespace weft::gpu::abi {

// ---- Handles: opaque pointers, distinct types.
// -----------------------------------------------------------------
#define WEFT_HANDLE(name) using name = struct name##Impl*
WEFT_HANDLE(Instance);
WEFT_HANDLE(Adapter);
WEFT_HANDLE(Device);
WEFT_HANDLE(Queue);
WEFT_HANDLE(Buffer);
WEFT_HANDLE(ShaderModule);
WEFT_HANDLE(BindGroupLayout);
WEFT_HANDLE(BindGroup);
WEFT_HANDLE(PipelineLayout);
WEFT_HANDLE(ComputePipeline);
WEFT_HANDLE(CommandEncoder);
WEFT_HANDLE(CommandBuffer);
WEFT_HANDLE(ComputePass);
WEFT_HANDLE(QuerySet);
WEFT_HANDLE(Texture);
WEFT_HANDLE(TextureView);
#undef WEFT_HANDLE

// ---- Numbers, the same in A, B and C.
// --------------------------------------------------------------------------
inline constexpr size_t kStrlen = SIZE_MAX;  // StringView length: zero-terminated, or null
inline constexpr uint32_t kSuccess = 1;      // every Status enum
inline constexpr uint32_t kWaitTimedOut = 2;
inline constexpr uint32_t kModeProcessEvents = 2, kModeSpontaneous = 3;
inline constexpr uint32_t kErrorNone = 1, kErrorValidation = 2, kErrorMemory = 3, kErrorInternal = 4;
inline constexpr uint32_t kFilterValidation = 1, kFilterMemory = 2;
inline constexpr uint32_t kLostDestroyed = 2, kLostInstanceDropped = 3;
inline constexpr uint32_t kBackendD3D11 = 3, kBackendD3D12 = 4, kBackendMetal = 5, kBackendVulkan = 6;
inline constexpr uint32_t kPowerUndefined = 0, kPowerLow = 1, kPowerHigh = 2;
inline constexpr uint32_t kFeatureLevelCore = 2;
inline constexpr uint64_t kUsageMapRead = 1, kUsageMapWrite = 2, kUsageCopySrc = 4, kUsageCopyDst = 8,
                          kUsageUniform = 0x40, kUsageStorage = 0x80, kUsageQueryResolve = 0x200;
inline constexpr uint64_t kMapModeRead = 1;
inline constexpr uint64_t kStageCompute = 4;
inline constexpr uint32_t kBindNone = 0, kBindUniform = 2, kBindStorage = 3, kBindReadOnlyStorage = 4;
inline constexpr uint32_t kQueryTimestamp = 2;
inline constexpr uint64_t kTextureCopyDst = 2, kTextureStorage = 8;
inline constexpr uint32_t kTexture2D = 2, kTextureReadOnly = 3, kTextureAllAspects = 1;
inline constexpr uint32_t kFormatRgba32Uint = 0x2A;  // C
inline constexpr uint32_t kSTypeWgsl = 2;
inline constexpr uint32_t kSTypeDawnToggles = 0x5000A;
inline constexpr uint32_t kFeatureWgpuSubgroups = 0x30021;   // wgpu-native's own number, all versions
inline constexpr uint32_t kFeatureWgpuImmediates = 0x30001;  // push constants before 29
inline constexpr uint32_t kFirstDawnFeature = 0x50000;
inline constexpr uint64_t kWgpuBackendsNative = 1 | 4 | 8;  // Vulkan, Metal, D3D12; without GL

// ---- Structs.
// --------------------------------------------------------------------------------------------------
struct StringView {
  const char* data;
  size_t length;
};

struct Chained {
  const Chained* next;
  uint32_t type;
};

struct InstanceDescriptor {  // C
  const Chained* next;
  size_t feature_count;
  const uint32_t* features;
  const void* limits;
};

struct InstanceDescriptorAB {
  const Chained* next;
  const Chained* features_next;
  uint32_t timed_wait;  // A panics unless 0
  size_t timed_wait_max;
};
static_assert(sizeof(InstanceDescriptorAB) == sizeof(InstanceDescriptor));

struct WgpuInstanceExtras {  // only the head: what follows differs by version and stays zero
  Chained chain;
  uint64_t backends;
  uint64_t flags;
  uint8_t rest[96];
};

struct DawnToggles {
  Chained chain;
  size_t enabled_count;
  const char* const* enabled;
  size_t disabled_count;
  const char* const* disabled;
};

struct AdapterOptions {
  const Chained* next;
  uint32_t feature_level, power;
  uint32_t force_fallback, backend;
  void* surface;
};

struct WgpuEnumerateOptions {
  const Chained* next;
  uint64_t backends;
};

struct AdapterInfo {  // A ends before subgroup_min; the tail covers later growth
  Chained* next;
  StringView vendor, architecture, device, description;
  uint32_t backend, type;
  uint32_t vendor_id, device_id;
  uint32_t subgroup_min, subgroup_max;
  uint8_t tail[64];
};

struct Limits {
  Chained* next;
  uint32_t textures[4];
  uint32_t max_bind_groups, max_bind_groups_plus_vertex_buffers, max_bindings_per_group;
  uint32_t max_dynamic_uniform_buffers, max_dynamic_storage_buffers;
  uint32_t max_sampled_textures, max_samplers, max_storage_buffers, max_storage_textures, max_uniform_buffers;
  uint64_t max_uniform_binding_size, max_storage_binding_size;
  uint32_t uniform_alignment, storage_alignment;
  uint32_t max_vertex_buffers;
  uint64_t max_buffer_size;
  uint32_t vertex[3], color[2];
  uint32_t max_workgroup_memory, max_workgroup_threads, max_workgroup_x, max_workgroup_y, max_workgroup_z;
  uint32_t max_workgroups;
  uint32_t max_immediates;  // padding in A
  uint8_t tail[64];
};
static_assert(offsetof(Limits, max_storage_binding_size) == 72 && offsetof(Limits, max_buffer_size) == 96 &&
              offsetof(Limits, max_workgroups) == 144 && offsetof(Limits, max_immediates) == 148);

struct SupportedFeatures {
  size_t count;
  const uint32_t* features;
};

struct Future {
  uint64_t id;
};

struct FutureWaitInfo {
  Future future;
  uint32_t completed;
};

/// Every asynchronous call takes one of these by value; only the callback's type differs.
template <typename Callback>
struct CallbackInfo {
  const Chained* next;
  uint32_t mode;
  Callback callback;
  void *user1, *user2;
};

using AdapterCallback = void (*)(uint32_t status, Adapter, StringView message, void*, void*);
using DeviceCallback = void (*)(uint32_t status, Device, StringView message, void*, void*);
using PipelineCallback = void (*)(uint32_t status, ComputePipeline, StringView message, void*, void*);
using MapCallback = void (*)(uint32_t status, StringView message, void*, void*);
using WorkDoneCallback =
    void (*)();  // cast from (status, message, void*, void*), in A from (status, void*, void*)
using ScopeCallback = void (*)(uint32_t status, uint32_t type, StringView message, void*, void*);
using ErrorCallback = void (*)(const Device*, uint32_t type, StringView message, void*, void*);
using LostCallback = void (*)(const Device*, uint32_t reason, StringView message, void*, void*);

struct ErrorCallbackInfo {  // the one without a mode
  const Chained* next;
  ErrorCallback callback;
  void *user1, *user2;
};

struct DeviceDescriptor {
  const Chained* next;
  StringView label;
  size_t feature_count;
  const uint32_t* features;
  const Limits* limits;
  const Chained* queue_next;
  StringView queue_label;
  CallbackInfo<LostCallback> lost;
  ErrorCallbackInfo error;
};
static_assert(sizeof(DeviceDescriptor) == 144);

struct BufferDescriptor {
  const Chained* next;
  StringView label;
  uint64_t usage, size;
  uint32_t mapped_at_creation;
};

struct ShaderSource {
  Chained chain;
  StringView code;
};

struct ShaderModuleDescriptor {
  const Chained* next;
  StringView label;
};

struct BufferBindingLayout {
  const Chained* next;
  uint32_t type, dynamic_offset;
  uint64_t min_size;
};

struct StorageTextureBindingLayout {
  const Chained* next;
  uint32_t access, format, dimension;
};

struct BindGroupLayoutEntry {  // B and C; A lacks array_size, so everything after it stands 8 bytes earlier
  const Chained* next;
  uint32_t binding;
  uint64_t visibility;
  uint32_t array_size;
  BufferBindingLayout buffer;
  uint8_t sampler_and_texture[40];
  StorageTextureBindingLayout storage_texture;
};
static_assert(sizeof(BindGroupLayoutEntry) == 120);

struct BindGroupLayoutEntryA {
  const Chained* next;
  uint32_t binding;
  uint64_t visibility;
  BufferBindingLayout buffer;
  uint8_t sampler_and_textures[64];
};
static_assert(sizeof(BindGroupLayoutEntryA) == 112);

struct BindGroupLayoutDescriptor {
  const Chained* next;
  StringView label;
  size_t entry_count;
  const void* entries;
};

struct PipelineLayoutDescriptor {  // A does not read immediate_size
  const Chained* next;
  StringView label;
  size_t group_count;
  const BindGroupLayout* groups;
  uint32_t immediate_size;
};

struct BindGroupEntry {
  const Chained* next;
  uint32_t binding;
  Buffer buffer;
  uint64_t offset, size;
  void* sampler;
  TextureView texture;
};

struct BindGroupDescriptor {
  const Chained* next;
  StringView label;
  BindGroupLayout layout;
  size_t entry_count;
  const BindGroupEntry* entries;
};

struct TextureDescriptor {
  const Chained* next;
  StringView label;
  uint64_t usage;
  uint32_t dimension, width, height, layers;
  uint32_t format, mip_levels, samples;
  size_t view_format_count;
  const uint32_t* view_formats;
};
static_assert(sizeof(TextureDescriptor) == 80);

struct TexelCopyBuffer {
  uint64_t offset;
  uint32_t bytes_per_row, rows_per_layer;
  Buffer buffer;
};

struct TexelCopyTexture {
  Texture texture;
  uint32_t mip_level, x, y, z, aspect;
};

struct Extent {
  uint32_t width, height, layers;
};

struct ComputePipelineDescriptor {
  const Chained* next;
  StringView label;
  PipelineLayout layout;
  const Chained* stage_next;
  ShaderModule module;
  StringView entry;
  size_t constant_count;
  const void* constants;
};
static_assert(sizeof(ComputePipelineDescriptor) == 80);

struct LabelDescriptor {  // command encoder, command buffer
  const Chained* next;
  StringView label;
};

struct TimestampWrites {
  const Chained* next;
  QuerySet queries;
  uint32_t begin, end;
};

struct TimestampWritesA {
  QuerySet queries;
  uint32_t begin, end;
};

struct ComputePassDescriptor {
  const Chained* next;
  StringView label;
  const void* timestamps;
};

struct QuerySetDescriptor {
  const Chained* next;
  StringView label;
  uint32_t type, count;
};

// ---- What differs between the classes.
// -------------------------------------------------------------------------
enum class Implementation { wgpu, dawn, generic };
enum class Class { a, b, c, legacy };

struct AbiTraits {
  Implementation implementation = Implementation::generic;
  Class abi = Class::c;

  bool is_wgpu() const { return implementation == Implementation::wgpu; }
  bool is_dawn() const { return implementation != Implementation::wgpu; }
  bool timed_wait = false;  ///< wgpuInstanceWaitAny works with a time limit; wgpu-native's aborts

  uint32_t feature_timestamps() const { return abi == Class::c ? 9 : 3; }
  uint32_t feature_f16() const { return abi == Class::c ? 0xB : 0xA; }
  uint32_t feature_subgroups() const {
    return is_wgpu() ? kFeatureWgpuSubgroups : abi == Class::c ? 0x12 : 0x11;
  }
};

/// Function pointers, one per row: (name without "wgpu", result, arguments).
#define WEFT_WEBGPU_FUNCTIONS(F)                                                                          \
  F(CreateInstance, Instance, const void* descriptor)                                                     \
  F(InstanceProcessEvents, void, Instance)                                                                \
  F(InstanceRequestAdapter, Future, Instance, const AdapterOptions*, CallbackInfo<AdapterCallback>)       \
  F(InstanceRelease, void, Instance)                                                                      \
  F(AdapterGetInfo, uint32_t, Adapter, AdapterInfo*)                                                      \
  F(AdapterGetLimits, uint32_t, Adapter, Limits*)                                                         \
  F(AdapterGetFeatures, void, Adapter, SupportedFeatures*)                                                \
  F(AdapterHasFeature, uint32_t, Adapter, uint32_t)                                                       \
  F(AdapterInfoFreeMembers, void, AdapterInfo)                                                            \
  F(AdapterRequestDevice, Future, Adapter, const DeviceDescriptor*, CallbackInfo<DeviceCallback>)         \
  F(AdapterRelease, void, Adapter)                                                                        \
  F(SupportedFeaturesFreeMembers, void, SupportedFeatures)                                                \
  F(DeviceCreateBindGroup, BindGroup, Device, const BindGroupDescriptor*)                                 \
  F(DeviceCreateBindGroupLayout, BindGroupLayout, Device, const BindGroupLayoutDescriptor*)               \
  F(DeviceCreateBuffer, Buffer, Device, const BufferDescriptor*)                                          \
  F(DeviceCreateCommandEncoder, CommandEncoder, Device, const LabelDescriptor*)                           \
  F(DeviceCreateComputePipeline, ComputePipeline, Device, const ComputePipelineDescriptor*)               \
  F(DeviceCreatePipelineLayout, PipelineLayout, Device, const PipelineLayoutDescriptor*)                  \
  F(DeviceCreateQuerySet, QuerySet, Device, const QuerySetDescriptor*)                                    \
  F(DeviceCreateShaderModule, ShaderModule, Device, const ShaderModuleDescriptor*)                        \
  F(DeviceDestroy, void, Device)                                                                          \
  F(DeviceGetQueue, Queue, Device)                                                                        \
  F(DevicePushErrorScope, void, Device, uint32_t filter)                                                  \
  F(DevicePopErrorScope, Future, Device, CallbackInfo<ScopeCallback>)                                     \
  F(DeviceRelease, void, Device)                                                                          \
  F(QueueOnSubmittedWorkDone, Future, Queue, CallbackInfo<WorkDoneCallback>)                              \
  F(QueueSubmit, void, Queue, size_t, const CommandBuffer*)                                               \
  F(QueueWriteBuffer, void, Queue, Buffer, uint64_t, const void*, size_t)                                 \
  F(QueueRelease, void, Queue)                                                                            \
  F(BufferDestroy, void, Buffer)                                                                          \
  F(BufferGetConstMappedRange, const void*, Buffer, size_t, size_t)                                       \
  F(BufferGetMappedRange, void*, Buffer, size_t, size_t)                                                  \
  F(BufferMapAsync, Future, Buffer, uint64_t, size_t, size_t, CallbackInfo<MapCallback>)                  \
  F(BufferUnmap, void, Buffer)                                                                            \
  F(BufferRelease, void, Buffer)                                                                          \
  F(ShaderModuleRelease, void, ShaderModule)                                                              \
  F(BindGroupRelease, void, BindGroup)                                                                    \
  F(BindGroupLayoutRelease, void, BindGroupLayout)                                                        \
  F(PipelineLayoutRelease, void, PipelineLayout)                                                          \
  F(ComputePipelineRelease, void, ComputePipeline)                                                        \
  F(CommandEncoderBeginComputePass, ComputePass, CommandEncoder, const ComputePassDescriptor*)            \
  F(CommandEncoderClearBuffer, void, CommandEncoder, Buffer, uint64_t, uint64_t)                          \
  F(CommandEncoderCopyBufferToBuffer, void, CommandEncoder, Buffer, uint64_t, Buffer, uint64_t, uint64_t) \
  F(CommandEncoderFinish, CommandBuffer, CommandEncoder, const LabelDescriptor*)                          \
  F(CommandEncoderResolveQuerySet, void, CommandEncoder, QuerySet, uint32_t, uint32_t, Buffer, uint64_t)  \
  F(CommandEncoderRelease, void, CommandEncoder)                                                          \
  F(CommandBufferRelease, void, CommandBuffer)                                                            \
  F(ComputePassEncoderDispatchWorkgroups, void, ComputePass, uint32_t, uint32_t, uint32_t)                \
  F(ComputePassEncoderEnd, void, ComputePass)                                                             \
  F(ComputePassEncoderSetBindGroup, void, ComputePass, uint32_t, BindGroup, size_t, const uint32_t*)      \
  F(ComputePassEncoderSetPipeline, void, ComputePass, ComputePipeline)                                    \
  F(ComputePassEncoderRelease, void, ComputePass)                                                         \
  F(QuerySetRelease, void, QuerySet)

/// Those that only some libraries have; null otherwise.
#define WEFT_WEBGPU_OPTIONAL(F)                                                                            \
  F(InstanceEnumerateAdapters, size_t, Instance, const WgpuEnumerateOptions*, Adapter*)                    \
  F(InstanceWaitAny, uint32_t, Instance, size_t, FutureWaitInfo*, uint64_t nanoseconds)                    \
  F(DevicePoll, uint32_t, Device, uint32_t wait, const uint64_t*)                                          \
  F(DeviceCreateComputePipelineAsync, Future, Device, const ComputePipelineDescriptor*,                    \
    CallbackInfo<PipelineCallback>)                                                                        \
  F(DeviceCreateShaderModuleTrusted, ShaderModule, Device, const ShaderModuleDescriptor*, uint64_t checks) \
  F(QueueGetTimestampPeriod, float, Queue)                                                                 \
  F(ComputePassEncoderSetImmediates, void, ComputePass, uint32_t, const void*, size_t)                     \
  F(GetVersion, uint32_t)                                                                                  \
  F(DeviceCreateTexture, Texture, Device, const TextureDescriptor*)                                        \
  F(TextureCreateView, TextureView, Texture, const void* descriptor)                                       \
  F(TextureDestroy, void, Texture)                                                                         \
  F(TextureRelease, void, Texture)                                                                         \
  F(TextureViewRelease, void, TextureView)                                                                 \
  F(CommandEncoderCopyBufferToTexture, void, CommandEncoder, const TexelCopyBuffer*,                       \
    const TexelCopyTexture*, const Extent*)

struct Api : AbiTraits {
#define WEFT_POINTER(name, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  WEFT_WEBGPU_FUNCTIONS(WEFT_POINTER)
  WEFT_WEBGPU_OPTIONAL(WEFT_POINTER)
#undef WEFT_POINTER
};

}  // namespace weft::gpu::abi
