#include "gpu/recorder.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "gpu/state.h"

namespace weft::gpu {
namespace {

constexpr uint32_t kQueriesPerSet = 4096;  // the most WebGPU allows

}  // namespace

struct Fence::State {
  std::shared_ptr<Device::State> device;
  abi::Future future{};
  std::shared_ptr<AnswerBase> answer;
  std::string label;
};

struct Readback::State {
  std::shared_ptr<Device::State> device;
  Memory memory;
  std::string label;  // of the buffer it comes from
  uint64_t skip = 0;  // bytes before the first one asked for
  uint64_t bytes = 0;
  abi::Future future{};
  std::shared_ptr<AnswerBase> answer;  // null until submitted
  bool injected = false;
  const std::byte* mapped = nullptr;

  ~State();
  void start_map();
};

struct Recorder::State {
  std::shared_ptr<Device::State> device;
  std::string label;
  uint64_t number = 0;  // of all recorders of the device
  Trace trace = Trace::nothing;
  bool submitted = false;
  abi::CommandEncoder encoder = nullptr;
  abi::ComputePass pass = nullptr;
  abi::ComputePipeline pipeline = nullptr;  // set in the pass
  abi::BindGroup group = nullptr;           // set in the pass
  std::vector<const std::string*> kernels;  // names, in the order of their first use in a row
  std::vector<Buffer> held;                 // not to go back to the pool before the submit
  std::unordered_map<uint64_t, bool>
      images;                       // of buffers written or copied here: whether they are fresh at the end
  std::vector<std::byte> uniforms;  // one slot per dispatch with Params
  std::vector<std::shared_ptr<Readback::State>> readbacks;
  std::vector<std::string> traced;  // kernel of each timed pass
  std::vector<abi::QuerySet> queries;
  std::shared_ptr<Readback::State> times;
  Memory time_memory;

