#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/device.h"

/// Suites of `"kind": "model"`: models, and the logits and tokens they should give.
namespace weft::conform {

struct ModelCase {
  std::string name;
  std::filesystem::path model, adapter, expect;  ///< adapter: empty = none
  std::optional<double> max, mean, top1;
};

std::vector<ModelCase> load_model_suite(const std::filesystem::path& file);

/// What differs; empty when nothing does that matters.
std::string model_difference(const ModelCase& c, const Device& device);

}  // namespace weft::conform
