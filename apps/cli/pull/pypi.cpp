#include "pull/pypi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/child.h"

namespace weft::pull {
namespace {

/// PEP 503: letters small, every run of - _ . is one of them.
std::string normalized(std::string_view name, char separator) {
  std::string result;
  for (const char c : name) {
    const bool separates = c == '-' || c == '_' || c == '.';
    if (!separates) result += 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (separates && !result.ends_with(separator)) result += separator;
  }
  return result;
}

std::string index_url() {
  if (const char* set = std::getenv("PIP_INDEX_URL"); set && *set) return set;
  const ProgramResult pip = run_program({"python3", "-m", "pip", "config", "get", "global.index-url"});
  const std::string line = pip.output.substr(0, pip.output.find('\n'));
  return pip.status == 0 && line.find("://") != line.npos ? line : "https://pypi.org/simple";
}

std::string unescaped(std::string_view text) {
  std::string result(text);
  for (size_t at = 0; (at = result.find("&amp;", at)) != result.npos; ++at) result.replace(at, 5, "&");
  return result;
}

std::string absolute(std::string_view link, std::string_view page_url) {
  if (link.find("://") != link.npos) return std::string(link);
  const size_t host_end = page_url.find('/', page_url.find("://") + 3);
  const std::string_view base =
      link.starts_with('/') ? page_url.substr(0, host_end) : page_url.substr(0, page_url.rfind('/') + 1);
  return fmt::format("{}{}", base, link);
}

}  // namespace

std::string index_page_url(std::string_view package) {
  std::string url = index_url();
  while (url.ends_with('/')) url.pop_back();
  return fmt::format("{}/{}/{}", url, normalized(package, '-'), url.starts_with("file:") ? "index.html" : "");
}

std::optional<Wheel> find_wheel(std::string_view page, std::string_view page_url, std::string_view package,
                                std::string_view version) {
  const std::string wanted = fmt::format("{}-{}-", normalized(package, '_'), version);
  constexpr std::string_view kHref = "href=\"", kSum = "#sha256=";
  for (size_t at = 0; (at = page.find(kHref, at)) != page.npos;) {
    at += kHref.size();
    const std::string link = unescaped(page.substr(at, page.find('"', at) - at));
    const size_t hash = link.find('#');
    const std::string target = link.substr(0, hash), path = target.substr(0, target.find('?'));
    const std::string file = path.substr(path.rfind('/') + 1);
    const size_t dash = std::min(file.find('-'), file.size());  // package-version-python-abi-platform.whl
    const std::string name = normalized(file.substr(0, dash), '_') + file.substr(dash);
    if (!name.starts_with(wanted) || !name.ends_with("-none-any.whl")) continue;
    const bool has_sum = hash != link.npos && std::string_view(link).substr(hash).starts_with(kSum);
    return Wheel{.url = absolute(target, page_url), .sha256 = has_sum ? link.substr(hash + kSum.size()) : ""};
  }
  return std::nullopt;
}

}  // namespace weft::pull
