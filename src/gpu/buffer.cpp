#include "gpu/buffer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gpu/state.h"

namespace weft::gpu {
namespace {

constexpr uint64_t kStorageUsage = abi::kUsageStorage | abi::kUsageCopySrc | abi::kUsageCopyDst;
constexpr uint64_t kMinPoolCache = 64 << 20;

/// Eight sizes per power of two: at most 12.5 % is lost, and buffers of similar arrays are exchangeable.
uint64_t bucket(uint64_t bytes) {
  if (bytes <= 256) return 256;
  return round_up(bytes, std::bit_floor(bytes) / 8);
}

}  // namespace

uint64_t Buffer::size() const {
  return state_->size;
}
uint64_t Buffer::memory() const {
  return state_->memory.id;
}
const std::string& Buffer::label() const {
  return state_->label;
}

Buffer::State::~State() {
  if (!device || fate == Fate::kept) return;  // creation failed, or a table
  Device::State& d = *device;
  d.counters.bytes_active -= memory.capacity;
  d.destroy_image(memory.id);
  if (fate == Fate::pooled && !d.lost())
    d.give_pool(memory);
  else
    d.destroy_memory(memory);
}

void Device::State::give_pool(Memory memory) {
  const uint64_t limit = std::max(kMinPoolCache, counters.bytes_peak);
  while (!pool.empty() && counters.bytes_cached + memory.capacity > limit) {
    const auto oldest =
        std::ranges::min_element(pool, {}, [](const auto& entry) { return entry.second.last_use; });
    counters.bytes_cached -= oldest->first;
    destroy_memory(oldest->second);
    pool.erase(oldest);
  }
  memory.last_use = ++pool_clock;
  // Last in, first out: a loop then meets the same buffers in the same places, and their bind groups.
  pool.emplace_hint(pool.lower_bound(memory.capacity), memory.capacity, memory);
  counters.bytes_cached += memory.capacity;
}

void Device::State::check_size(uint64_t bytes, std::string_view label) const {
  if (bytes > limits.max_buffer_size)
    fail(ErrorKind::memory, "[gpu] buffer '{}' of {} bytes is larger than the {} bytes that '{}' allows",
         label, bytes, limits.max_buffer_size, name);
}

Memory Device::State::create_memory(uint64_t capacity, uint64_t usage, const std::string& label,
                                    bool mapped) {
  check();
  check_size(capacity, label);
  if (options.faults->fires(Fault::oom))
    fail(ErrorKind::memory, "[gpu] no memory for buffer '{}' of {} bytes on '{}' (injected)", label, capacity,
         name);
  const abi::BufferDescriptor descriptor{.next = nullptr,
                                         .label = view_of(label),
                                         .usage = usage,
                                         .size = capacity,
                                         .mapped_at_creation = mapped};
  ErrorScope validation(*this, abi::kFilterValidation);
  ErrorScope memory_scope(*this, abi::kFilterMemory);
  Memory memory{.handle = api().DeviceCreateBuffer(device, &descriptor),
                .id = next_id++,
                .capacity = capacity,
                .mapped = nullptr};
  std::optional<std::string> no_memory = memory_scope.pop(), mistake = validation.pop();
  if (memory.handle && mapped && !no_memory && !mistake) {
    memory.mapped = static_cast<std::byte*>(api().BufferGetMappedRange(memory.handle, 0, capacity));
    if (!memory.mapped) no_memory = "the driver could not map it";
  }
  if (!memory.handle || no_memory || mistake) {
    if (memory.handle) api().BufferRelease(memory.handle);
    check();
    // wgpu-native reports exhausted memory as a mistake of the caller.
    if (mistake && mistake->find("Not enough memory") != std::string::npos) no_memory.swap(mistake);
    if (mistake)
      fail(ErrorKind::invalid, "[gpu] buffer '{}' of {} bytes on '{}': {}", label, capacity, name, *mistake);
    fail(ErrorKind::memory, "[gpu] no memory for buffer '{}' of {} bytes on '{}': {}", label, capacity, name,
         no_memory.value_or("the library returned none"));
  }
  ++counters.buffers;
  return memory;
}

void Device::State::destroy_memory(Memory memory) {
  if (dead()) return;
  release_bind_groups(memory.id);
  api().BufferDestroy(memory.handle);
  api().BufferRelease(memory.handle);
}

Buffer Device::alloc(uint64_t bytes, std::string_view label) {
  State& d = *state_;
  d.check_size(bytes, label);
  const uint64_t capacity =
      std::max(std::min(bucket(bytes), d.limits.max_buffer_size / 4 * 4), round_up(bytes, 4));
  auto buffer = std::make_shared<Buffer::State>();
  buffer->size = bytes;
  buffer->label = label;
  if (const auto free = d.pool.find(capacity); free != d.pool.end()) {
    d.check();
    buffer->memory = free->second;
    d.pool.erase(free);
    d.counters.bytes_cached -= capacity;
  } else {
    try {
      buffer->memory = d.create_memory(capacity, kStorageUsage, buffer->label, false);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::memory || d.pool.empty()) throw;
      trim();  // the cache may hold what is missing
      buffer->memory = d.create_memory(capacity, kStorageUsage, buffer->label, false);
    }
  }
  buffer->device = state_;
  d.counters.bytes_active += capacity;
  d.counters.bytes_peak = std::max(d.counters.bytes_peak, d.counters.bytes_active);
  return Buffer(std::move(buffer));
}

