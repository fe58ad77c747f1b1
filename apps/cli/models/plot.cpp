#include "models/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace weft::cli {
namespace {

constexpr double kWidth = 420, kHeight = 300, kLeft = 60, kRight = 20, kTop = 70, kBottom = 50;  // of a chart
constexpr const char* kColours[] = {"#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#475569"};

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  }
  return result;
}

std::string label(double x, double y, const char* anchor, const std::string& text,
                  const char* colour = "#111") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", x, y,
                     anchor, colour, escaped(text));
}

std::string line(double x0, double y0, double x1, double y1) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", x0,
                     y0, x1, y1);
}

/// 1, 2 or 5 times a power of ten, so that at most five of them reach `most`.
double grid_step(double most) {
  const double power = std::pow(10, std::floor(std::log10(std::max(most, 1e-9) / 5)));
  for (double factor : {1.0, 2.0, 5.0})
    if (most / (factor * power) <= 5) return factor * power;
  return 10 * power;
}

std::string drawn(const Chart& chart, double left) {
  std::set<double> xs;
  double most = 0;
  for (const Curve& curve : chart.curves)
    for (const Point& point : curve.points) {
      xs.insert(point.x);
      most = std::max(most, point.y);
    }
  const double step = grid_step(most), top = std::ceil(1.1 * most / step) * step;  // with room for numbers
  const double x0 = left + kLeft, x1 = left + kWidth - kRight, y0 = kHeight - kBottom, y1 = kTop;
  const auto x_at = [&](double x) {
    const auto rank = static_cast<double>(std::distance(xs.begin(), xs.find(x)));
    return x0 + (rank + 0.5) / static_cast<double>(xs.size()) * (x1 - x0);
  };
  const auto y_at = [&](double y) { return y0 - y / top * (y0 - y1); };

  std::string out = label((x0 + x1) / 2, kTop - 24, "middle", chart.title);
  out += label((x0 + x1) / 2, kHeight - 12, "middle", chart.x_label);
  for (int rung = 0; rung <= std::lround(top / step); ++rung) {
    const double y = rung * step;
    out += line(x0, y_at(y), x1, y_at(y));
    out += label(x0 - 6, y_at(y) + 4, "end", fmt::format("{:g}", y));
  }
  for (double x : xs) out += label(x_at(x), y0 + 18, "middle", fmt::format("{:g}", x));
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const char* colour = kColours[i % std::size(kColours)];
    std::string path;
    for (const Point& point : chart.curves[i].points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_at(point.x), y_at(point.y));
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x_at(point.x),
                         y_at(point.y), colour);
      out += label(x_at(point.x), y_at(point.y) - 7, "middle", fmt::format("{:.4g}", point.y), colour);
    }
    out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", path, colour);
    if (chart.curves.size() > 1)
      out += label(x0 + 70 * static_cast<double>(i), kTop - 8, "start", chart.curves[i].name, colour);
  }
  return out;
}

}  // namespace

std::string svg_of(const std::string& title, const std::vector<Chart>& charts) {
  const double width = kWidth * static_cast<double>(std::max<size_t>(charts.size(), 1));
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, kHeight);
  out += label(kLeft, 22, "start", title);
  for (size_t i = 0; i < charts.size(); ++i) out += drawn(charts[i], kWidth * static_cast<double>(i));
  return out + "</svg>\n";
}

}  // namespace weft::cli
