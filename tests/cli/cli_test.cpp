#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/paths.h"
#include "support/program.h"
#include "support/skip.h"
#include "weft/version.h"

using namespace weft;
using nlohmann::json;
using test::Output;
using test::run_weft;
using Strings = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

namespace {

const Strings kCommands = {"devices", "doctor", "selftest", "bench-ops", "completion"};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Strings lines_of(const std::string& text) {
  Strings lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// What the user's own environment says about logging and threads is no part of the tests.
Output run(const Strings& arguments, const Environment& environment = {}) {
  unsetenv("WEFT_LOG");
  unsetenv("WEFT_THREADS");
  return run_weft(arguments, environment);
}

/// Exit status 2, nothing on standard output, one line that says what is wrong; for a wrong call a second one
/// that says where to look.
std::string usage_error(const Strings& arguments, const Environment& environment = {}, bool hint = true) {
  const Output out = run(arguments, environment);
  CAPTURE(fmt::format("{}", fmt::join(arguments, " ")));
  CAPTURE(out.errors);
  CHECK(out.status == 2);
  CHECK(out.text.empty());
  const Strings lines = lines_of(out.errors);
  REQUIRE(lines.size() == (hint ? 2 : 1));
  CHECK(lines[0].starts_with("weft: "));
  if (hint) {
    CHECK(lines[1].starts_with("Try `weft"));
    CHECK(lines[1].ends_with("--help`."));
  }
  return lines[0];
}

json devices(const Strings& more = {}, const Environment& environment = {}) {
  Strings arguments = {"devices", "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Output out = run(arguments, environment);
  CAPTURE(out.text);
  CAPTURE(out.errors);
  REQUIRE(out.status == 0);
  return json::parse(out.text);
}

/// False, and a skip, where no library or no Vulkan driver is.
bool needs_adapter() {
  const json out = devices();
  for (const json& device : out["devices"])
    if (device["kind"] == "webgpu") return true;
  test::skip("no WebGPU adapter");
  return false;
}

struct Shell {
  int status;
  std::string text;
};

Shell bash(const std::string& script) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("weft-cli-{}.sh", getpid());
  write_text(file, script);
  std::FILE* pipe = popen(fmt::format("bash --norc --noprofile {} 2>&1", file.string()).c_str(), "r");
  REQUIRE(pipe != nullptr);
  Shell result;
  char block[4096];
  for (size_t n = 0; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) result.text.append(block, n);
  result.status = WEXITSTATUS(pclose(pipe));
  std::filesystem::remove(file);
  return result;
}

}  // namespace

TEST_SUITE("cli") {
  TEST_CASE("template renders a conversation from standard input") {
    const auto render = [](std::string_view input, std::string_view model) {
      return bash(fmt::format("echo '{}' | {} template {}", input, WEFT_PROGRAM, model));
    };
    const std::string_view hello =
        R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true})";
    const Shell out = render(hello, "chatml");
    CHECK(out.status == 0);
    CHECK(out.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    const Shell parts = render(hello, "chatml --json");
    CHECK(json::parse(parts.text)[1] == json{{"text", "Hi"}, {"trusted", false}});
    CHECK(render("{}", "nothing.gguf").status == 1);
    CHECK(render("[]", "chatml").text == "weft: [template] the input is not a JSON object\n");
    CHECK(render(R"({"messages": 1})", "chatml").status == 1);
  }

  TEST_CASE("results that are lost are an error, messages that are lost are none") {
    const auto call = [](std::string_view command, std::string_view streams) {
      return bash(
          fmt::format("{{ {} {} {} ; echo $? >&3; }} 3>&1 </dev/null", WEFT_PROGRAM, command, streams));
    };
    for (const std::string_view command :
         {"--help", "devices --device cpu", "completion bash", "ops --markdown"}) {
      CAPTURE(command);
      const std::string_view says = "weft: cannot write to standard output: ";
      CHECK(call(command, "2>&1 >/dev/full").text == fmt::format("{}No space left on device\n1\n", says));
      CHECK(call(command, "2>&1 >&-").text == fmt::format("{}Bad file descriptor\n1\n", says));
      for (const std::string_view errors : {">/dev/null 2>/dev/full", ">/dev/null 2>&-"})
        CHECK(call(command, errors).text == "0\n");
    }
    for (const std::string_view errors : {"2>/dev/full", "2>&-"}) {
      CHECK(call("info /nowhere/model.gguf", errors).text == "1\n");
      CHECK(call("frobnicate", errors).text == "2\n");
    }
    CHECK(bash(fmt::format("{} ops --markdown | head -1", WEFT_PROGRAM)).text.starts_with("# "));
  }

