#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace weft::llm {

/// What transformers takes where a config.json of this `model_type` says nothing: many published files leave
/// out what is usual, and another value gives other logits without a word. Only what differs from the
/// fallbacks of hf_values is here; families whose heads turn in part are those that have
/// "partial_rotary_factor" or "rotary_pct".
const nlohmann::json& hf_defaults(std::string_view model_type);

}  // namespace weft::llm