  ~State();
  const abi::Api& api() const { return device->api(); }
  void need_encoder();
  void begin_pass(const Kernel::State& kernel);
  void end_pass();
  void set_params(const Kernel::State& kernel, std::span<const std::byte> params);
  void hold(Buffer::State& buffer);
  void keep_images(const Kernel::State& kernel, std::span<const BindingView> bindings);
  void refresh_image(Buffer::State& buffer);
  void outdate_image(const Buffer::State& buffer);
  std::string kernel_list() const;
  void check_range(std::string_view what, const Buffer& buffer, uint64_t offset, uint64_t bytes) const;
  std::shared_ptr<Readback::State> copy_to_staging(abi::Buffer from, uint64_t capacity,
                                                   const std::string& from_label, uint64_t offset,
                                                   uint64_t bytes);
  void resolve_times();
};

// ---- Fence and Readback
// ----------------------------------------------------------------------------------------

bool Fence::done() const {
  pump(*state_->device->library, state_->device->device);
  return state_->answer->done;
}

void Fence::wait() const {
  state_->device->wait(state_->future, *state_->answer, "work '" + state_->label + "'");
  state_->device->check();
}

Readback::State::~State() {
  if (device->dead()) return;
  // Unmapping a map in flight cancels it. A device that is lost keeps nothing.
  if (answer && !injected) device->api().BufferUnmap(memory.handle);
  if (device->lost())
    device->destroy_memory(memory);
  else
    device->give_staging(memory);
}

void Readback::State::start_map() {
  answer = std::make_shared<AnswerBase>();
  injected = device->options.faults->fires(Fault::map_timeout);
  if (injected) return;
  future = device->api().BufferMapAsync(memory.handle, abi::kMapModeRead, 0, round_up(skip + bytes, 4),
                                        {.next = nullptr,
                                         .mode = abi::kModeProcessEvents,
                                         .callback = answer_map,
                                         .user1 = hand_over(answer),
                                         .user2 = nullptr});
}

bool Readback::done() const {
  pump(*state_->device->library, state_->device->device);
  return state_->answer && state_->answer->done;
}

std::span<const std::byte> Readback::wait() {
  State& s = *state_;
  if (!s.answer) fail(ErrorKind::invalid, "[gpu] readback of buffer '{}' was not submitted", s.label);
  if (!s.mapped) {
    s.device->wait(s.future, *s.answer, "readback of buffer '" + s.label + "'", s.injected);
    s.device->check();
    if (s.answer->status == abi::kSuccess)
      s.mapped = static_cast<const std::byte*>(
          s.device->api().BufferGetConstMappedRange(s.memory.handle, 0, round_up(s.skip + s.bytes, 4)));
    if (!s.mapped)
      fail(ErrorKind::invalid, "[gpu] readback of buffer '{}' failed: {}", s.label, s.answer->message);
  }
  return {s.mapped + s.skip, s.bytes};
}

// ---- Recorder
// --------------------------------------------------------------------------------------------------

Recorder::State::~State() {
  if (device->dead()) return;
  end_pass();
  if (encoder) api().CommandEncoderRelease(encoder);
  for (abi::QuerySet set : queries) api().QuerySetRelease(set);
  if (time_memory.handle) device->destroy_memory(time_memory);
}

void Recorder::State::need_encoder() {
  if (submitted) fail(ErrorKind::invalid, "[gpu] work '{}' was submitted already", label);
  if (encoder) return;
  const abi::LabelDescriptor descriptor{.next = nullptr, .label = view_of(label)};
  encoder = api().DeviceCreateCommandEncoder(device->device, &descriptor);
}

void Recorder::State::begin_pass(const Kernel::State& kernel) {
  need_encoder();
  abi::TimestampWrites writes{};
  abi::TimestampWritesA writes_a{};
  abi::ComputePassDescriptor descriptor{.next = nullptr, .label = view_of(label), .timestamps = nullptr};
  if (trace != Trace::nothing) {
    const auto index = static_cast<uint32_t>(2 * traced.size() % kQueriesPerSet);
    if (index == 0) {
      const abi::QuerySetDescriptor set{
          .next = nullptr, .label = view_of(label), .type = abi::kQueryTimestamp, .count = kQueriesPerSet};
      queries.push_back(api().DeviceCreateQuerySet(device->device, &set));
    }
    writes = {.next = nullptr, .queries = queries.back(), .begin = index, .end = index + 1};
    writes_a = {.queries = queries.back(), .begin = index, .end = index + 1};
    descriptor.timestamps = api().abi == abi::Class::a ? static_cast<const void*>(&writes_a) : &writes;
    descriptor.label = view_of(kernel.name);
    traced.push_back(kernel.name);
  }
  pass = api().CommandEncoderBeginComputePass(encoder, &descriptor);
  pipeline = nullptr;
  group = nullptr;
  ++device->counters.passes;
}

void Recorder::State::end_pass() {
  if (!pass) return;
  api().ComputePassEncoderEnd(pass);
  api().ComputePassEncoderRelease(pass);
  pass = nullptr;
}

void Recorder::State::set_params(const Kernel::State& kernel, std::span<const std::byte> params) {
  if (kernel.params == ParamsPath::immediate)
    return api().ComputePassEncoderSetImmediates(pass, 0, params.data(), params.size());
  const size_t slot = uniforms.size() / kUniformSlot;
  const UniformChunk& chunk = device->uniform_chunk(slot / kUniformChunkSlots);
  const auto offset = static_cast<uint32_t>(slot % kUniformChunkSlots * kUniformSlot);
  uniforms.resize(uniforms.size() + kUniformSlot);
  std::memcpy(uniforms.data() + slot * kUniformSlot, params.data(), params.size());
  api().ComputePassEncoderSetBindGroup(pass, 1, chunk.group, 1, &offset);
}

void Recorder::State::hold(Buffer::State& buffer) {
  if (buffer.held_by == number) return;
  buffer.held_by = number;
  held.emplace_back(buffer.shared_from_this());
}

void Recorder::State::refresh_image(Buffer::State& buffer) {
  const Memory& memory = buffer.memory;
  const Image& image = device->image_of(buffer);
  const auto known = images.find(memory.id);
  if (known == images.end() ? image.is_fresh : known->second) return;
  end_pass();
  need_encoder();
  // Whole rows, and the rest of the last one.
  const auto rows = static_cast<uint32_t>(image.bytes / kImageRow);
  const auto copy = [&](uint32_t row, uint32_t width, uint32_t height) {
    if (width == 0 || height == 0) return;
    const abi::TexelCopyBuffer from{.offset = row * kImageRow,
                                    .bytes_per_row = kImageRow,
                                    .rows_per_layer = height,
                                    .buffer = memory.handle};
    const abi::TexelCopyTexture to{.texture = image.texture,
                                   .mip_level = 0,
                                   .x = 0,
                                   .y = row,
                                   .z = 0,
                                   .aspect = abi::kTextureAllAspects};
    const abi::Extent size{.width = width, .height = height, .layers = 1};
    api().CommandEncoderCopyBufferToTexture(encoder, &from, &to, &size);
  };
  copy(0, kImageWidth, rows);
  copy(rows, static_cast<uint32_t>(image.bytes % kImageRow / 16), 1);
  images[memory.id] = true;
}

void Recorder::State::outdate_image(const Buffer::State& buffer) {
  const uint64_t id = buffer.memory.id;
  if (device->images.contains(id)) images[id] = false;
}

void Recorder::State::keep_images(const Kernel::State& kernel, std::span<const BindingView> bindings) {
  for (size_t i = 0; i < bindings.size(); ++i)
    if (kernel.accesses[i] == Access::image) refresh_image(*bindings[i].buffer);
  for (size_t i = 0; i < bindings.size(); ++i)
    if (kernel.accesses[i] == Access::write) outdate_image(*bindings[i].buffer);
}

std::string Recorder::State::kernel_list() const {
  constexpr size_t kNamed = 8;
  std::vector<std::string> names;
  for (const std::string* name : kernels)
    if (std::ranges::find(names, *name) == names.end() && names.size() <= kNamed) names.push_back(*name);
  if (names.size() > kNamed) names.back() = "...";
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

Recorder::Recorder(const Device& device, std::string_view label, Trace trace)
    : state_(std::make_unique<State>()) {
  state_->device = device.state();
  state_->label = label;
  state_->number = ++state_->device->recorders;
  state_->trace = trace;
  state_->device->check();
  if (trace != Trace::nothing && !device.features().timestamps)
    fail(ErrorKind::unsupported, "[gpu] '{}' has no timestamps, so nothing can be traced on it",
         device.name());
}

Recorder::~Recorder() = default;
Recorder::Recorder(Recorder&&) noexcept = default;

void Recorder::dispatch(const Kernel& kernel, std::span<const Binding> bindings, Grid grid,
                        std::span<const std::byte> params) {
  std::vector<BindingView> views;
  for (const Binding& b : bindings) views.push_back(b.view());
  Series series(state_->device);
  series.add(kernel, views, grid, params);
  dispatch(series, 0, series.size());
}

void Recorder::dispatch(const Series& series, size_t first, size_t count) {
  State& s = *state_;
  const Series::State& given = series.state();
  if (given.device != s.device || !series.is_bound())
    fail(ErrorKind::invalid, "[gpu] work '{}' is given dispatches that are not bound to its device", s.label);
  const abi::Api& api = s.api();
  const auto bindings_of = [&](size_t i) {
    const size_t begin = given.dispatches[i].first, end = i + 1 < given.dispatches.size()
                                                              ? given.dispatches[i + 1].first
                                                              : given.bindings.size();
    return std::span(given.bindings).subspan(begin, end - begin);
  };
  for (size_t i = first; i < first + count; ++i) {
    const Series::State::Dispatch& d = given.dispatches[i];
    const Kernel::State& k = *d.kernel;
    if (!s.device->images.empty()) s.keep_images(k, bindings_of(i));
    if (!s.pass) s.begin_pass(k);
    if (s.pipeline != k.pipeline) {
      api.ComputePassEncoderSetPipeline(s.pass, s.pipeline = k.pipeline);
      s.kernels.push_back(&k.name);
    }
    if (s.group != d.group) api.ComputePassEncoderSetBindGroup(s.pass, 0, s.group = d.group, 0, nullptr);
    if (k.params != ParamsPath::none) s.set_params(k, d.params);
    api.ComputePassEncoderDispatchWorkgroups(s.pass, d.grid.x, d.grid.y, d.grid.z);
    ++s.device->counters.dispatches;
    for (const BindingView& b : bindings_of(i)) s.hold(*b.buffer);
    if (s.trace == Trace::dispatches) s.end_pass();
  }
}

void Recorder::State::check_range(std::string_view what, const Buffer& buffer, uint64_t offset,
                                  uint64_t bytes) const {
  if (!buffer || buffer.state()->device != device)
    fail(ErrorKind::invalid, "[gpu] {} of a buffer of another device", what);
  if (offset > buffer.size() || bytes > buffer.size() - offset)
    fail(ErrorKind::invalid, "[gpu] {} of {} bytes at {} passes the end of buffer '{}' ({} bytes)", what,
         bytes, offset, buffer.label(), buffer.size());
}

void Recorder::copy(const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset,
                    uint64_t bytes) {
  State& s = *state_;
  s.check_range("copy", from, from_offset, bytes);
  s.check_range("copy", to, to_offset, bytes);
  const bool to_the_ends = from_offset + bytes == from.size() && to_offset + bytes == to.size();
  if (from_offset % 4 || to_offset % 4 || (bytes % 4 && !to_the_ends))
    fail(ErrorKind::invalid,
         "[gpu] copy of {} bytes from {} to {} ('{}' to '{}'): WebGPU copies whole words of 4 bytes", bytes,
         from_offset, to_offset, from.label(), to.label());
  if (from.state() == to.state())
    fail(ErrorKind::invalid, "[gpu] copy inside buffer '{}': source and target must differ", from.label());
  if (bytes == 0) return;
  s.end_pass();
  s.need_encoder();
  s.api().CommandEncoderCopyBufferToBuffer(s.encoder, from.state()->memory.handle, from_offset,
                                           to.state()->memory.handle, to_offset, round_up(bytes, 4));
  s.outdate_image(*to.state());
  s.hold(*from.state());
  s.hold(*to.state());
}

void Recorder::clear(const Buffer& buffer, uint64_t offset, uint64_t bytes) {
  State& s = *state_;
  s.check_range("clear", buffer, offset, bytes);
  if (offset % 4 || bytes % 4)
    fail(ErrorKind::invalid,
         "[gpu] clear of {} bytes at {} of buffer '{}': WebGPU clears whole words of 4 bytes", bytes, offset,
         buffer.label());
  if (bytes == 0) return;
  s.end_pass();
  s.need_encoder();
  s.api().CommandEncoderClearBuffer(s.encoder, buffer.state()->memory.handle, offset, bytes);
  s.outdate_image(*buffer.state());
  s.hold(*buffer.state());
}

std::shared_ptr<Readback::State> Recorder::State::copy_to_staging(abi::Buffer from, uint64_t capacity,
                                                                  const std::string& from_label,
                                                                  uint64_t offset, uint64_t bytes) {
  end_pass();
  need_encoder();
  const uint64_t begin = offset / 4 * 4, end = std::min(round_up(offset + bytes, 4), capacity);
  const Memory memory = device->take_staging(end - begin);  // throws; what it gave belongs to a Readback
  auto readback = std::make_shared<Readback::State>();
  readback->memory = memory;
  readback->device = device;
  readback->label = from_label;
  readback->skip = offset - begin;
  readback->bytes = bytes;
  api().CommandEncoderCopyBufferToBuffer(encoder, from, begin, readback->memory.handle, 0, end - begin);
  readbacks.push_back(readback);
  return readback;
}

Readback Recorder::read(const Buffer& buffer, uint64_t offset, uint64_t bytes) {
  State& s = *state_;
  s.check_range("read", buffer, offset, bytes);
  if (bytes == 0) fail(ErrorKind::invalid, "[gpu] read of no bytes of buffer '{}'", buffer.label());
  s.hold(*buffer.state());
  return Readback(s.copy_to_staging(buffer.state()->memory.handle, buffer.state()->memory.capacity,
                                    buffer.label(), offset, bytes));
}

void Recorder::State::resolve_times() {
  const uint64_t count = 2 * traced.size();
  time_memory = device->create_memory(count * sizeof(uint64_t), abi::kUsageQueryResolve | abi::kUsageCopySrc,
                                      "timestamps", false);
  for (size_t i = 0; i < queries.size(); ++i) {
    const uint64_t first = i * kQueriesPerSet;
    const auto in_set = static_cast<uint32_t>(std::min<uint64_t>(count - first, kQueriesPerSet));
    api().CommandEncoderResolveQuerySet(encoder, queries[i], 0, in_set, time_memory.handle,
                                        first * sizeof(uint64_t));
  }
  times =
      copy_to_staging(time_memory.handle, time_memory.capacity, "timestamps", 0, count * sizeof(uint64_t));
}

bool Recorder::empty() const {
  return !state_->encoder;
}

Fence Recorder::submit() {
  State& s = *state_;
  Device::State& d = *s.device;
  const abi::Api& api = s.api();
  s.need_encoder();
  s.end_pass();
  if (!s.traced.empty()) s.resolve_times();
  const abi::LabelDescriptor descriptor{.next = nullptr, .label = view_of(s.label)};
  const abi::CommandBuffer commands = api.CommandEncoderFinish(s.encoder, &descriptor);
  api.CommandEncoderRelease(s.encoder);
  s.encoder = nullptr;
  s.submitted = true;

  if (d.options.faults->fires(Fault::device_lost)) {
    d.set_lost("it was destroyed (injected)");
    api.DeviceDestroy(d.device);
  }
  try {
    // wgpu-native aborts the process when it is given invalid commands or a lost device, so nothing is
    // submitted before everything it has to say is known. Its callbacks run inside the calls and inside this
    // pump.
    pump(*d.library, d.device);
    d.check();
  } catch (const Error& e) {
    if (commands) api.CommandBufferRelease(commands);
    if (e.kind() == ErrorKind::lost) throw;
    fail(e.kind(), "[gpu] work '{}' (kernels: {}): {}", s.label, s.kernel_list(), e.what());
  }
  for (size_t done = 0, chunk = 0; done < s.uniforms.size(); ++chunk) {
    const size_t bytes = std::min<size_t>(s.uniforms.size() - done, kUniformSlot * kUniformChunkSlots);
    api.QueueWriteBuffer(d.queue, d.uniforms[chunk].memory.handle, 0, s.uniforms.data() + done, bytes);
    done += bytes;
  }
  api.QueueSubmit(d.queue, 1, &commands);
  api.CommandBufferRelease(commands);
  ++d.counters.submits;
  for (const auto& [id, is_fresh] : s.images)
    if (const auto image = d.images.find(id); image != d.images.end()) image->second.is_fresh = is_fresh;
  s.held.clear();
  for (auto& readback : s.readbacks) readback->start_map();
  s.readbacks.clear();

  auto fence = std::make_shared<Fence::State>();
  fence->device = s.device;
  fence->label = s.label;
  std::tie(fence->future, fence->answer) = d.work_done();
  return Fence(std::move(fence));
}

std::vector<Timing> Recorder::timings() {
  State& s = *state_;
  if (!s.times) return {};
  const std::span<const std::byte> bytes = Readback(s.times).wait();
  const double period = s.api().QueueGetTimestampPeriod ? s.api().QueueGetTimestampPeriod(s.device->queue)
                                                        : 1.0;  // ns per tick
  std::vector<Timing> timings;
  for (size_t i = 0; i < s.traced.size(); ++i) {
    uint64_t ticks[2];
    std::memcpy(ticks, bytes.data() + i * sizeof ticks, sizeof ticks);
    timings.push_back({s.traced[i], static_cast<double>(ticks[1] - ticks[0]) * period / 1000});
  }
  return timings;
}

}  // namespace weft::gpu