  TEST_CASE("--version") {
    const Output out = run({"--version"});
    CHECK(out.status == 0);
    CHECK(out.text == fmt::format("weft {}\n", version()));
    CHECK(out.errors.empty());
  }

  TEST_CASE("--help lists the commands, and each command has a help of its own") {
    const Output out = run({"--help"});
    CHECK(out.status == 0);
    CHECK(out.errors.empty());
    for (const std::string& command : kCommands) {
      CAPTURE(command);
      CHECK(contains(out.text, "\n  " + command + " "));
      const Output help = run({command, "--help"});
      CHECK(help.status == 0);
      CHECK(help.errors.empty());
      CHECK(contains(help.text, "weft " + command));
      CHECK(contains(help.text, "--help"));
    }
    for (const char* option : {"--json", "--explain", "--device"})
      CHECK(contains(run({"devices", "--help"}).text, option));
    for (const char* option : {"--json", "--test", "--fix"})
      CHECK(contains(run({"doctor", "--help"}).text, option));
  }

  TEST_CASE("a wrong call") {
    CHECK(contains(usage_error({}), "A command is required"));
    CHECK(contains(usage_error({"frobnicate"}), "frobnicate"));
    CHECK(contains(usage_error({"devices", "--frobnicate"}), "--frobnicate"));
    CHECK(contains(usage_error({"--frobnicate"}), "--frobnicate"));
    CHECK(contains(usage_error({"devices", "extra"}), "extra"));
    CHECK(contains(usage_error({"devices", "--device"}), "--device"));
    CHECK(contains(usage_error({"completion"}), "shell"));
    CHECK(contains(usage_error({"doctor", "devices"}), "devices"));
  }

  TEST_CASE("wrong environment variables") {
    const std::string log = usage_error({"devices"}, {{"WEFT_LOG", "nonsense"}}, false);
    CHECK(contains(log, "WEFT_LOG=nonsense"));
    CHECK(contains(log, "error, warn, info, debug"));
    CHECK(contains(usage_error({"devices"}, {{"WEFT_THREADS", "0"}}, false), "WEFT_THREADS=0"));
    CHECK(contains(usage_error({"devices"}, {{"WEFT_GPU_DISABLE", "f64"}}, false), "subgroup_matrix"));
    CHECK(contains(usage_error({"selftest"}, {{"WEFT_FAULT", "oom:0"}}, false), "map_timeout"));
    CHECK(contains(usage_error({"devices"}, {{"WEFT_DEVISE", "cpu"}}, false), "WEFT_DEVICE"));
  }

  TEST_CASE("devices: a plain table in a pipe") {
    const Output out = run({"devices"}, {{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}});
    CHECK(out.status == 0);
    CHECK_FALSE(contains(out.text, "\x1b"));
    const Strings lines = lines_of(out.text);
    REQUIRE(lines.size() >= 2);
    for (const char* column :
         {"device", "name (type) via backend", "library", "features", "submit", "dispatch"})
      CHECK(contains(lines[0], column));
    CHECK(std::ranges::count_if(lines, [](const std::string& line) { return line.starts_with("*"); }) == 1);
    CHECK(contains(lines.back(), "cpu"));
    CHECK(contains(lines.back(), "threads)"));
    CHECK(lines.size() == devices()["devices"].size() + 1);
  }

  TEST_CASE("devices --json") {
    const json out = devices();
    for (const char* field : {"selected", "reason", "wanted", "wanted_by", "devices", "libraries"})
      CHECK(out.contains(field));
    CHECK(out["wanted"] == "auto");
    CHECK(out["wanted_by"] == "default");
    REQUIRE(out["devices"].is_array());
    CHECK(out["libraries"].is_array());
    CHECK(out["devices"].back()["id"] == "cpu");
    CHECK(out["devices"].back()["threads"] >= 1);
    CHECK(std::ranges::any_of(out["devices"], [&](const json& d) { return d["id"] == out["selected"]; }));
    for (const json& device : out["devices"]) {
      if (device["kind"] != "webgpu") continue;
      CHECK(device["adapter"]["name"] == device["name"]);
      CHECK(device["adapter"]["limits"]["max_buffer_size"] > 0);
      CHECK(device["adapter"]["features"].contains("f16"));
      CHECK(device["adapter"]["submit_us"] > 0);
      CHECK(device["library"]["status"] == "usable");
      CHECK(std::ranges::any_of(out["libraries"],
                                [&](const json& l) { return l["path"] == device["library"]["path"]; }));
    }
  }

