#include "base/env.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "base/error.h"

#include <unistd.h>

namespace weft::env {
namespace {

const Variable& find(std::string_view name) {
  for (const Variable& v : table())
    if (v.name == name) return v;
  fail(ErrorKind::invalid, "[env] {} is not in the table of variables", name);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_count(std::string_view text) {
  int n = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() && n >= 1;
}

void check(const Variable& v, const std::string& value) {
  if (v.choices.empty()) return;
  for (const std::string& part : v.list ? split(value) : std::vector<std::string>{value}) {
    const std::string word = v.counted ? part.substr(0, part.find(':')) : part;
    const bool known = std::find(v.choices.begin(), v.choices.end(), word) != v.choices.end();
    if (!known || (word.size() < part.size() && !is_count(std::string_view(part).substr(word.size() + 1))))
      fail(ErrorKind::invalid, "[env] {}={}: '{}' is not known; use {}", v.name, value, part, v.values);
  }
}

}  // namespace

std::span<const Variable> table() {
  static const std::vector<Variable> variables = {
      {"WEFT_DEVICE", "auto, cpu, webgpu, webgpu:N, webgpu:NAME", "device to use; --device wins over it", {}},
      {"DEVICE", "as WEFT_DEVICE", "read when WEFT_DEVICE is not set", {}},
      {"WEFT_WEBGPU_LIB", "path of a library", "the only WebGPU library to load, whatever its file name", {}},
      {"WEFT_THREADS", "a number from 1", "threads of the CPU backend; default: all cores", {}},
      {"WEFT_CACHE", "path of a folder", "models, driver probes, tuning; default: the XDG cache folder", {}},
      {"WEFT_LOG",
       "error, warn, info, debug",
       "how much is written to standard error",
       {"error", "warn", "info", "debug"}},
      {"WEFT_GPU_DISABLE",
       "a list of f16, subgroups, subgroup_matrix, timestamps, immediates, last_workgroup, lockstep, images",
       "pretend the GPU lacks these, to test the fallbacks",
       {"f16", "subgroups", "subgroup_matrix", "timestamps", "immediates", "last_workgroup", "lockstep",
        "images"},
       true},
      {"WEFT_TUNE",
       "on, off",
       "whether the fastest way to run a kernel on this GPU is measured at its first use; default: on",
       {"on", "off"}},
      {"WEFT_FAULT",
       "a list of device_lost, oom, map_timeout, each optionally with :N",
       "make the Nth submit, allocation or map of the process fail, once, to test recovery",
       {"device_lost", "oom", "map_timeout"},
       true,
       true},
  };
  return variables;
}

std::optional<std::string> get(std::string_view name) {
  const Variable& v = find(name);
  const char* value = std::getenv(std::string(name).c_str());
  if (!value || !*value) return std::nullopt;
  check(v, value);
  return value;
}

std::vector<std::string> get_list(std::string_view name) {
  return split(get(name).value_or(""));
}

std::optional<int> get_count(std::string_view name) {
  const std::optional<std::string> value = get(name);
  if (!value) return std::nullopt;
  if (!is_count(*value)) fail(ErrorKind::invalid, "[env] {}={}: use a whole number from 1", name, *value);
  return std::atoi(value->c_str());
}

int most_threads() {
  return std::max(256, 4 * static_cast<int>(std::thread::hardware_concurrency()));
}

int thread_count() {
  const int count =
      get_count("WEFT_THREADS").value_or(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  if (count > most_threads())
    fail(ErrorKind::invalid, "[env] WEFT_THREADS={}: here it can be up to {}", count, most_threads());
  return count;
}

void check_all() {
  for (const Variable& v : table()) get(v.name);
  thread_count();
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("WEFT_")) continue;
    const bool known = std::ranges::any_of(table(), [&](const Variable& v) { return v.name == name; });
    if (known) continue;
    std::string names;
    for (const Variable& v : table()) names += fmt::format("{}{}", names.empty() ? "" : ", ", v.name);
    fail(ErrorKind::invalid, "[env] {} is not a variable of weft; these are: {}", name, names);
  }
}

}  // namespace weft::env
