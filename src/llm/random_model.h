#pragma once

#include <string>

#include "llm/model_file.h"

namespace weft::llm {

/// A model of a known shape with random weights, for measuring: "llama-8b:q4_k". Throws ErrorKind::invalid
/// with the shapes there are. Nothing is held in memory: weights are made when they are read.
ModelFile random_model(const std::string& shape_and_type);

}  // namespace weft::llm
