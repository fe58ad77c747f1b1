#include "backend/webgpu/webgpu_backend.h"

#include <algorithm>

#include "backend/webgpu/matmul.h"
#include "backend/webgpu/qmatmul.h"
#include "backend/webgpu/small.h"
#include "backend/webgpu/tape.h"
#include "base/env.h"
#include "base/error.h"

namespace weft {
namespace {

const gpu::Buffer& own(const StoragePtr& storage, std::string_view what) {
  const Storage* given = storage.get();
  if (!given || typeid(*given) != typeid(WebgpuStorage))
    fail(ErrorKind::invalid, "[webgpu] {} of storage that is not a GPU's", what);
  return static_cast<const WebgpuStorage*>(given)->buffer();
}

std::vector<const gpu::Buffer*> buffers_of(std::span<const StoragePtr> storages) {
  std::vector<const gpu::Buffer*> buffers;
  buffers.reserve(storages.size());
  for (const StoragePtr& storage : storages) buffers.push_back(&own(storage, "run"));
  return buffers;
}

// Dispatches of a run: the GPU begins with these while more are recorded.
constexpr size_t kMostAtOnce = 128;

class GpuRead : public PendingRead {
 public:
  explicit GpuRead(gpu::Readback readback) : readback_(std::move(readback)) {}
  std::span<const std::byte> wait() override { return readback_.wait(); }

