#include "backend/backend.h"

#include <algorithm>

namespace weft {

void Backend::run(std::span<const Step> steps) {
  std::vector<StoragePtr> storages;
  for (const Step& step : steps)
    for (const auto* operands : {&step.inputs, &step.outputs})
      for (const Operand& operand : *operands)
        if (operand.storage && std::ranges::find(storages, operand.storage) == storages.end())
          storages.push_back(operand.storage);
  run(*prepare(steps, storages), storages, {});
}

}  // namespace weft
