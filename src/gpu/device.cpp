#include "gpu/device.h"

#include <algorithm>

#include "base/log.h"
#include "gpu/recorder.h"
#include "gpu/state.h"

namespace weft::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

std::string kind_name(uint32_t type) {
  switch (type) {
    case abi::kErrorValidation:
      return "validation error";
    case abi::kErrorMemory:
      return "out of memory";
    case abi::kErrorInternal:
      return "internal error";
    default:
      return "error";
  }
}

void on_error(const abi::Device*, uint32_t type, abi::StringView message, void* user, void*) {
  auto& errors = *static_cast<DeviceErrors*>(user);
  const std::lock_guard lock(errors.mutex);
  if (errors.pending) return;
  const ErrorKind kind = type == abi::kErrorMemory ? ErrorKind::memory : ErrorKind::invalid;
  errors.pending = Error(kind, fmt::format("[gpu] {}: {}", kind_name(type), text_of(message)));
}

void on_lost(const abi::Device*, uint32_t reason, abi::StringView message, void* user, void*) {
  if (reason == abi::kLostInstanceDropped) return;
  auto& errors = *static_cast<DeviceErrors*>(user);
  const std::lock_guard lock(errors.mutex);
  const std::string why = text_of(message);
  if (!errors.lost) errors.lost = reason == abi::kLostDestroyed && why.empty() ? "it was destroyed" : why;
}

std::vector<uint32_t> feature_numbers(const abi::AbiTraits& abi, const Features& features) {
  std::vector<uint32_t> numbers;
  if (features.f16) numbers.push_back(abi.feature_f16());
  if (features.subgroups) numbers.push_back(abi.feature_subgroups());
  if (features.timestamps) numbers.push_back(abi.feature_timestamps());
  if (features.immediates && abi.is_wgpu()) numbers.push_back(abi::kFeatureWgpuImmediates);
  if (features.matrix_feature && !features.matrices.empty()) numbers.push_back(features.matrix_feature);
  return numbers;
}

}  // namespace

Device Device::create(const Adapter& adapter, const Features& features, const DeviceOptions& options) {
  auto state = std::make_shared<State>();
  state->library = adapter.library().state();
  state->name = adapter.info().name;
  state->stack = fmt::format("{}, {}, {} {}", state->name, adapter.info().driver,
                             adapter.library().implementation(), adapter.library().version());
  state->type = adapter.info().type;
  state->limits = adapter.info().limits;
  state->features = features;
  state->deadline = options.deadline.value_or(state->type == AdapterType::cpu ? 300s : 30s);
  state->options = options;
  state->library->kept.push_back(state->errors);

  // Kernels check their own bounds; clamping every index once more is work in their innermost loops.
  const char* const enabled[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia",
                                 "use_vulkan_memory_model", "disable_robustness", "disable_workgroup_init"};
  const char* const disabled[] = {"timestamp_quantization"};
  abi::DawnToggles toggles{};
  toggles.chain.type = abi::kSTypeDawnToggles;
  toggles.enabled_count = std::size(enabled);
  toggles.enabled = enabled;
  toggles.disabled_count = std::size(disabled);
  toggles.disabled = disabled;

  const abi::Api& api = state->api();
  const std::vector<uint32_t> numbers = feature_numbers(api, state->features);
  abi::DeviceDescriptor descriptor{};
  if (api.implementation == abi::Implementation::dawn) descriptor.next = &toggles.chain;
  descriptor.label = view_of(state->name);
  descriptor.feature_count = numbers.size();
  descriptor.features = numbers.data();
  descriptor.limits = &adapter.raw_limits();
  descriptor.lost = {.next = nullptr,
                     .mode = abi::kModeSpontaneous,
                     .callback = on_lost,
                     .user1 = state->errors.get(),
                     .user2 = nullptr};
  descriptor.error = {.next = nullptr, .callback = on_error, .user1 = state->errors.get(), .user2 = nullptr};

  const std::shared_ptr<abi::AdapterImpl> handle = adapter.handle_for_device();
  auto answer = std::make_shared<Answer<abi::Device>>();
  const abi::Future future = api.AdapterRequestDevice(handle.get(), &descriptor,
                                                      {.next = nullptr,
                                                       .mode = abi::kModeProcessEvents,
                                                       .callback = answer_with_handle<abi::Device>,
                                                       .user1 = hand_over(answer),
                                                       .user2 = nullptr});
  if (!wait_for(*state->library, nullptr, future, *answer, state->deadline))
    fail(ErrorKind::timeout, "[gpu] {} did not open within {:g} s", state->name,
         std::chrono::duration<double>(state->deadline).count());
  if (answer->status != abi::kSuccess || !answer->value)
    fail(ErrorKind::unsupported, "[gpu] {} cannot be opened: {}", state->name, answer->message);
  state->device = answer->value;
  state->queue = api.DeviceGetQueue(state->device);
  return Device(std::move(state));
}

