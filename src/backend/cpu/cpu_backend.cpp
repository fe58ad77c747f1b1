#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "backend/cpu/elementwise_run.h"
#include "base/error.h"
#include "base/paths.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

CpuStorage& own(const StoragePtr& storage, std::string_view what, uint64_t offset, uint64_t bytes) {
  auto* cpu = dynamic_cast<CpuStorage*>(storage.get());
  if (!cpu) fail(ErrorKind::invalid, "[cpu] {} of storage that is not the CPU's", what);
  if (offset > cpu->size() || bytes > cpu->size() - offset)
    fail(ErrorKind::invalid, "[cpu] {} of {} bytes at {} passes the end of '{}' ({} bytes)", what, bytes,
         offset, cpu->label(), cpu->size());
  return *cpu;
}

}  // namespace

std::string cpu_name() {
  const std::string info = read_text("/proc/cpuinfo").value_or("");
  const size_t key = info.find("model name");
  const size_t colon = key == std::string::npos ? key : info.find(": ", key);
  if (colon == std::string::npos) return "CPU";
  return info.substr(colon + 2, info.find('\n', colon) - colon - 2);
}

std::string CpuBackend::name() const {
  return cpu_name();
}

StoragePtr CpuBackend::alloc(uint64_t bytes, std::string_view label) {
  return std::make_shared<CpuStorage>(bytes, label, memory_);
}

void CpuBackend::write(const StoragePtr& to, uint64_t offset, std::span<const std::byte> bytes) {
  CpuStorage& target = own(to, "write", offset, bytes.size());
  if (!bytes.empty()) std::memcpy(target.data() + offset, bytes.data(), bytes.size());
}

void CpuBackend::read(const StoragePtr& from, uint64_t offset, std::span<std::byte> bytes) {
  CpuStorage& source = own(from, "read", offset, bytes.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), source.data() + offset, bytes.size());
}

void CpuBackend::copy(const StoragePtr& from, uint64_t from_offset, const StoragePtr& to, uint64_t to_offset,
                      uint64_t bytes) {
  CpuStorage& source = own(from, "copy", from_offset, bytes);
  CpuStorage& target = own(to, "copy", to_offset, bytes);
  constexpr size_t kPiece = 1 << 20;  // bytes
  pool_.for_each(bytes, kPiece, [&](size_t begin, size_t end) {
    std::memcpy(target.data() + to_offset + begin, source.data() + from_offset + begin, end - begin);
  });
}

namespace {

struct CpuPrepared : Prepared {
  struct Place {
    std::vector<cpu::Tensor> tensors;
    std::vector<int> storages;  // -1: an optional input that was left out
  };
  struct Item {
    std::string_view name;
    cpu::Kernel kernel = nullptr;  // null: all of it is the program
    bool is_matmul = false;        // which runs an f32 epilogue on what is still in the cache
    const Attrs* attrs = nullptr;
    std::optional<ElementwiseProgram> program = {};
    Place inputs = {}, outputs = {};
  };
  std::vector<Item> items;
};

/// What a trace calls it.
std::string label(const CpuPrepared::Item& item) {
  std::string text(item.name);
  if (item.attrs->has("type") && !item.attrs->text("type").empty()) text += " " + item.attrs->text("type");
  if (item.program) text += fmt::format(" +{}", item.program->instructions.size());
  return text + " " + to_string(item.outputs.tensors[0].layout.shape);
}

/// The kernel, then the program on what it made.
void run_with_epilogue(ThreadPool& pool, const CpuPrepared::Item& item, const ElementwiseProgram& program) {
  const std::span<const cpu::Tensor> inputs = item.inputs.tensors, outputs = item.outputs.tensors;
  const size_t own = inputs.size() - (program.loads.size() - 1);
  cpu::Tensor made = outputs[0];
  std::vector<std::byte> memory;
  if (made.dtype != program.loads[0]) {
    made.dtype = program.loads[0];
    memory.resize(static_cast<size_t>(element_count(made.layout.shape)) * size_of(made.dtype));
    made.data = memory.data();
  }
  std::vector<cpu::Tensor> loads = {made};
  loads.insert(loads.end(), inputs.begin() + static_cast<int64_t>(own), inputs.end());
  if (item.is_matmul && made.dtype == DType::f32)
    return cpu::matmul_with(pool, program, inputs.first(own), loads, outputs);
  item.kernel(pool, inputs.first(own), std::span(&made, 1), *item.attrs);
  cpu::run_elementwise(pool, program, loads, outputs);
}

}  // namespace

std::unique_ptr<Prepared> CpuBackend::prepare(std::span<const Step> steps,
                                              std::span<const StoragePtr> storages, bool /*often*/) {
  static const Attrs none;
  std::unordered_map<const Storage*, int> numbers;
  for (const StoragePtr& storage : storages)
    numbers.insert({storage.get(), static_cast<int>(numbers.size())});
  const auto place = [&](const std::vector<Operand>& operands) {
    CpuPrepared::Place result;
    for (const Operand& o : operands) {
      result.tensors.push_back({nullptr, o.dtype, o.layout});
      result.storages.push_back(o.storage ? numbers.at(o.storage.get()) : -1);
    }
    return result;
  };
  auto prepared = std::make_unique<CpuPrepared>();
  for (const Step& step : steps) {
    CpuPrepared::Item item{.name = step.kernel,
                           .attrs = step.attrs ? step.attrs : &none,
                           .inputs = place(step.inputs),
                           .outputs = place(step.outputs)};
    if (step.program) item.program = *step.program;
    if (step.kernel != "elementwise" && step.kernel != "rows") item.kernel = cpu::find_kernel(step.kernel);
    item.is_matmul = step.kernel == "matmul_batched";
    prepared->items.push_back(std::move(item));
  }
  return prepared;
}

bool CpuBackend::has_kernel(std::string_view op) const {
  return cpu::has_kernel(op);
}

void CpuBackend::run(Prepared& prepared, std::span<const StoragePtr> storages,
                     std::span<const double> constants) {
  std::vector<std::byte*> data;
  data.reserve(storages.size());
  for (const StoragePtr& storage : storages) data.push_back(own(storage, "run", 0, 0).data());
  const auto bind = [&](CpuPrepared::Place& place) {
    for (size_t i = 0; i < place.storages.size(); ++i)
      if (const int s = place.storages[i]; s >= 0) place.tensors[i].data = data[static_cast<size_t>(s)];
  };
  for (CpuPrepared::Item& item : dynamic_cast<CpuPrepared&>(prepared).items) {
    bind(item.inputs);
    bind(item.outputs);
    if (item.program)
      for (ElementwiseProgram::Instruction& i : item.program->instructions)
        if (i.constant >= 0) i.attrs[0] = constants[static_cast<size_t>(i.constant)];
    const auto begin = trace_ ? Clock::now() : Clock::time_point();
    if (!item.program)
      item.kernel(pool_, item.inputs.tensors, item.outputs.tensors, *item.attrs);
    else if (item.kernel)
      run_with_epilogue(pool_, item, *item.program);
    else if (item.program->row_dims)
      cpu::run_rows(pool_, *item.program, item.inputs.tensors, item.outputs.tensors);
    else
      cpu::run_elementwise(pool_, *item.program, item.inputs.tensors, item.outputs.tensors);
    if (trace_) {
      KernelTime& time = (*trace_)[label(item)];
      ++time.calls;
      time.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    }
  }
}

}  // namespace weft