  TEST_CASE("devices --explain has its four sections, in order") {
    const Output out = run({"devices", "--explain"});
    CHECK(out.status == 0);
    CHECK_FALSE(contains(out.text, "\x1b"));
    size_t at = 0;
    for (const char* heading :
         {"\nAvailable devices\n", "\nPriority order\n", "\nSimulated selection\n", "\nOverride\n"}) {
      CAPTURE(heading);
      const size_t found = out.text.find(heading, at);
      REQUIRE(found != std::string::npos);
      at = found + 1;
    }
    for (const char* line :
         {"\n  auto ", "\n  webgpu ", "\n  cpu       -> cpu (", "now: default = auto", "selected: "})
      CHECK(contains(out.text, line));
  }

  TEST_CASE("--device wins over WEFT_DEVICE, and that over DEVICE") {
    json out = devices({"--device", "cpu"}, {{"WEFT_DEVICE", "webgpu:7"}, {"DEVICE", "webgpu:8"}});
    CHECK(out["wanted_by"] == "--device");
    CHECK(out["selected"] == "cpu");
    out = devices({}, {{"WEFT_DEVICE", "cpu"}, {"DEVICE", "webgpu:8"}});
    CHECK(out["wanted_by"] == "WEFT_DEVICE");
    CHECK(out["selected"] == "cpu");
    out = devices({}, {{"DEVICE", "CPU"}});
    CHECK(out["wanted_by"] == "DEVICE");
    CHECK(out["selected"] == "cpu");
    CHECK(contains(run({"devices", "--explain"}, {{"DEVICE", "cpu"}}).text, "now: DEVICE = cpu"));
  }

  TEST_CASE("a device that is not there: exit 2 and the list") {
    for (const char* command : {"devices", "selftest"}) {
      for (const std::string& line : {usage_error({command, "--device", "webgpu:99"}, {}, false),
                                      usage_error({command}, {{"WEFT_DEVICE", "webgpu:99"}}, false),
                                      usage_error({command}, {{"DEVICE", "webgpu:99"}}, false)}) {
        CHECK(contains(line, "no device 'webgpu:99'"));
        CHECK(contains(line, "cpu ("));
        CHECK(contains(line, "Or: auto, webgpu, webgpu:NAME"));
      }
    }
  }

  TEST_CASE("without any library there is the CPU") {
    const Environment none = {{"WEFT_WEBGPU_LIB", "/nonexistent.so"}};
    CHECK(devices({}, none)["selected"] == "cpu");
    const Output out = run({"devices"}, none);
    CHECK(out.status == 0);
    CHECK(contains(out.errors, "cannot load /nonexistent.so"));
    CHECK(contains(usage_error({"devices", "--device", "webgpu"}, none, false), "there are: cpu ("));
    CHECK(contains(run({"devices", "--explain"}, none).text, "  webgpu    -> none\n"));
  }

  TEST_CASE("WEFT_GPU_DISABLE takes features away") {
    if (!needs_adapter()) return;
    const json with = devices(), without = devices({}, {{"WEFT_GPU_DISABLE", "f16,timestamps"}});
    REQUIRE(with["devices"].size() == without["devices"].size());
    for (const json& device : without["devices"]) {
      if (device["kind"] != "webgpu") continue;
      CHECK(device["adapter"]["features"]["f16"] == false);
      CHECK(device["adapter"]["features"]["timestamps"] == false);
    }
    CHECK(std::ranges::any_of(with["devices"], [](const json& d) {
      return d["kind"] == "webgpu" && d["adapter"]["features"]["timestamps"] == true;
    }));
    CHECK_FALSE(contains(run({"devices"}, {{"WEFT_GPU_DISABLE", "timestamps"}}).text, "timestamps"));
  }

