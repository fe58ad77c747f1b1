#include "gpu/kernel.h"

#include <cstring>

#include "base/threads.h"
#include "gpu/state.h"

namespace weft::gpu {
namespace {

constexpr size_t kMaxBindGroups = 16'384;  // a library needs 2 to 4 KB for one

/// Images are those bindings that are no buffers.
abi::BindGroupLayout create_group_layout(const Device::State& d,
                                         const std::vector<abi::BufferBindingLayout>& buffers) {
  std::vector<abi::BindGroupLayoutEntry> entries(buffers.size());
  std::vector<abi::BindGroupLayoutEntryA> entries_a(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    entries[i].binding = entries_a[i].binding = static_cast<uint32_t>(i);
    entries[i].visibility = entries_a[i].visibility = abi::kStageCompute;
    entries[i].buffer = entries_a[i].buffer = buffers[i];
    if (buffers[i].type == abi::kBindNone)
      entries[i].storage_texture = {.next = nullptr,
                                    .access = abi::kTextureReadOnly,
                                    .format = abi::kFormatRgba32Uint,
                                    .dimension = abi::kTexture2D};
  }
  const bool a = d.api().abi == abi::Class::a;
  const abi::BindGroupLayoutDescriptor descriptor{
      .next = nullptr,
      .label = {nullptr, abi::kStrlen},
      .entry_count = buffers.size(),
      .entries = a ? static_cast<const void*>(entries_a.data()) : entries.data()};
  return d.api().DeviceCreateBindGroupLayout(d.device, &descriptor);
}

/// What a kernel is known by: as it was written, since translating takes longer than finding it, and plans
/// ask for the same ones again and again.
std::string key_of(const KernelSource& source) {
  std::string key = fmt::format("{}\n", source.name);
  for (const Constant& c : source.constants)
    std::visit([&](auto value) { key += fmt::format("{} {} {}\n", c.name, c.value.index(), value); },
               c.value);
  return key.append(source.wgsl);
}

abi::ComputePipelineDescriptor pipeline_of(const Kernel::State& kernel) {
  return {.next = nullptr,
          .label = view_of(kernel.name),
          .layout = kernel.layout->pipeline,
          .stage_next = nullptr,
          .module = kernel.module,
          .entry = {"main", 4},
          .constant_count = 0,
          .constants = nullptr};
}

uint64_t resolved_size(const BindingView& b) {
  return b.size ? b.size : b.buffer->size - b.offset;
}

}  // namespace

const std::string& Kernel::name() const {
  return state_->name;
}
size_t Kernel::binding_count() const {
  return state_->accesses.size();
}
uint32_t Kernel::params_size() const {
  return state_->params_size;
}

const Layout& Device::State::layout_of(const Wgsl& wgsl) {
  std::string signature = wgsl.params == ParamsPath::immediate ? std::to_string(wgsl.params_size)
                          : wgsl.params == ParamsPath::uniform ? "u"
                                                               : "";
  for (const Access access : wgsl.accesses) signature += "rwi"[static_cast<size_t>(access)];
  if (const auto known = layouts.find(signature); known != layouts.end()) return known->second;

  std::vector<abi::BufferBindingLayout> buffers;
  for (const Access access : wgsl.accesses)
    buffers.push_back({.next = nullptr,
                       .type = access == Access::image   ? abi::kBindNone
                               : access == Access::write ? abi::kBindStorage
                                                         : abi::kBindReadOnlyStorage,
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
  Kernel kernel = kernel_later(source);
  state_->finish(*kernel.state());
  return kernel;
}

Kernel Device::kernel_later(const KernelSource& source) {
  State& d = *state_;
  d.check();
  std::string key = key_of(source);
  if (const auto known = d.kernels.find(key); known != d.kernels.end()) return Kernel(known->second);
  const Wgsl wgsl =
      translate(source.name, source.wgsl, source.constants, {d.api(), d.features, d.limits.max_immediates});
  if (wgsl.accesses.size() > d.limits.max_storage_buffers)
    fail(ErrorKind::unsupported, "[gpu] kernel '{}' binds {} buffers; '{}' allows {}", source.name,
         wgsl.accesses.size(), d.name, d.limits.max_storage_buffers);

  auto kernel = std::make_shared<Kernel::State>();
  kernel->device = state_;
  kernel->name = source.name;
  kernel->accesses = wgsl.accesses;
  kernel->params = wgsl.params;
  kernel->params_size = wgsl.params_size;

  ErrorScope scope(d, abi::kFilterValidation);
  kernel->layout = &d.layout_of(wgsl);
  const abi::ShaderSource code{.chain = {.next = nullptr, .type = abi::kSTypeWgsl},
                               .code = view_of(wgsl.text)};
  const abi::ShaderModuleDescriptor descriptor{.next = &code.chain, .label = view_of(kernel->name)};
  kernel->module = d.api().DeviceCreateShaderModuleTrusted
                       ? d.api().DeviceCreateShaderModuleTrusted(d.device, &descriptor, 0)
                       : d.api().DeviceCreateShaderModule(d.device, &descriptor);
  const std::optional<std::string> mistake = scope.pop();
  if (mistake || !kernel->module) {
    if (kernel->module) d.api().ShaderModuleRelease(kernel->module);
    d.check();
    fail(ErrorKind::invalid, "[gpu] kernel '{}' does not compile: {}", source.name,
         relate_to_source(mistake.value_or("the library returned no module"), wgsl.prelude_lines));
  }
  if (d.api().is_dawn() && d.api().DeviceCreateComputePipelineAsync) d.begin_pipeline(*kernel);
  ++d.counters.pipelines;
  d.unfinished.push_back(kernel);
  d.kernels.emplace(std::move(key), kernel);
  return Kernel(std::move(kernel));
}

void Device::State::begin_pipeline(Kernel::State& kernel) {
  kernel.answer = std::make_shared<Answer<abi::ComputePipeline>>();
  const abi::ComputePipelineDescriptor descriptor = pipeline_of(kernel);
  kernel.future =
      api().DeviceCreateComputePipelineAsync(device, &descriptor,
                                             {.next = nullptr,
                                              .mode = abi::kModeProcessEvents,
                                              .callback = answer_with_handle<abi::ComputePipeline>,
                                              .user1 = hand_over(kernel.answer),
                                              .user2 = nullptr});
}

void Device::State::make_pipelines(std::span<const std::shared_ptr<Kernel::State>> wanted) {
  ErrorScope scope(*this, abi::kFilterValidation);
  const bool alone = wanted.size() == 1 || !api().is_wgpu();
  ThreadPool(alone ? 1 : 0).for_each(wanted.size(), 1, [&](size_t i, size_t) {
    const abi::ComputePipelineDescriptor descriptor = pipeline_of(*wanted[i]);
    wanted[i]->pipeline = api().DeviceCreateComputePipeline(device, &descriptor);
  });
  const std::optional<std::string> mistake = scope.pop();
  if (!mistake) return;
  for (const auto& kernel : wanted) {
    if (kernel->pipeline) api().ComputePipelineRelease(std::exchange(kernel->pipeline, nullptr));
    if (wanted.size() == 1)
      kernel->mistake = *mistake;
    else
      make_pipelines(std::span(&kernel, 1));  // it may be the one
  }
}

void Device::State::finish_kernels() {
  std::vector<std::shared_ptr<Kernel::State>> here;
  for (const auto& kernel : unfinished) {
    if (!kernel->answer) {
      here.push_back(kernel);
      continue;
    }
    wait(kernel->future, *kernel->answer, fmt::format("kernel '{}'", kernel->name));
    kernel->pipeline = kernel->answer->value;
    kernel->mistake = kernel->answer->message;
  }
  if (!here.empty()) make_pipelines(here);
  for (const auto& kernel : unfinished) api().ShaderModuleRelease(kernel->module);
  unfinished.clear();
}

void Device::State::finish(const Kernel::State& kernel) {
  if (kernel.pipeline) return;
  finish_kernels();
  if (kernel.pipeline) return;
  check();
  fail(ErrorKind::invalid, "[gpu] kernel '{}' does not compile: {}", kernel.name, kernel.mistake);
}

abi::BindGroup Device::State::bind_group(const Kernel::State& kernel, std::span<const BindingView> bindings) {
  bind_key.clear();
  bind_key.push_back(reinterpret_cast<uintptr_t>(kernel.layout));
  for (const BindingView& b : bindings) {
    bind_key.push_back(b.buffer->memory.id);
    bind_key.push_back(b.offset);
    bind_key.push_back(resolved_size(b));  // memory from the pool comes back with other sizes
  }
  if (const auto known = bind_groups.find(bind_key); known != bind_groups.end()) return known->second;

  std::vector<abi::BindGroupEntry> entries(bindings.size());
  for (size_t i = 0; i < bindings.size(); ++i) {
    const BindingView& b = bindings[i];
    entries[i].binding = static_cast<uint32_t>(i);
    if (kernel.accesses[i] == Access::image) {
      entries[i].texture = image_of(*b.buffer).view;
      continue;
    }
    entries[i].buffer = b.buffer->memory.handle;
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
  for (const BindingView& b : bindings) {
    std::vector<BindKey>& keys = bind_keys_of[b.buffer->memory.id];
    if (keys.empty() || keys.back() != bind_key) keys.push_back(bind_key);
  }
  return group;
}

void Device::State::limit_bind_groups() {
  if (bind_groups.size() < kMaxBindGroups) return;
  for (auto& [key, group] : bind_groups) api().BindGroupRelease(group);
  bind_groups.clear();
  bind_keys_of.clear();
  ++bind_group_releases;
}

void Device::State::release_bind_groups(uint64_t id) {
  const auto keys = bind_keys_of.find(id);
  if (keys == bind_keys_of.end()) return;
  ++bind_group_releases;
  for (const BindKey& key : keys->second)
    if (const auto group = bind_groups.find(key); group != bind_groups.end()) {
      api().BindGroupRelease(group->second);
      bind_groups.erase(group);
    }
  bind_keys_of.erase(keys);
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
