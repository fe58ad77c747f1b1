#include "llm/stop_finder.h"

#include <algorithm>
#include <utility>

namespace weft::llm {

StopFinder::StopFinder(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopFinder::push(std::string_view text) {
  if (found_) return "";
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    found_ = true;
    held_.resize(first);
    return std::exchange(held_, "");
  }
  size_t keep = 0;  // the longest end that a stop begins with
  for (const std::string& stop : stops_)
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > keep; --size)
      if (held_.ends_with(std::string_view(stop).substr(0, size))) keep = size;
  std::string sure = held_.substr(0, held_.size() - keep);
  held_.erase(0, sure.size());
  return sure;
}

std::string StopFinder::finish() {
  return std::exchange(held_, "");
}

}  // namespace weft::llm
