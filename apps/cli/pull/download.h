#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

/// The program `curl` does the transfers: proxies and certificates are configured for it already.
namespace weft::pull {

struct Request {
  std::string url;
  std::string certificates = {};  ///< a file of authorities to trust instead of the system's
  std::string token = {};         ///< who asks; told to the url's host, and not where it sends us to
};

/// A small text, such as an index page. Throws ErrorKind::io.
std::string download_text(const Request& request);

/// Continues the file `part`, or begins it. A server that cannot continue begins again; a connection that
/// breaks is tried again as long as something arrives. `progress` gets the bytes that are there and the
/// total, 0 while that is not known. Throws ErrorKind::io; what has arrived stays.
void download_file(const Request& request, const std::filesystem::path& part,
                   const std::function<void(uint64_t done, uint64_t total)>& progress);

}  // namespace weft::pull