Device::State::~State() {
  const abi::Api& f = api();
  // A call into a driver that hangs may never return: its handles are left behind.
  if (dead()) return;
  for (auto& [key, group] : bind_groups) f.BindGroupRelease(group);
  bind_groups.clear();
  bind_keys_of.clear();
  for (UniformChunk& chunk : uniforms) {
    f.BindGroupRelease(chunk.group);
    destroy_memory(chunk.memory);
  }
  for (auto& [capacity, memory] : pool) destroy_memory(memory);
  for (Memory& memory : staging) destroy_memory(memory);
  for (auto& [table, memory] : tables) destroy_memory(memory);
  try {
    if (!lost()) finish_kernels();  // what the library has begun would come back to nobody
  } catch (const Error& e) {
    log(LogLevel::debug, "{}", e.what());
  }
  for (const auto& kernel : unfinished) f.ShaderModuleRelease(kernel->module);
  for (auto& [key, kernel] : kernels)
    if (kernel->pipeline) f.ComputePipelineRelease(kernel->pipeline);
  for (auto& [key, layout] : layouts) {
    f.PipelineLayoutRelease(layout.pipeline);
    f.BindGroupLayoutRelease(layout.group);
  }
  if (uniform_layout) f.BindGroupLayoutRelease(uniform_layout);
  if (queue) f.QueueRelease(queue);
  if (device) f.DeviceRelease(device);
}

void Device::State::check() {
  std::optional<Error> pending;
  {
    const std::lock_guard lock(errors->mutex);
    if (!errors->lost) pending.swap(errors->pending);
  }
  if (pending) throw *pending;
  if (lost()) throw_lost();
}

bool Device::State::lost() const {
  const std::lock_guard lock(errors->mutex);
  return errors->lost.has_value();
}

void Device::State::set_lost(const std::string& why) {
  const std::lock_guard lock(errors->mutex);
  if (!errors->lost) errors->lost = why;
}

void Device::State::throw_lost() {
  const std::lock_guard lock(errors->mutex);
  fail(ErrorKind::lost, "[gpu] device '{}' is lost: {}", name, errors->lost.value_or("no reason given"));
}

void Device::State::wait(abi::Future future, const AnswerBase& answer, std::string_view what, bool injected) {
  const Clock::time_point end = Clock::now() + deadline;
  std::optional<Awake::While> awake_meanwhile;  // a software adapter wakes its threads for each dispatch
  if (type == AdapterType::cpu) awake_meanwhile.emplace(awake);
  while (!answer.done) {
    if (lost()) throw_lost();  // its callbacks may never come
    const Clock::time_point now = Clock::now();
    if (now >= end) {
      const double seconds = std::chrono::duration<double>(deadline).count();
      hung = !injected;
      set_lost(fmt::format("{} did not complete within {:g} s", what, seconds));
      fail(ErrorKind::timeout, "[gpu] {} on '{}' did not complete within {:g} s", what, name, seconds);
    }
    wait_for(*library, device, future, answer, std::min<std::chrono::nanoseconds>(end - now, 50ms));
  }
}

std::pair<abi::Future, std::shared_ptr<AnswerBase>> Device::State::work_done() {
  auto answer = std::make_shared<AnswerBase>();
  const auto callback = api().abi == abi::Class::a
                            ? reinterpret_cast<abi::WorkDoneCallback>(answer_work_done_a)
                            : reinterpret_cast<abi::WorkDoneCallback>(answer_work_done);
  const abi::Future future = api().QueueOnSubmittedWorkDone(queue, {.next = nullptr,
                                                                    .mode = abi::kModeProcessEvents,
                                                                    .callback = callback,
                                                                    .user1 = hand_over(answer),
                                                                    .user2 = nullptr});
  return {future, std::move(answer)};
}

ErrorScope::ErrorScope(Device::State& device, uint32_t filter) : device_(device) {
  device_.api().DevicePushErrorScope(device_.device, filter);
}

ErrorScope::~ErrorScope() {
  if (!open_) return;
  try {
    pop();
  } catch (const Error& e) {
    log(LogLevel::debug, "{}", e.what());
  }
}

std::optional<std::string> ErrorScope::pop() {
  open_ = false;
  auto answer = std::make_shared<Answer<uint32_t>>();
  const abi::Future future =
      device_.api().DevicePopErrorScope(device_.device, {.next = nullptr,
                                                         .mode = abi::kModeProcessEvents,
                                                         .callback = answer_scope,
                                                         .user1 = hand_over(answer),
                                                         .user2 = nullptr});
  device_.wait(future, *answer, "an error scope");
  if (answer->status != abi::kSuccess || answer->value == abi::kErrorNone) return std::nullopt;
  return answer->message;
}

const std::string& Device::name() const {
  return state_->name;
}
const std::string& Device::stack() const {
  return state_->stack;
}
AdapterType Device::type() const {
  return state_->type;
}
const Limits& Device::limits() const {
  return state_->limits;
}
const Features& Device::features() const {
  return state_->features;
}
Counters Device::counters() const {
  return state_->counters;
}

void Device::check() {
  pump(*state_->library, state_->device);
  state_->check();
}

void Device::synchronize() {
  check();
  const auto [future, answer] = state_->work_done();
  state_->wait(future, *answer, "the submitted work");
  state_->check();
}

void Device::destroy() {
  state_->set_lost("it was destroyed");
  state_->api().DeviceDestroy(state_->device);
}

void Device::read(const Buffer& buffer, uint64_t offset, std::span<std::byte> bytes) {
  if (!buffer || buffer.state()->device != state_)
    fail(ErrorKind::invalid, "[gpu] read of a buffer of another device");
  if (offset > buffer.size() || bytes.size() > buffer.size() - offset)
    fail(ErrorKind::invalid, "[gpu] read of {} bytes at {} passes the end of buffer '{}' ({} bytes)",
         bytes.size(), offset, buffer.label(), buffer.size());
  check();
  if (bytes.empty()) return;
  Recorder recorder(*this, "read " + buffer.label());
  Readback readback = recorder.read(buffer, offset, bytes.size());
  recorder.submit();
  std::ranges::copy(readback.wait(), bytes.begin());
}

}  // namespace weft::gpu
