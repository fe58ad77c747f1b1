#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "weft/llm.h"

/// Flags that commands about models share: llama.cpp's names where it has them.
namespace weft::cli {

CLI::Validator token_count();   ///< what --ctx-size takes: tables for a billion tokens would take minutes
CLI::Validator thread_count();  ///< what --threads takes
/// --threads for every backend that is opened from now on; 0: as the environment says.
void use_threads(int64_t threads);

struct ModelFlags {
  std::string model, device, cache_type;
  int64_t context = 0, threads = 0, gpu_layers = -1;
  std::vector<std::string> loras;
  std::vector<std::string> scaled_loras;  ///< FILE:SCALE
  bool exact = false;

  /// The model is a positional argument or -m. `usual_context`: what --ctx-size is when it is not given.
  void add_to(CLI::App& command, std::string_view usual_context = "the model's, up to 4096");
  /// The file or folder that the model's name stands for; downloads it where it has to.
  std::filesystem::path path() const;
  /// Loads it, with a progress bar on a terminal.
  LanguageModel open(const DraftOptions& draft = {}) const;
};

struct DraftFlags {
  DraftOptions options;
  std::string model;

  void add_to(CLI::App& command);
  DraftOptions checked() const;
};

struct SamplerFlags {
  SamplerOptions options;
  std::vector<std::string> biases;  ///< ID+BIAS or ID-BIAS
  int64_t seed = -1;

  void add_to(CLI::App& command);
  SamplerOptions checked() const;
};

/// True from the first Ctrl-C on, while one of these exists. A second Ctrl-C ends the program.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  bool happened() const;
};

/// "12 tokens in 0.31 s (38.7 per second), ..." about a finished generation.
std::string statistics(const LanguageModel& model, const GenerateResult& result);

}  // namespace weft::cli
