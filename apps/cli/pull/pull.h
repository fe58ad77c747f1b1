#pragma once

#include <filesystem>
#include <string>

namespace weft::pull {

/// `weft pull NAME`: makes a model be in the cache and prints where. Exit status 0.
int run(const std::string& name);

/// The path of a model that a user named: an existing path is itself, or the folder of a safetensors file;
/// another name of source.h is in the
/// cache, or is downloaded into it now. Throws ErrorKind::io where there is no such model.
std::filesystem::path resolve_model(const std::string& name);

}  // namespace weft::pull
