#include "gpu/kernel.h"

#include <cstring>

#include "gpu/state.h"

namespace weft::gpu {
namespace {

constexpr size_t kMaxBindGroups = 65'536;  // a leak of distinct bindings must not become a leak of memory

abi::BindGroupLayout create_group_layout(const Device::State& d,
                                         const std::vector<abi::BufferBindingLayout>& buffers) {
  std::vector<abi::BindGroupLayoutEntry> entries(buffers.size());
  std::vector<abi::BindGroupLayoutEntryA> entries_a(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    entries[i].binding = entries_a[i].binding = static_cast<uint32_t>(i);
    entries[i].visibility = entries_a[i].visibility = abi::kStageCompute;
    entries[i].buffer = entries_a[i].buffer = buffers[i];
  }
  const bool a = d.api().abi == abi::Class::a;
  const abi::BindGroupLayoutDescriptor descriptor{
      .next = nullptr,
      .label = {nullptr, abi::kStrlen},
      .entry_count = buffers.size(),
      .entries = a ? static_cast<const void*>(entries_a.data()) : entries.data()};
  return d.api().DeviceCreateBindGroupLayout(d.device, &descriptor);
}

uint64_t resolved_size(const Binding& b) {
  return b.size ? b.size : b.buffer.size() - b.offset;
}

}  // namespace

const std::string& Kernel::name() const {
  return state_->name;
}
size_t Kernel::binding_count() const {
  return state_->writes.size();
}
uint32_t Kernel::params_size() const {
  return state_->params_size;
}

const Layout& Device::State::layout_of(const Wgsl& wgsl) {
  std::string signature = wgsl.params == ParamsPath::immediate ? std::to_string(wgsl.params_size)
                          : wgsl.params == ParamsPath::uniform ? "u"
                                                               : "";
  for (bool writes : wgsl.writes) signature += writes ? 'w' : 'r';
  if (const auto known = layouts.find(signature); known != layouts.end()) return known->second;

  std::vector<abi::BufferBindingLayout> buffers;
  for (bool writes : wgsl.writes)
    buffers.push_back({.next = nullptr,
                       .type = writes ? abi::kBindStorage : abi::kBindReadOnlyStorage,
                       .dynamic_offset = 0,
                       .min_size = 0});
  Layout layout;
  layout.group = create_group_layout(*this, buffers);
  if (!uniform_layout && wgsl.params == ParamsPath::uniform)
    uniform_layout = create_group_layout(
        *this, {{.next = nullptr, .type = abi::kBindUniform, .dynamic_offset = 1, .min_size = kUniformSlot}});
  const abi::BindGroupLayout groups[] = {layout.group, uniform_layout};
  const abi::PipelineLayoutDescriptor descriptor{
      .next = nullptr,
      .label = {nullptr, abi::kStrlen},
      .group_count = wgsl.params == ParamsPath::uniform ? 2u : 1u,
      .groups = groups,
      .immediate_size = wgsl.params == ParamsPath::immediate ? wgsl.params_size : 0};
  layout.pipeline = api().DeviceCreatePipelineLayout(device, &descriptor);
  return layouts.emplace(std::move(signature), layout).first->second;
}

Kernel Device::kernel(const KernelSource& source) {
  State& d = *state_;
  d.check();
  const Wgsl wgsl =
      translate(source.name, source.wgsl, source.constants, {d.api(), d.features, d.limits.max_immediates});
  std::string key = fmt::format("{}\n{}", source.name, wgsl.text);
  if (const auto known = d.kernels.find(key); known != d.kernels.end()) return Kernel(known->second);
  if (wgsl.writes.size() > d.limits.max_storage_buffers)
    fail(ErrorKind::unsupported, "[gpu] kernel '{}' binds {} buffers; '{}' allows {}", source.name,
         wgsl.writes.size(), d.name, d.limits.max_storage_buffers);

  auto kernel = std::make_shared<Kernel::State>();
  kernel->device = state_;
  kernel->name = source.name;
  kernel->writes = wgsl.writes;
  kernel->params = wgsl.params;
  kernel->params_size = wgsl.params_size;

  ErrorScope scope(d, abi::kFilterValidation);
  kernel->layout = &d.layout_of(wgsl);
  const abi::ShaderSource code{.chain = {.next = nullptr, .type = abi::kSTypeWgsl},
                               .code = view_of(wgsl.text)};
  const abi::ShaderModuleDescriptor module_descriptor{.next = &code.chain, .label = view_of(kernel->name)};
  const abi::ShaderModule module =
      d.api().DeviceCreateShaderModuleTrusted
          ? d.api().DeviceCreateShaderModuleTrusted(d.device, &module_descriptor, 0)
          : d.api().DeviceCreateShaderModule(d.device, &module_descriptor);
  if (module) {
    const abi::ComputePipelineDescriptor descriptor{.next = nullptr,
                                                    .label = view_of(kernel->name),
                                                    .layout = kernel->layout->pipeline,
                                                    .stage_next = nullptr,
                                                    .module = module,
                                                    .entry = {"main", 4},
                                                    .constant_count = 0,
                                                    .constants = nullptr};
    kernel->pipeline = d.api().DeviceCreateComputePipeline(d.device, &descriptor);
    d.api().ShaderModuleRelease(module);
  }
  const std::optional<std::string> mistake = scope.pop();
  if (mistake || !kernel->pipeline) {
    if (kernel->pipeline) d.api().ComputePipelineRelease(kernel->pipeline);
    d.check();
    fail(ErrorKind::invalid, "[gpu] kernel '{}' does not compile: {}", source.name,
         relate_to_source(mistake.value_or("the library returned no pipeline"), wgsl.prelude_lines));
  }
  ++d.counters.pipelines;
  d.kernels.emplace(std::move(key), kernel);
  return Kernel(std::move(kernel));
}

abi::BindGroup Device::State::bind_group(const Kernel::State& kernel, std::span<const Binding> bindings) {
  bind_key.clear();
  bind_key.push_back(reinterpret_cast<uintptr_t>(kernel.layout));
  for (const Binding& b : bindings) {
    bind_key.push_back(b.buffer.state()->memory.id);
    bind_key.push_back(b.offset);
    bind_key.push_back(resolved_size(b));  // memory from the pool comes back with other sizes
  }
  if (const auto known = bind_groups.find(bind_key); known != bind_groups.end()) return known->second;

  if (bind_groups.size() >= kMaxBindGroups) {
    for (auto& [key, group] : bind_groups) api().BindGroupRelease(group);
    bind_groups.clear();
    bind_keys_of.clear();
  }
  std::vector<abi::BindGroupEntry> entries(bindings.size());
  for (size_t i = 0; i < bindings.size(); ++i) {
    const Binding& b = bindings[i];
    entries[i].binding = static_cast<uint32_t>(i);
    entries[i].buffer = b.buffer.state()->memory.handle;
    entries[i].offset = b.offset;
    entries[i].size = round_up(resolved_size(b), 4);
  }
  const abi::BindGroupDescriptor descriptor{.next = nullptr,
                                            .label = view_of(kernel.name),
                                            .layout = kernel.layout->group,
                                            .entry_count = entries.size(),
                                            .entries = entries.data()};
  const abi::BindGroup group = api().DeviceCreateBindGroup(device, &descriptor);
  ++counters.bind_groups;
  bind_groups.emplace(bind_key, group);
  for (const Binding& b : bindings) {
    std::vector<BindKey>& keys = bind_keys_of[b.buffer.state()->memory.id];
    if (keys.empty() || keys.back() != bind_key) keys.push_back(bind_key);
  }
  return group;
}

const UniformChunk& Device::State::uniform_chunk(size_t index) {
  while (uniforms.size() <= index) {
    UniformChunk chunk;
    chunk.memory = create_memory(kUniformSlot * kUniformChunkSlots, abi::kUsageUniform | abi::kUsageCopyDst,
                                 "params", false);
    abi::BindGroupEntry entry{};
    entry.buffer = chunk.memory.handle;
    entry.size = kUniformSlot;
    const abi::BindGroupDescriptor descriptor{.next = nullptr,
                                              .label = {"params", 6},
                                              .layout = uniform_layout,
                                              .entry_count = 1,
                                              .entries = &entry};
    chunk.group = api().DeviceCreateBindGroup(device, &descriptor);
    uniforms.push_back(chunk);
  }
  return uniforms[index];
}

}  // namespace weft::gpu
