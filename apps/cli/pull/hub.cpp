#include "pull/hub.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "io/json.h"
#include "pull/source.h"

namespace weft::pull {
namespace {

using nlohmann::json;

constexpr std::string_view kStems[] = {"model", "adapter_model"};
constexpr std::string_view kPooling = "1_Pooling/config.json";  // of sentence-transformers

const HubFile* find(const HubRepository& repository, std::string_view name) {
  const auto found = std::ranges::find(repository.files, name, &HubFile::name);
  return found == repository.files.end() ? nullptr : &*found;
}

[[noreturn]] void damaged(std::string_view repository, std::string_view what) {
  fail(ErrorKind::io, "[pull] hf:{}: the hub's answer is damaged: {}", repository, what);
}

[[noreturn]] void no_weights(const HubRepository& repository) {
  std::vector<std::string> others;
  for (const HubFile& file : repository.files)
    if (file.name.ends_with(".gguf")) others.push_back(fmt::format("hf:{}/{}", repository.name, file.name));
  if (others.empty())
    fail(ErrorKind::io, "[pull] hf:{} has no weights in safetensors, and no GGUF files", repository.name);
  fail(ErrorKind::io, "[pull] hf:{} has GGUF files only; choose one: {}", repository.name,
       fmt::join(others, ", "));
}

}  // namespace

std::string hub_site() {
  const char* set = std::getenv("HF_ENDPOINT");
  std::string site = set && *set ? set : "https://huggingface.co";
  while (site.ends_with('/')) site.pop_back();
  return site;
}

std::string hub_token() {
  const char* set = std::getenv("HF_TOKEN");
  return set ? set : "";
}

std::string hub_question(std::string_view repository) {
  return fmt::format("{}/api/models/{}?blobs=true", hub_site(), repository);
}

std::string hub_url(std::string_view repository, std::string_view revision, std::string_view file) {
  return fmt::format("{}/{}/resolve/{}/{}", hub_site(), repository, revision, file);
}

HubRepository parse_repository(std::string_view repository, std::string_view answer) {
  const json parsed = parse_json(answer, fmt::format("[pull] hf:{}", repository));
  if (!parsed.is_object() || !parsed.contains("siblings") || !parsed["siblings"].is_array())
    damaged(repository, "it has no list of files");
  HubRepository result{.name = std::string(repository), .revision = "main", .files = {}};
  if (parsed.contains("sha") && parsed["sha"].is_string()) result.revision = parsed["sha"];
  if (!is_path(result.revision) || result.revision.find('/') != std::string::npos)
    damaged(repository, "its revision is none");
  for (const json& entry : parsed["siblings"]) {
    if (!entry.is_object() || !entry.contains("rfilename") || !entry["rfilename"].is_string())
      damaged(repository, "a file has no name");
    HubFile file{.name = entry["rfilename"], .sha256 = {}};
    if (!is_path(file.name)) continue;  // names that no model's files have
    if (entry.contains("size") && entry["size"].is_number_unsigned()) file.size = entry["size"];
    if (entry.contains("lfs") && entry["lfs"].is_object() && entry["lfs"].contains("sha256") &&
        entry["lfs"]["sha256"].is_string())
      file.sha256 = entry["lfs"]["sha256"];
    result.files.push_back(std::move(file));
  }
  return result;
}

std::vector<HubFile> small_files(const HubRepository& repository) {
  std::vector<HubFile> result;
  for (const HubFile& file : repository.files) {
    const bool below = file.name.find('/') != std::string::npos;
    const bool wanted = file.name.ends_with(".json") || file.name.ends_with(".jinja");
    const bool index = file.name.ends_with(".safetensors.index.json");
    if ((wanted && !below && !index) || file.name == kPooling) result.push_back(file);
  }
  return result;
}

const HubFile* index_of_weights(const HubRepository& repository) {
  for (const std::string_view stem : kStems)
    if (const HubFile* file = find(repository, fmt::format("{}.safetensors.index.json", stem))) return file;
  return nullptr;
}

std::vector<HubFile> weight_files(const HubRepository& repository, std::string_view index) {
  if (index.empty()) {
    for (const std::string_view stem : kStems)
      if (const HubFile* file = find(repository, fmt::format("{}.safetensors", stem))) return {*file};
    no_weights(repository);
  }
  const json parsed = parse_json(index, fmt::format("[pull] hf:{}", repository.name));
  if (!parsed.is_object() || !parsed.contains("weight_map") || !parsed["weight_map"].is_object())
    damaged(repository.name, "the index of the weights names no files");
  std::set<std::string> names;
  for (const json& name : parsed["weight_map"])
    names.insert(name.is_string() ? name.get<std::string>() : std::string());
  std::vector<HubFile> result;
  for (const std::string& name : names) {
    const HubFile* file = find(repository, name);
    if (!file) damaged(repository.name, "the index of the weights names a file that is not there");
    result.push_back(*file);
  }
  return result;
}

}  // namespace weft::pull
