#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gpu/adapter.h"
#include "gpu/buffer.h"
#include "gpu/fault.h"
#include "gpu/kernel.h"
#include "gpu/report.h"

namespace weft::gpu {

class Recorder;

struct DeviceOptions {
  /// Of every wait: a driver that says nothing for longer is given up. Where not set: half a minute, or five
  /// minutes on software adapters, which compile a kernel when it first runs.
  std::optional<std::chrono::milliseconds> deadline;
  std::shared_ptr<FaultPlan> faults = FaultPlan::from_environment();
};

/// What a device did so far. Tests assert on these instead of on the clock.
struct Counters {
  uint64_t submits = 0, dispatches = 0, passes = 0;
  uint64_t pipelines = 0, bind_groups = 0, buffers = 0;  ///< created
  uint64_t bytes_active = 0, bytes_peak = 0;             ///< in handles
  uint64_t bytes_cached = 0;                             ///< in the pool, for reuse
};

/// An opened GPU. Copies are handles on the same device. A device and everything made from it belong to one
/// thread at a time.
///
/// Errors: a mistake in a call is thrown by that call, with the label of the kernel or buffer. What the
/// driver reports later is kept and thrown by the next call. After ErrorKind::lost or ErrorKind::timeout only
/// a new device helps; the process, the library and its other devices go on.
class Device {
 public:
  /// `features`: those to enable, as probing proved them (truth.h).
  static Device create(const Adapter& adapter, const Features& features, const DeviceOptions& options = {});

  const std::string& name() const;
  /// Adapter, driver and library: what a measured time depends on.
  const std::string& stack() const;
  AdapterType type() const;
  const Limits& limits() const;
  const Features& features() const;
  Counters counters() const;

  /// Memory from the pool; its contents are undefined. Throws ErrorKind::memory.
  Buffer alloc(uint64_t bytes, std::string_view label);

  /// A buffer filled by `fill` through a mapping, for weights: no copy in between where the driver can.
  Buffer upload(uint64_t bytes, std::string_view label,
                const std::function<void(std::span<std::byte>)>& fill);

  /// Read-only bytes that the device keeps until its end, for tables of kernels. The first call of a name
  /// fills them.
  Buffer table(const std::string& name, std::span<const std::byte> bytes);

  /// Ordered with submits: work submitted earlier sees the old bytes, later work the new ones.
  void write(const Buffer& buffer, uint64_t offset, std::span<const std::byte> bytes);

  /// Waits for all work submitted so far.
  void read(const Buffer& buffer, uint64_t offset, std::span<std::byte> bytes);

  /// Compiles, or finds the same kernel in the cache.
  Kernel kernel(const KernelSource& source);

  /// The same, but does not wait for the pipeline: the first dispatch does, and throws what is wrong with it.
  /// Those of several kernels are made in parallel.
  Kernel kernel_later(const KernelSource& source);

  /// Waits until everything submitted is done.
  void synchronize();

  /// Gives cached memory back to the driver.
  void trim();

  /// Throws what the driver reported since the last call.
  void check();

  /// Destroys the device under whatever is in flight, as a driver reset would.
  void destroy();

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  explicit Device(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace weft::gpu