 private:
  gpu::Readback readback_;
};

}  // namespace

WebgpuBackend::WebgpuBackend(gpu::Device device)
    : device_(std::move(device)),
      software_(device_.type() == gpu::AdapterType::cpu),
      tunes_(!software_ && env::get("WEFT_TUNE") != "off") {
  if (tunes_) tuning_ = webgpu::Tuning::kept_for(device_);
}

StoragePtr WebgpuBackend::alloc(uint64_t bytes, std::string_view label) {
  return std::make_shared<WebgpuStorage>(device_.alloc(bytes, label));
}

void WebgpuBackend::as_one(const std::function<void()>& work) {
  if (recorder_) return work();
  recorder_.emplace(device_, "steps");
  try {
    work();
    submit();
  } catch (...) {
    recorder_.reset();
    throw;
  }
  recorder_.reset();
}

void WebgpuBackend::submit() {
  if (!recorder_ || recorder_->empty()) return;
  recorder_->submit();
  recorder_.emplace(device_, "steps");
}

void WebgpuBackend::write(const StoragePtr& to, uint64_t offset, std::span<const std::byte> bytes) {
  submit();  // the queue writes before it begins with what is submitted later
  device_.write(own(to, "write"), offset, bytes);
}

void WebgpuBackend::read(const StoragePtr& from, uint64_t offset, std::span<std::byte> bytes) {
  submit();
  device_.read(own(from, "read"), offset, bytes);
}

std::unique_ptr<PendingRead> WebgpuBackend::read_later(const StoragePtr& from, uint64_t offset,
                                                       uint64_t bytes) {
  std::unique_ptr<PendingRead> pending;
  as_one([&] { pending = std::make_unique<GpuRead>(recorder_->read(own(from, "read"), offset, bytes)); });
  return pending;
}

void WebgpuBackend::copy(const StoragePtr& from, uint64_t from_offset, const StoragePtr& to,
                         uint64_t to_offset, uint64_t bytes) {
  as_one([&] { recorder_->copy(own(from, "copy"), from_offset, own(to, "copy"), to_offset, bytes); });
}

void WebgpuBackend::synchronize() {
  submit();
  device_.synchronize();
}

std::unique_ptr<Prepared> WebgpuBackend::prepare(std::span<const Step> steps,
                                                 std::span<const StoragePtr> storages, bool often) {
  const std::vector<const gpu::Buffer*> buffers = buffers_of(storages);
  const auto recorded = [&] {
    auto tape = std::make_unique<webgpu::Tape>();
    webgpu::Context context(device_, *tape, buffers);
    context.software = software_;
    context.tuning = &tuning_;
    webgpu::SmallKernels small(context);
    if (often) context.small = &small;
    webgpu::record_steps(context, steps);
    small.finish();
    asked_ = std::move(context.asked);
    return tape;
  };
  auto tape = recorded();
  const auto is_new = [&](const webgpu::Asked& a) { return !tuning_.knows(a.question.key); };
  if (!tunes_ || std::ranges::none_of(asked_, is_new)) return tape;
  submit();
  webgpu::tune(device_, tuning_, asked_, steps, buffers);
  return recorded();
}

void WebgpuBackend::run(Prepared& prepared, std::span<const StoragePtr> storages,
                        std::span<const double> constants) {
  auto& tape = dynamic_cast<webgpu::Tape&>(prepared);
  if (tape.set(constants)) {
    submit();
    tape.write_tables(device_);
  }
  if (times_) {
    submit();
    return measure(tape, buffers_of(storages));
  }
  const bool alone = !recorder_;
  as_one([&] {
    const std::vector<const gpu::Buffer*> buffers = buffers_of(storages);
    for (size_t first = 0, all = 1; first < all; first += kMostAtOnce) {
      const gpu::Series& series = tape.on(device_, buffers);  // a submit lets go of memory
      all = series.size();
      recorder_->dispatch(series, first, std::min(kMostAtOnce, all - first));
      if (alone) submit();
    }
  });
}

void WebgpuBackend::trace(KernelTimes* times) {
  times_ = device_.features().timestamps ? times : nullptr;
}

/// Every dispatch in a pass of its own, whose beginning and end the GPU writes down.
void WebgpuBackend::measure(webgpu::Tape& tape, std::span<const gpu::Buffer* const> buffers) {
  gpu::Recorder recorder(device_, "trace", gpu::Trace::dispatches);
  const gpu::Series& series = tape.on(device_, buffers);
  recorder.dispatch(series, 0, series.size());
  if (recorder.empty()) return;
  recorder.submit();
  const std::vector<gpu::Timing> timings = recorder.timings();
  for (size_t i = 0; i < timings.size(); ++i) {
    const gpu::Grid& grid = tape.dispatches[i].grid;
    KernelTime& time = (*times_)[fmt::format("{} x {}", timings[i].kernel, grid.x * grid.y)];
    ++time.calls;
    time.seconds += timings[i].microseconds * 1e-6;
  }
}

MemoryUse WebgpuBackend::memory() const {
  const gpu::Counters counters = device_.counters();
  return {.active = counters.bytes_active, .peak = counters.bytes_peak, .cached = counters.bytes_cached};
}

int64_t WebgpuBackend::least_tile() const {
  const webgpu::QuantForm lanes = webgpu::lanes_form(device_.features(), 1, 1);
  return software_ ? lanes.threads * lanes.rows : Backend::least_tile();
}

bool WebgpuBackend::encodes(int64_t elements, int64_t columns) const {
  // Every workgroup makes all of them, so it pays for matrices of so many weights: on an H200 4 to 5 % of a
  // token of Llama-1B and SmolLM2; with the larger ones of Llama-8B as well that loses 5 %.
  constexpr int64_t kMostWeights = 1 << 25, kOthers = 8 << 10;  // bytes of sums and tiles
  const gpu::Features& features = device_.features();
  return !software_ && features.subgroups && features.subgroup_min >= 8 &&
         elements * columns <= kMostWeights &&
         webgpu::bytes_of_codes(elements) + kOthers <= device_.limits().max_workgroup_memory;
}

int64_t WebgpuBackend::halves_rows() const {
  constexpr int64_t kManyRows = 9;  // for which tiles of matrices pay
  return webgpu::MatmulDevice(device_).matrix() ? kManyRows : 0;
}

bool WebgpuBackend::has_kernel(std::string_view op) const {
  // Software adapters take a second to compile a kernel of tiles, and run products without barriers faster.
  const bool slow = software_ && op.find("attention") != op.npos &&
                    !(op == "cached_attention" && device_.features().subgroups);
  return webgpu::has_kernel(op) && !slow;
}

}  // namespace weft
