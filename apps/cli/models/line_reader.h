#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft::cli {

/// Reads what a person says. On a terminal lines can be edited and earlier ones come back with the arrow
/// keys; elsewhere a line is a line. A line that ends in \ goes on in the next one, """ begins and ends a
/// text of several lines.
class LineReader {
 public:
  explicit LineReader(bool terminal) : terminal_(terminal) {}
  std::optional<std::string> read(const std::string& prompt);  ///< nothing at the end

 private:
  std::optional<std::string> line(const std::string& prompt);
  std::optional<std::string> edited(const std::string& prompt);

  bool terminal_;
  std::vector<std::string> history_;
};

}  // namespace weft::cli
