#pragma once

#include <string>

namespace weft::cli {

struct TemplateOptions {
  std::string model;
  bool json = false;
};

/// `weft template`: the JSON object {messages, tools, add_generation_prompt, bos_token, eos_token, ...} on
/// standard input as the text that the template makes of it. Exit status 0, or 1 when it refuses.
int render_template(const TemplateOptions& options);

}  // namespace weft::cli
