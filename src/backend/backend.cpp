#include "backend/backend.h"

#include <algorithm>

namespace weft {
namespace {

class BytesRead : public PendingRead {
 public:
  std::span<const std::byte> wait() override { return bytes; }
  std::vector<std::byte> bytes;
};

}  // namespace

std::unique_ptr<PendingRead> Backend::read_later(const StoragePtr& from, uint64_t offset, uint64_t bytes) {
  auto read_now = std::make_unique<BytesRead>();
  read_now->bytes.resize(bytes);
  read(from, offset, read_now->bytes);
  return read_now;
}

std::vector<StoragePtr> Backend::with_scratch(const Prepared& prepared, std::vector<StoragePtr> storages) {
  for (uint64_t bytes : prepared.scratch) storages.push_back(alloc(bytes, "scratch"));
  return storages;
}

Backend::Kept& Backend::kept(const std::function<std::unique_ptr<Kept>()>& make) {
  std::call_once(kept_is_made_, [&] { kept_ = make(); });
  return *kept_;
}

void Backend::run(std::span<const Step> steps) {
  std::vector<StoragePtr> storages;
  for (const Step& step : steps)
    for (const auto* operands : {&step.inputs, &step.outputs})
      for (const Operand& operand : *operands)
        if (operand.storage && std::ranges::find(storages, operand.storage) == storages.end())
          storages.push_back(operand.storage);
  const std::unique_ptr<Prepared> prepared = prepare(steps, storages, false);
  run(*prepared, with_scratch(*prepared, std::move(storages)), {});
}

}  // namespace weft
