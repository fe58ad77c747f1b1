#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "array/attrs.h"
#include "io/safetensors.h"
#include "weft/chat.h"

/// Suites of `"kind": "ops"`, as OPS.md specifies them, of `"kind": "tokenizer"` and of `"kind": "chat"`.
namespace weft::conform {

/// One op of a `program` case.
struct Step {
  std::string op;
  std::vector<std::string> inputs;  ///< an entry of the case's inputs, "%k", "%k.j", or "" = left out
  Attrs attrs;
};

struct Case {
  std::string name, op;
  // Names of tensors; "" = null.
  std::vector<std::string> inputs;
  Attrs attrs;
  std::vector<std::string> outputs;
  std::vector<std::string> grad_outputs;  ///< one per output; empty = forward only
  std::vector<std::string> grads;         ///< one per input; empty = forward only
  double rtol = 0, atol = 0;
  std::vector<Step> steps;           ///< of a `program` only
  std::vector<std::string> results;  ///< "%k" or "%k.j", one per output
};

struct OpsSuite {
  Safetensors tensors;
  std::vector<Case> cases;
};

/// "%k" is output 0 of step k, "%k.j" output j.
struct StepOutput {
  size_t step, output;
};
std::optional<StepOutput> step_output(std::string_view reference);  ///< nullopt when it is not one

/// The tensors file is beside the suite. What returns is consistent: every tensor named is in the file, lists
/// have the lengths that they must have, a step refers to earlier ones only. Whether a step has an output j,
/// and whether there is such an op, is for the one who runs it. Throws `[conform] FILE: case 'neg/rank3':
/// ...`.
OpsSuite load_ops_suite(const std::filesystem::path& file);

struct TokenizerCase {
  std::string name;  ///< "llama-bpe/7"
  std::string text;
  std::vector<int32_t> ids;  ///< without BOS, control tokens not parsed
};

struct TokenizerSuite {
  std::filesystem::path vocabulary;  ///< a GGUF file, or a folder with tokenizer.json
  std::vector<TokenizerCase> cases;
};

TokenizerSuite load_tokenizer_suite(const std::filesystem::path& file);

struct ChatCase {
  std::string name;
  std::string source;  ///< of the template
  ChatInput input;
  std::optional<std::string> expect;  ///< nullopt: the template must fail
};

struct ChatSuite {
  std::vector<ChatCase> cases;
};

ChatSuite load_chat_suite(const std::filesystem::path& file);

/// "ops" where the file does not say.
std::string suite_kind(const std::filesystem::path& file);

}  // namespace weft::conform
