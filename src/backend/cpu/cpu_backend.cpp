#include "backend/cpu/cpu_backend.h"

#include <cstring>

#include "backend/cpu/elementwise_run.h"
#include "base/error.h"
#include "base/paths.h"

namespace weft {
namespace {

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

void CpuBackend::run(std::span<const Step> steps) {
  const auto tensors = [](const std::vector<Operand>& operands) {
    std::vector<cpu::Tensor> result;
    for (const Operand& o : operands)  // an operand without storage is an optional input that was left out
      result.push_back({o.storage ? own(o.storage, "run", 0, 0).data() : nullptr, o.dtype, o.layout});
    return result;
  };
  for (const Step& step : steps) {
    const std::vector<cpu::Tensor> inputs = tensors(step.inputs), outputs = tensors(step.outputs);
    if (step.program) {
      cpu::run_elementwise(pool_, *step.program, inputs, outputs);
    } else {
      static const Attrs none;
      cpu::find_kernel(step.kernel)(pool_, inputs, outputs, step.attrs ? *step.attrs : none);
    }
  }
}

}  // namespace weft
