#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Repositories of Hugging Face's hub.
namespace weft::pull {

struct HubFile {
  std::string name;
  uint64_t size = 0;
  std::string sha256;  ///< empty where the hub does not say: small files
};

struct HubRepository {
  std::string name;      ///< org/repo
  std::string revision;  ///< a commit, so that all files are of the same state
  std::vector<HubFile> files;
};

/// HF_ENDPOINT, else the hub itself.
std::string hub_site();
/// HF_TOKEN, for repositories whose owners want to know who asks; empty: none. Only the hub may see it.
std::string hub_token();
/// Where the hub tells about a repository.
std::string hub_question(std::string_view repository);
std::string hub_url(std::string_view repository, std::string_view revision, std::string_view file);

/// Reads the hub's answer. Throws ErrorKind::io for one that is damaged, or that names files outside of the
/// folder.
HubRepository parse_repository(std::string_view repository, std::string_view answer);

/// The files of a model but its weights: configs, tokenizer, templates.
std::vector<HubFile> small_files(const HubRepository& repository);
/// The file that lists the parts of the weights, if there is one.
const HubFile* index_of_weights(const HubRepository& repository);
/// The weights: those that the text of an index names, or one file. Throws ErrorKind::io where the repository
/// has none in safetensors.
std::vector<HubFile> weight_files(const HubRepository& repository, std::string_view index);

}  // namespace weft::pull