Buffer Device::upload(uint64_t bytes, std::string_view label,
                      const std::function<void(std::span<std::byte>)>& fill) {
  State& d = *state_;
  d.check_size(bytes, label);
  auto buffer = std::make_shared<Buffer::State>();
  buffer->size = bytes;
  buffer->label = label;
  buffer->fate = Buffer::State::Fate::destroyed;  // weights live long and have sizes of their own
  buffer->memory =
      d.create_memory(std::max<uint64_t>(round_up(bytes, 4), 4), kStorageUsage, buffer->label, true);
  buffer->device = state_;
  d.counters.bytes_active += buffer->memory.capacity;
  d.counters.bytes_peak = std::max(d.counters.bytes_peak, d.counters.bytes_active);
  fill(std::span(buffer->memory.mapped, bytes));
  d.api().BufferUnmap(buffer->memory.handle);
  buffer->memory.mapped = nullptr;
  return Buffer(std::move(buffer));
}

Buffer Device::table(const std::string& name, std::span<const std::byte> bytes) {
  State& d = *state_;
  const auto [known, is_new] = d.tables.try_emplace(name);
  auto buffer = std::make_shared<Buffer::State>();
  buffer->fate = Buffer::State::Fate::kept;
  buffer->size = bytes.size();
  buffer->label = name;
  buffer->device = state_;
  if (is_new) {
    try {
      buffer->memory = known->second = d.create_memory(round_up(bytes.size(), 4), kStorageUsage, name, false);
      write(Buffer(buffer), 0, bytes);
    } catch (...) {
      if (known->second.handle) d.destroy_memory(known->second);
      d.tables.erase(known);
      throw;
    }
  }
  buffer->memory = known->second;
  return Buffer(std::move(buffer));
}

void Device::write(const Buffer& buffer, uint64_t offset, std::span<const std::byte> bytes) {
  State& d = *state_;
  d.check();
  if (!buffer || buffer.state()->device != state_)
    fail(ErrorKind::invalid, "[gpu] write to a buffer of another device");
  const uint64_t size = buffer.size();
  if (offset > size || bytes.size() > size - offset)
    fail(ErrorKind::invalid, "[gpu] write of {} bytes at {} passes the end of buffer '{}' ({} bytes)",
         bytes.size(), offset, buffer.label(), size);
  if (offset % 4 != 0 || (bytes.size() % 4 != 0 && offset + bytes.size() != size))
    fail(ErrorKind::invalid,
         "[gpu] write of {} bytes at {} to buffer '{}': WebGPU writes whole words of 4 bytes", bytes.size(),
         offset, buffer.label());
  const size_t whole = bytes.size() / 4 * 4;
  const abi::Buffer handle = buffer.state()->memory.handle;
  d.outdate_image(buffer.state()->memory.id);
  if (whole) d.api().QueueWriteBuffer(d.queue, handle, offset, bytes.data(), whole);
  if (whole < bytes.size()) {  // the buffer's last word is its own
    std::byte last[4] = {};
    std::memcpy(last, bytes.data() + whole, bytes.size() - whole);
    d.api().QueueWriteBuffer(d.queue, handle, offset + whole, last, sizeof last);
  }
}

void Device::trim() {
  for (auto& [capacity, memory] : state_->pool) state_->destroy_memory(memory);
  state_->pool.clear();
  for (Memory& memory : state_->staging) state_->destroy_memory(memory);
  state_->staging.clear();
  state_->counters.bytes_cached = 0;
}

Memory Device::State::take_staging(uint64_t bytes) {
  constexpr size_t kKept = 8;  // readbacks in flight at once, in practice 3 (decode) or 1
  const auto fits = std::ranges::find_if(staging, [&](const Memory& m) { return m.capacity >= bytes; });
  if (fits != staging.end()) {
    const Memory memory = *fits;
    staging.erase(fits);
    return memory;
  }
  if (staging.size() >= kKept) {
    destroy_memory(staging.front());
    staging.erase(staging.begin());
  }
  return create_memory(std::max(bucket(bytes), bytes), abi::kUsageMapRead | abi::kUsageCopyDst, "readback",
                       false);
}

void Device::State::give_staging(Memory memory) {
  staging.push_back(memory);
}

}  // namespace weft::gpu
