#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/paths.h"
#include "io/safetensors.h"
#include "llm/model.h"
#include "support/gpus.h"
#include "support/scoped.h"

namespace weft::test {

inline const std::filesystem::path kModels =
    WEFT_SOURCE_DIR "/tests/data/architectures";  // make.py there says what they are

/// A copy of a model's folder, to be damaged.
struct Copy {
  ScopedFolder place;
  std::filesystem::path path = place.path / "model";

  explicit Copy(const std::string& name) {
    std::filesystem::copy(kModels / name, path, std::filesystem::copy_options::recursive);
  }

  void set(const std::string& key, const nlohmann::json& value) const {
    nlohmann::json config = nlohmann::json::parse(read_text(path / "config.json").value_or(""));
    config[key] = value;
    write_text(path / "config.json", config.dump());
  }
  /// The model's tensors, as `change` leaves them.
  void change(const std::function<void(std::map<std::string, HostTensor>&)>& change) const {
    const std::filesystem::path file = path / "model.safetensors";
    std::map<std::string, HostTensor> tensors;
    {
      const Safetensors all = Safetensors::open(file);
      for (const std::string& name : all.names()) tensors[name] = all.load(name);
    }
    change(tensors);
    write_safetensors(file, tensors);
  }
  /// What opening it says, without the name of the file.
  std::string complaint() const {
    return without_path(error_of([&] { llm::Model(path, {.context = 16}); }).message);
  }
  std::string without_path(std::string message) const {
    for (size_t at = message.find(path.string()); at != message.npos; at = message.find(path.string()))
      message.replace(at, path.string().size(), "FOLDER");
    CHECK(message.find('\n') == message.npos);
    return message;
  }
};

}  // namespace weft::test
