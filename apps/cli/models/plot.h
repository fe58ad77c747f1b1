#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct Point {
  double x, y;
};
struct Curve {
  std::string name;
  std::vector<Point> points;
};
struct Chart {
  std::string title, x_label;
  std::vector<Curve> curves;
};

/// Charts side by side, as an SVG file. All values of x are equally far from each other, y begins at 0.
std::string svg_of(const std::string& title, const std::vector<Chart>& charts);

}  // namespace weft::cli
