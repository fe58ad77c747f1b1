#pragma once

#include <CLI/CLI.hpp>

/// Commands about language models. Each adds itself; `status` is the exit status of the one that runs.
namespace weft::cli {

void add_run(CLI::App& app, int& status);
void add_chat(CLI::App& app, int& status);
void add_info(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_perplexity(CLI::App& app, int& status);
void add_verify(CLI::App& app, int& status);

}  // namespace weft::cli