  TEST_CASE("doctor closes with its result, which is its exit status") {
    const Output out = run({"doctor"});
    const std::string last = lines_of(out.text).back();
    CAPTURE(out.text);
    CHECK_FALSE(contains(out.text, "\x1b"));
    CHECK(last.starts_with("[RESULT] "));
    const char* const words[] = {"[RESULT] PASS", "[RESULT] PARTIAL", "[RESULT] FAIL"};
    REQUIRE(out.status >= 0);
    REQUIRE(out.status <= 2);
    CHECK(last.starts_with(words[out.status]));
  }

  TEST_CASE("doctor --json") {
    const Output out = run({"doctor", "--json"});
    CHECK((out.status == 0 || out.status == 1));
    const json report = json::parse(out.text);
    for (const char* field : {"result", "system", "vulkan", "libraries", "findings"})
      CHECK(report.contains(field));
  }

  TEST_CASE("selftest on the CPU") {
    const Output out = run({"selftest", "--device", "cpu"});
    CAPTURE(out.text);
    CHECK(out.status == 0);
    CHECK(out.text.starts_with("self-test on cpu ("));
    for (const char* op : {"add", "gelu", "sum", "matmul"})
      CHECK(contains(out.text, std::string("\n") + op + " "));
    CHECK_FALSE(contains(out.text, "WRONG"));
  }

  TEST_CASE("selftest on WebGPU") {
    if (!needs_adapter()) return;
    for (const char* disabled : {"", "f16,subgroups,subgroup_matrix,timestamps,immediates"}) {
      const Output out = run({"selftest", "--device", "webgpu"}, {{"WEFT_GPU_DISABLE", disabled}});
      CAPTURE(out.text);
      CAPTURE(out.errors);
      CHECK(out.status == 0);
      CHECK(out.text.starts_with("self-test on webgpu:0 ("));
      CHECK_FALSE(contains(out.text, "WRONG"));
    }
  }

  TEST_CASE("input that cannot be read is no empty text") {
    const std::string model = std::string(WEFT_SOURCE_DIR) + "/tests/data/tokenizers/llama-spm.gguf";
    for (const std::string& command :
         {"tokenize " + model, "tokenize --jsonl " + model, std::string("template chatml")}) {
      CAPTURE(command);
      const std::string says =
          fmt::format("weft: [{}] cannot read standard input: ", command.substr(0, command.find(' ')));
      const Shell folder = bash(fmt::format("{} {} </", WEFT_PROGRAM, command)),
                  closed = bash(fmt::format("{} {} <&-", WEFT_PROGRAM, command));
      CHECK(folder.status == 1);
      CHECK(folder.text == says + "Is a directory\n");
      CHECK(closed.status == 1);
      CHECK(closed.text == says + "Bad file descriptor\n");
    }
  }

  TEST_CASE("empty lines of JSON lines: only at the end") {
    const std::string model = std::string(WEFT_SOURCE_DIR) + "/tests/data/tokenizers/llama-spm.gguf";
    const auto lines = [&](std::string_view input) {
      return bash(fmt::format("printf '{}' | {} tokenize --jsonl {}", input, WEFT_PROGRAM, model));
    };
    const std::string one = lines(R"("one"\n)").text;
    CHECK(one.ends_with("]\n"));
    for (const std::string_view end : {"", R"(\n)", R"(\n\n)", R"(\n \r\n\n)"}) {
      const Shell out = lines(fmt::format(R"("one"{})", end));
      CHECK(out.status == 0);
      CHECK(out.text == one);
    }
    CHECK(lines("").text.empty());
    const Shell between = lines(R"("one"\n\n\n"one"\n)");
    CHECK(between.status == 1);
    CHECK(between.text == one + "weft: [tokenize] line 2 of the input is empty\n");
  }

  TEST_CASE("tokenize: ids on standard output, one line per line") {
    const std::string model = std::string(WEFT_SOURCE_DIR) + "/tests/data/tokenizers/llama-spm.gguf";
    const auto shell = [&](const std::string& input, const std::string& options) {
      return test::run_program(
          "/bin/sh", {"-c", "printf '" + input + "' | " WEFT_PROGRAM " tokenize " + model + options});
    };
    const Output lines = shell(R"("Hello"\n""\n"</s>"\n)", " --jsonl");
    CHECK(lines.status == 0);
    CHECK(lines.errors.empty());
    CHECK(std::ranges::count(lines.text, '\n') == 3);
    CHECK(lines.text.find("]\n[]\n[") != std::string::npos);
    CHECK(shell(R"("</s>"\n)", " --jsonl --special").text == "[2]\n");
    CHECK(shell("", "").text == "[]\n");
    CHECK(shell("</s>", " --special --explain").text == "      2  control  \"</s>\"  \"</s>\"\n");
    const Output wrong = shell(R"("a"\n7\n)", " --jsonl");
    CHECK(wrong.status == 1);
    CHECK(wrong.errors == "weft: [tokenize] line 2 of the input is not a JSON string\n");
  }

