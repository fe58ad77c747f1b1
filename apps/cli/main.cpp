#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <system_error>

#include "base/env.h"
#include "base/error.h"
#include "base/standard_error.h"
#include "bench_ops/bench_ops.h"
#include "completion.h"
#include "conform/conform.h"
#include "devices.h"
#include "doctor/doctor.h"
#include "embed.h"
#include "models/commands.h"
#include "op_table/op_table.h"
#include "pull/pull.h"
#include "pull/source.h"
#include "quantize/quantize.h"
#include "quantize/recipe.h"
#include "template.h"
#include "term.h"
#include "tokenize.h"
#include "weft/version.h"

namespace {

constexpr int kUsage = 2;  // exit status of a wrong call

std::vector<weft::cli::CommandWords> words_of(const CLI::App& app) {
  std::vector<weft::cli::CommandWords> commands;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); })) {
    weft::cli::CommandWords words{command->get_name(), command->get_description(), {}};
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) words.options.push_back("--" + name);
    for (const CLI::Option* option : command->get_options())
      if (option->get_name() == "shell") words.options.insert(words.options.end(), {"bash", "zsh", "fish"});
    commands.push_back(std::move(words));
  }
  return commands;
}

/// The arguments, last first as CLI11 takes them. llama.cpp has names of several letters behind one dash,
/// which CLI11 would read as -m with the value "d".
std::vector<std::string> words_from(int argc, char** argv) {
  std::vector<std::string> words(std::reverse_iterator(argv + argc), std::reverse_iterator(argv + 1));
  for (std::string& word : words) {
    if (word == "-md") word = "--model-draft";
    if (word == "-ngl") word = "--n-gpu-layers";
  }
  return words;
}

