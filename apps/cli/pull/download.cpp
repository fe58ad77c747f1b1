#include "pull/download.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/child.h"
#include "base/error.h"

namespace weft::pull {
namespace {

namespace fs = std::filesystem;

// Exit statuses of curl.
constexpr int kHttpError = 22, kCannotWrite = 23, kNoRanges = 33, kCannotResume = 36, kNoProgram = 127;
constexpr int kBegins = 4;                           // a server that cannot continue may break off every time
constexpr int kBroken[] = {18, 28, 52, 55, 56, 92};  // a connection, after it was made

std::vector<std::string> command_for(const Request& request) {
  std::vector<std::string> command = {"curl",
                                      "--silent",
                                      "--show-error",
                                      "--fail",
                                      "--location",
                                      "--globoff",
                                      "--proto",
                                      "=https,http,file",
                                      "--connect-timeout",
                                      "30",
                                      "--speed-limit",
                                      "100",
                                      "--speed-time",
                                      "60"};
  if (!request.certificates.empty()) command.insert(command.end(), {"--cacert", request.certificates});
  if (!request.token.empty()) command.insert(command.end(), {"--config", "-"});
  command.insert(command.end(), {"--url", request.url});
  return command;
}

/// What curl reads from its standard input: everybody can see arguments. It keeps this header to itself when
/// another host answers.
std::string settings_for(const Request& request) {
  if (request.token.empty()) return "";
  const bool plain =
      std::ranges::all_of(request.token, [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\'; });
  if (!plain) fail(ErrorKind::invalid, "[pull] HF_TOKEN has characters that no token has");
  return fmt::format("header = \"Authorization: Bearer {}\"\n", request.token);
}

[[noreturn]] void fail_download(const Request& request, const ProgramResult& result) {
  if (result.status == kNoProgram)
    fail(ErrorKind::io, "[pull] the program curl is missing; install it, or download {} yourself",
         request.url);
  // "curl: (6) Could not resolve host: example.org"
  std::string_view why = result.errors;
  why = why.substr(0, why.find('\n'));
  if (const size_t colon = why.find(") "); why.starts_with("curl: (") && colon != why.npos)
    why.remove_prefix(colon + 2);
  const bool refused = why.ends_with(" 401") || why.ends_with(" 403");
  fail(ErrorKind::io, "[pull] cannot download {}: {}{}", request.url,
       why.empty() ? fmt::format("curl ended with status {}", result.status) : std::string(why),
       !refused                ? ""
       : request.token.empty() ? "; HF_TOKEN can say who asks"
                               : "; has the owner of HF_TOKEN got access?");
}

/// Of the last answer: redirections come before it.
uint64_t content_length(std::string_view headers) {
  std::string lower(headers);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return 'A' <= c && c <= 'Z' ? c - 'A' + 'a' : c; });
  constexpr std::string_view kName = "content-length: ";
  const size_t answer = lower.rfind("http/"), found = lower.rfind(kName);
  if (found == lower.npos || (answer != lower.npos && found < answer)) return 0;
  uint64_t length = 0;
  std::from_chars(lower.data() + found + kName.size(), lower.data() + lower.size(), length);
  return length;
}

uint64_t size_of(const fs::path& file) {
  std::error_code error;
  const uint64_t size = fs::file_size(file, error);
  return error ? 0 : size;
}

}  // namespace

std::string download_text(const Request& request) {
  std::vector<std::string> command = command_for(request);
  command.insert(command.end(), {"--max-filesize", "50000000"});
  ProgramResult result = run_program(command, {}, settings_for(request));
  if (result.status != 0) fail_download(request, result);
  return std::move(result.output);
}

void download_file(const Request& request, const fs::path& part,
                   const std::function<void(uint64_t done, uint64_t total)>& progress) {
  std::vector<std::string> command = command_for(request);
  command.insert(command.end(), {"--continue-at", "-", "--dump-header", "-", "--output", part.string()});
  int begun = 0;
  for (bool again = true; again;) {
    const uint64_t before = size_of(part);
    const auto tick = [&](const std::string& headers) {
      const uint64_t length = content_length(headers);
      progress(size_of(part), length == 0 ? 0 : before + length);
    };
    const ProgramResult result = run_program(command, tick, settings_for(request));
    if (result.status == 0) return;
    const bool refused = result.status == kNoRanges || result.status == kCannotResume ||
                         (result.status == kHttpError && result.errors.find("416") != std::string::npos);
    const bool broken = std::ranges::find(kBroken, result.status) != std::end(kBroken);
    again = (refused && before > 0 && ++begun < kBegins) || (broken && size_of(part) > before);
    if (refused) fs::resize_file(part, 0);
    if (result.status == kCannotWrite)
      fail(ErrorKind::io, "[pull] cannot write {}: is the disk full?", part.string());
    if (!again) fail_download(request, result);
  }
}

}  // namespace weft::pull