  TEST_CASE("bench-ops") {
    const Output out = run({"bench-ops", "--device", "cpu", "--json", "--filter", "neg f32 *"});
    CAPTURE(out.errors);
    REQUIRE(out.status == 0);
    const json result = json::parse(out.text);
    CHECK(result["device"] == "cpu");
    CHECK(result["copy_gb_s"] > 0);
    REQUIRE(result["cases"].size() == 1);
    const json& one = result["cases"][0];
    CHECK(one["name"] == "neg f32 1024");
    // 1024 floats in and out, in the time that was measured
    CHECK(one["gb_s"].get<double>() == doctest::Approx(8192 / one["us"].get<double>() * 1e-3));
    CHECK(contains(usage_error({"bench-ops", "--filter", "nothing*"}, {}, false),
                   "no case is called 'nothing*'"));
  }

  TEST_CASE("a GPU that fails is an error in one line, on every adapter") {
    if (!needs_adapter()) return;
    const json all = devices();
    for (const json& device : all["devices"]) {
      if (device["kind"] != "webgpu") continue;
      const std::string id = device["id"];
      for (const auto& [fault, words] : std::map<std::string, std::string>{
               {"device_lost", "is lost"}, {"device_lost:3", "is lost"}, {"oom", "no memory for buffer"}}) {
        CAPTURE(id);
        CAPTURE(fault);
        const Output out = run({"selftest", "--device", id}, {{"WEFT_FAULT", fault}});
        CAPTURE(out.errors);
        CHECK(out.status == 1);
        // Dawn has warnings of its own to print; weft has one line, the last.
        const Strings lines = lines_of(out.errors);
        REQUIRE_FALSE(lines.empty());
        CHECK(lines.back().starts_with("weft: [gpu] "));
        CHECK(contains(lines.back(), words));
        CHECK(contains(lines.back(), "(injected)"));
        CHECK(std::ranges::count_if(lines, [](const std::string& l) { return l.starts_with("weft: "); }) ==
              1);
      }
    }
  }

  TEST_CASE("completion for bash completes") {
    const Output out = run({"completion", "bash"});
    REQUIRE(out.status == 0);
    const auto file =
        std::filesystem::temp_directory_path() / fmt::format("weft-completion-{}.bash", getpid());
    write_text(file, out.text);
    const Shell syntax = bash("bash -n " + file.string());
    CHECK(syntax.status == 0);
    CHECK(syntax.text.empty());
    const auto complete = [&](const std::string& words) {
      const Shell shell =
          bash(fmt::format("source {}\nCOMP_WORDS=({})\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n_weft\n"
                           "echo \"${{COMPREPLY[*]}}\"\n",
                           file.string(), words));
      CHECK(shell.status == 0);
      return shell.text;
    };
    CHECK(complete("weft dev") == "devices\n");
    CHECK(complete("weft do") == "doctor\n");
    CHECK(complete("weft devices --j") == "--json\n");
    CHECK(complete("weft doctor --f") == "--fix\n");
    CHECK(complete("weft completion z") == "zsh\n");
    CHECK(complete("weft --v") == "--version\n");
    CHECK(complete("weft xyz") == "\n");
    const std::string all = complete("weft ''");
    for (const std::string& command : kCommands) CHECK(contains(all, command));
    CHECK(contains(bash(fmt::format("source {}\ncomplete -p weft\n", file.string())).text, "-F _weft weft"));
    std::filesystem::remove(file);
  }

  TEST_CASE("completion for zsh and fish knows every command") {
    for (const char* shell : {"zsh", "fish"}) {
      const Output out = run({"completion", shell});
      CHECK(out.status == 0);
      for (const std::string& command : kCommands) CHECK(contains(out.text, command));
      CHECK(contains(out.text, "explain"));
    }
  }

  TEST_CASE("completion for another shell is a wrong call") {
    CHECK(contains(usage_error({"completion", "tcsh"}, {}, false), "use bash, zsh or fish"));
  }
}