int run(int argc, char** argv) {
  CLI::App app{"weft makes any GPU that speaks WebGPU, or a plain CPU, run neural networks.", "weft"};
  app.set_version_flag("--version", fmt::format("weft {}", weft::version()));
  app.require_subcommand(0, 1);  // none is told below: CLI11 would not name a command that it does not know
  app.footer(
      "\n`weft COMMAND --help` tells more about a command. Environment variables: docs/environment.md.");
  app.failure_message([](const CLI::App* at, const CLI::Error& error) {
    return fmt::format(
        "weft: {}\nTry `{} --help`.\n", error.what(),
        at->get_parent() ? at->get_parent()->get_name() + " " + at->get_name() : at->get_name());
  });
  int status = 0;

  weft::cli::DevicesOptions devices;
  CLI::App* command = app.add_subcommand("devices", "List the devices and say which one is used");
  command->add_flag("--json", devices.json, "For programs: one JSON object");
  command->add_flag("--explain", devices.explain, "Limits, priority order, simulated selection, overrides");
  command->add_option("--device", devices.device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command->callback([&] { status = weft::cli::devices(devices); });

  weft::doctor::Options doctor;
  command = app.add_subcommand("doctor", "Find out why a GPU is not used, and what to do");
  command->add_flag("--json", doctor.json, "For programs: one JSON object");
  command->add_flag("--test", doctor.test, "Also compute on every device and compare with the CPU");
  command->add_flag("--fix", doctor.fix, "Write what can be written safely");
  command->callback([&] {
    doctor.colour = weft::term::colours(stdout);
    status = weft::doctor::run(doctor);
  });

  std::string device;
  command = app.add_subcommand("selftest", "Run a small computation on the chosen device");
  command->add_option("--device", device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command->callback([&] { status = weft::cli::selftest(device); });

  weft::conform::Options conform;
  command = app.add_subcommand("conform", "Run conformance suites on a device");
  command->add_option("suites", conform.suites, "Suite files (JSON)")->required();
  command->add_option("--device", conform.device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command->add_option("--filter", conform.filter, "Only cases whose name matches this glob");
  command->callback([&] { status = weft::conform::run(conform); });

  weft::bench_ops::Options bench_ops;
  command =
      app.add_subcommand("bench-ops", "Time ops against the device's copy bandwidth and its best matmul");
  command->add_flag("--json", bench_ops.json, "For programs: one JSON object");
  command->add_option("--device", bench_ops.device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command->add_option("--filter", bench_ops.filter, "Only cases whose name matches this glob: 'matmul f16*'");
  command->callback([&] { status = weft::bench_ops::run(bench_ops); });

  weft::cli::TokenizeOptions tokenize;
  command = app.add_subcommand("tokenize", "Turn text from standard input into token ids");
  command->add_option("model", tokenize.model, "A GGUF file, a tokenizer.json, a folder with one, or a name")
      ->required();
  command->add_flag("--jsonl", tokenize.jsonl,
                    "One JSON string per input line, one JSON array per output line");
  command->add_flag("--special", tokenize.special, "Control tokens spelt in the text become tokens");
  command->add_flag("--explain", tokenize.explain, "One line per token: id, kind, spelling, text");
  command->callback([&] { status = weft::cli::tokenize(tokenize); });

  std::string name;
  command = app.add_subcommand("pull", "Download a model into the cache and print where it is");
  command->add_option("name", name, weft::pull::forms())->required();
  command->callback([&] { status = weft::pull::run(name); });

  weft::cli::EmbedOptions embed;
  command = app.add_subcommand("embed", "Turn text from standard input into a vector");
  command->add_option("model", embed.model, "A GGUF file, a Hugging Face folder, or a name")->required();
  command->add_flag("--jsonl", embed.jsonl, "One JSON string per input line, one JSON array per output line");
  command->add_option("--device", embed.device, "auto, cpu, webgpu, webgpu:N or webgpu:NAME");
  command->callback([&] { status = weft::cli::embed(embed); });

  weft::cli::add_run(app, status);
  weft::cli::add_chat(app, status);
  weft::cli::add_info(app, status);
  weft::cli::add_bench(app, status);
  weft::cli::add_perplexity(app, status);
  weft::cli::add_verify(app, status);

  weft::quantize::Options quantize;
  command = app.add_subcommand("quantize", "Write a GGUF file with smaller weights");
  command->add_option("in", quantize.in, "A GGUF file, a Hugging Face folder, or a name")->required();
  command->add_option("out", quantize.out, "The file to write")->required();
  command->add_option("type", quantize.type, weft::quantize::recipe_names())->required();
  command->add_option("--imatrix", quantize.importance,
                      "An importance matrix of llama-imatrix; iq1, iq2 and iq3_xxs need one");
  command->add_flag("--pure", quantize.pure, "No mixture: every matrix gets the same type");
  command->add_flag("--allow-requantize", quantize.requantize, "Take weights that are quantised already");
  command->callback([&] { status = weft::quantize::run(quantize); });

  weft::cli::TemplateOptions chat_template;
  command =
      app.add_subcommand("template", "Render a conversation (JSON on standard input) with a chat template");
  command
      ->add_option("model", chat_template.model,
                   "A GGUF file, a model's folder or name, a .jinja file or the name of a built-in template")
      ->required();
  command->add_flag("--json", chat_template.json, "For programs: the parts, and which of them are trusted");
  command->callback([&] { status = weft::cli::render_template(chat_template); });

  bool markdown = false;
  command = app.add_subcommand("ops", "List the ops")->group("");  // for docs/ops.md, not for users
  command->add_flag("--markdown", markdown, "As docs/ops.md");
  command->callback([&] { status = weft::op_table::run(markdown); });

  std::string shell;
  command = app.add_subcommand("completion", "Print a completion script for a shell");
  command->add_option("shell", shell, "bash, zsh or fish")->required();
  command->callback([&] { fmt::print("{}", weft::cli::completion_script(shell, words_of(app))); });

  try {
    weft::env::check_all();
    app.parse(words_from(argc, argv));
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A command");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return status;
}

/// A file must not get the number of a standard stream that is closed: results and messages would go into it.
/// Opened the wrong way around, the stream still fails as a closed one does.
void fill_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace

int main(int argc, char** argv) {
  fill_closed_streams();
  try {
    const int status = run(argc, argv);
    weft::term::flush();
    return status;
  } catch (const weft::Error& error) {
    weft::to_stderr("weft: {}\n", error.what());
    return error.kind() == weft::ErrorKind::invalid ? kUsage : 1;
  } catch (const std::bad_alloc&) {
    weft::to_stderr("weft: there is not enough memory for this\n");
    return 1;
  } catch (const std::system_error& error) {
    if (std::ferror(stdout))  // fmt knows only that it was a file
      weft::to_stderr("weft: cannot write to standard output: {}\n", error.code().message());
    else
      weft::to_stderr("weft: {}\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    weft::to_stderr("weft: {}\n", error.what());
    return 1;
  }
}
