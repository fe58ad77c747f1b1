// Whole folders of Hugging Face's hub, from a server of our own.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/paths.h"
#include "base/sha256.h"
#include "pull/hub.h"
#include "support/gpus.h"
#include "support/http_server.h"
#include "support/program.h"
#include "support/scoped.h"
#include "support/skip.h"

using namespace weft;
using nlohmann::json;
using test::error_of;
namespace fs = std::filesystem;

namespace {

bool needs_curl() {
  if (test::run_program("curl", {"--version"}).status == 0) return true;
  test::skip("the program curl is not installed");
  return false;
}

std::string sum_of(const std::string& text) {
  Sha256 sum;
  sum.add(std::as_bytes(std::span(text)));
  return sum.finish();
}

/// A hub with one repository, org/repo, whose weights are in two parts.
struct Hub {
  test::ScopedFolder folder;
  test::HttpServer server;
  fs::path cache = folder.path / "cache", model = cache / "models/hf-folders/org/repo";
  std::map<std::string, std::string> files;

  Hub() {
    files = {{"config.json", "{}"},
             {"tokenizer.json", "{\"model\":{}}"},
             {"chat_template.jinja", "{{ messages }}"},
             {"1_Pooling/config.json", "{\"p\":1}"},
             {"model-1.safetensors", std::string(200'000, 'a')},
             {"model-2.safetensors", std::string(100'000, 'b')},
             {"model.safetensors.index.json",
              R"({"weight_map":{"x":"model-1.safetensors","y":"model-2.safetensors"}})"},
             {"consolidated.safetensors", "the same again"},
             {"pytorch_model.bin", "not this"},
             {"onnx/model.json", "nor this"},
             {"README.md", "# words"}};
    publish();
  }
  static std::string path(const std::string& file) { return "/org/repo/resolve/abc123/" + file; }

  void publish() {
    json list = json::array();
    for (const auto& [name, text] : files) {
      json entry = {{"rfilename", name}, {"size", text.size()}};
      if (name.ends_with(".safetensors")) entry["lfs"] = {{"sha256", sum_of(text)}, {"size", text.size()}};
      list.push_back(entry);
      server.set(path(name), {text});
    }
    server.set("/api/models/org/repo?blobs=true", {json{{"sha", "abc123"}, {"siblings", list}}.dump()});
  }
  std::map<std::string, std::string> environment() const {
    return {{"WEFT_CACHE", cache.string()}, {"HF_ENDPOINT", server.url()}, {"HF_TOKEN", ""}};
  }
  test::Output pull(const std::string& name = "hf:org/repo") const {
    return test::run_weft({"pull", name}, environment());
  }
  /// What pulling complains about; nothing has a name then.
  std::string failure(const std::string& name = "hf:org/repo") const {
    const test::Output run = pull(name);
    CHECK(run.status == 1);
    CHECK(run.text.empty());
    CHECK(std::ranges::count(run.errors, '\n') == 1);
    CHECK_FALSE(fs::exists(model));
    return run.errors;
  }
  void check_complete() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(model)) count += entry.is_regular_file();
    CHECK(count == 7);
    for (const auto& [name, text] : files)
      if (fs::exists(model / name)) CHECK(read_text(model / name) == text);
    for (const char* other : {"consolidated.safetensors", "pytorch_model.bin", "onnx", "README.md"})
      CHECK_FALSE(fs::exists(model / other));
    CHECK(std::distance(fs::directory_iterator(model.parent_path()), {}) == 1);  // no parts are left
  }
};

}  // namespace

TEST_SUITE("base: pull from the hub") {
  TEST_CASE("a folder has what a model needs, and is there at once or not at all") {
    if (!needs_curl()) return;
    const Hub hub;
    const test::Output run = hub.pull();
    CAPTURE(run.errors);
    CHECK(run.status == 0);
    CHECK(run.text == hub.model.string() + "\n");
    hub.check_complete();
    CHECK(hub.pull().status == 0);
    CHECK(hub.server.requests("/api/models/org/repo?blobs=true") == 1);  // the second time nobody is asked
  }

  TEST_CASE("a file that was sent elsewhere, or cut off, is continued") {
    if (!needs_curl()) return;
    Hub hub;
    const std::string first = Hub::path("model-1.safetensors"), second = Hub::path("model-2.safetensors");
    hub.server.set(first, {.body = "", .status = 302, .location = hub.server.url() + "/elsewhere"});
    hub.server.set("/elsewhere", {.body = hub.files["model-1.safetensors"], .cut = 70'000});
    hub.server.remove(second);
    CHECK(hub.failure().find("cannot download " + hub.server.url() + second) != std::string::npos);
    CHECK(hub.server.requests("/elsewhere") == 3);
    hub.publish();
    CHECK(hub.pull().status == 0);
    hub.check_complete();
    CHECK(hub.server.requests(Hub::path("config.json")) == 1);  // was there from the first time
    CHECK(hub.server.requests(first) == 3);
  }

  TEST_CASE("a server that always breaks off is given up") {
    if (!needs_curl()) return;
    Hub hub;
    hub.server.set(Hub::path("model-1.safetensors"),
                   {.body = hub.files["model-1.safetensors"], .ranges = false, .cut = 50'000});
    CHECK(hub.failure().find("model-1.safetensors: ") != std::string::npos);
    hub.publish();
    CHECK(hub.pull().status == 0);
    hub.check_complete();
  }

  TEST_CASE("what is not as the hub says does not get a name") {
    if (!needs_curl()) return;
    Hub hub;
    hub.server.set(Hub::path("model-2.safetensors"), {std::string(100'000, 'x')});
    CHECK(hub.failure().find("its sha256 is not " + sum_of(hub.files["model-2.safetensors"])) !=
          std::string::npos);
    hub.publish();
    hub.server.set(Hub::path("tokenizer.json"), {"{}"});
    fs::remove_all(hub.cache);
    CHECK(hub.failure().find("tokenizer.json has 2 bytes, not 12") != std::string::npos);
    hub.publish();
    CHECK(hub.pull().status == 0);
    hub.check_complete();
  }

  TEST_CASE("repositories that are not there, have no weights, or answer nonsense") {
    if (!needs_curl()) return;
    Hub hub;
    CHECK(hub.failure("hf:org/other").find("/api/models/org/other?blobs=true: ") != std::string::npos);
    hub.files = {{"a.gguf", "x"}, {"b/c.gguf", "y"}};
    hub.publish();
    CHECK(hub.failure() ==
          "weft: [pull] hf:org/repo has GGUF files only; choose one: hf:org/repo/a.gguf, "
          "hf:org/repo/b/c.gguf\n");
    hub.files = {{"README.md", ""}};
    hub.publish();
    CHECK(hub.failure() == "weft: [pull] hf:org/repo has no weights in safetensors, and no GGUF files\n");
    hub.server.set("/api/models/org/repo?blobs=true", {"<html>"});
    CHECK(hub.failure() ==
          "weft: [pull] hf:org/repo: the hub's answer is damaged: it has no list of files\n");
  }

  TEST_CASE("HF_TOKEN goes to the hub, and nowhere else") {
    if (!needs_curl()) return;
    Hub hub;
    test::HttpServer elsewhere;
    const std::string question = "/api/models/org/repo?blobs=true", moved = Hub::path("model-1.safetensors"),
                      header = "Authorization: Bearer hf_secret";
    hub.server.set(moved, {.body = "", .status = 302, .location = elsewhere.url() + "/x"});
    elsewhere.set("/x", {hub.files["model-1.safetensors"]});
    // A curl that writes down how it was called.
    const fs::path folder = hub.folder.path / "bin", arguments = hub.folder.path / "arguments";
    write_text(folder / "curl",
               fmt::format("#!/bin/sh\necho \"$@\" >> {}\nPATH=${{PATH#*:}} exec curl \"$@\"\n",
                           arguments.string()));
    fs::permissions(folder / "curl", fs::perms::owner_all);
    auto environment = hub.environment();
    environment["HF_TOKEN"] = "hf_secret";
    environment["PATH"] = folder.string() + ":" + std::getenv("PATH");
    const test::Output run = test::run_weft({"pull", "hf:org/repo"}, environment);
    CAPTURE(run.errors);
    CHECK(run.status == 0);
    hub.check_complete();
    for (const std::string& path : {question, moved, Hub::path("config.json")})
      CHECK(hub.server.last_request(path).find(header) != std::string::npos);
    CHECK(elsewhere.last_request("/x").starts_with("GET /x "));
    CHECK(elsewhere.last_request("/x").find("hf_secret") == std::string::npos);
    CHECK(read_text(arguments)->find("hf_secret") == std::string::npos);
    CHECK(run.errors.find("hf_secret") == std::string::npos);

    // A single file is the hub's too; another address is not.
    hub.server.set("/org/repo/resolve/main/a.gguf", {"x"});
    CHECK(test::run_weft({"pull", "hf:org/repo/a.gguf"}, environment).status == 0);
    CHECK(hub.server.last_request("/org/repo/resolve/main/a.gguf").find(header) != std::string::npos);
    CHECK(test::run_weft({"pull", elsewhere.url() + "/x"}, environment).status == 0);
    CHECK(elsewhere.last_request("/x").find("hf_secret") == std::string::npos);

    hub.server.set("/api/models/org/gated?blobs=true", {.body = "", .status = 401});
    CHECK(hub.pull("hf:org/gated").errors.ends_with("401; HF_TOKEN can say who asks\n"));
    environment["HF_TOKEN"] = "two\nlines";
    CHECK(test::run_weft({"pull", "hf:org/gated"}, environment).errors ==
          "weft: [pull] HF_TOKEN has characters that no token has\n");
  }

  TEST_CASE("a cache that cannot be written, or is full") {
    if (!needs_curl()) return;
    const Hub hub;
    write_text(hub.folder.path / "taken", "");
    const test::Output taken = test::run_weft(
        {"pull", "hf:org/repo"},
        {{"WEFT_CACHE", (hub.folder.path / "taken").string()}, {"HF_ENDPOINT", hub.server.url()}});
    CHECK(taken.status == 1);
    CHECK(taken.errors.ends_with("Not a directory; WEFT_CACHE can name another folder\n"));
    // No file may grow beyond 64 KiB: the same to curl as a disk without space.
    const test::Output full = test::run_program(
        "sh", {"-c", "trap '' XFSZ; ulimit -f 128; exec \"$0\" pull hf:org/repo", WEFT_PROGRAM},
        hub.environment());
    CHECK(full.status == 1);
    CHECK(full.errors.find("model-1.safetensors.part: is the disk full?") != std::string::npos);
    CHECK_FALSE(fs::exists(hub.model));
    CHECK(hub.pull().status == 0);
    hub.check_complete();
  }

  TEST_CASE("answers of the hub are not trusted") {
    const auto error = [](const std::string& answer) {
      return error_of([&] { pull::parse_repository("o/r", answer); }).message;
    };
    for (const char* bad : {"", "[]", "{}", R"({"siblings":{}})", R"({"siblings":[1]})",
                            R"({"siblings":[{"rfilename":1}]})", R"({"sha":"../x","siblings":[]})"}) {
      CAPTURE(bad);
      CHECK(error(bad).starts_with("[pull] hf:o/r: the hub's answer is damaged: "));
    }
    const pull::HubRepository strange = pull::parse_repository(
        "o/r",
        R"({"siblings":[{"rfilename":"../x.json"},{"rfilename":"/etc/x.json"},{"rfilename":"a.json"}]})");
    CHECK(strange.revision == "main");
    CHECK(strange.files.size() == 1);
    CHECK(pull::small_files(strange)[0].name == "a.json");
    for (const char* index :
         {"x", "{}", R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":"not-there.safetensors"}})"})
      CHECK(error_of([&] { pull::weight_files(strange, index); }).kind == "io");
  }
}
