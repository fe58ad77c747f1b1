// Arrays as text.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "array/element.h"
#include "base/error.h"
#include "weft/array.h"

namespace weft {
namespace {

constexpr int64_t kMaxShown = 1000, kEdge = 3;  // longer arrays show three elements at both ends of a dim
constexpr size_t kLineWidth = 80;
constexpr std::string_view kStart = "array(";

/// How the floats of one array are written: all whole, all with four digits, or all with an exponent.
enum class Notation { whole, fixed, exponent };

Notation notation_of(const std::vector<double>& values) {
  double largest = 0, smallest = INFINITY;
  bool whole = true;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    whole = whole && v == std::floor(v);
    largest = std::max(largest, std::abs(v));
    if (v != 0) smallest = std::min(smallest, std::abs(v));
  }
  if (largest > 1e8 || (!whole && (smallest < 1e-4 || largest / smallest > 1e3))) return Notation::exponent;
  return whole ? Notation::whole : Notation::fixed;
}

std::string text_of(double value, Notation notation) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (notation == Notation::whole) return fmt::format("{:.0f}.", value);
  return notation == Notation::fixed ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
}

class Printer {
 public:
  explicit Printer(const HostTensor& tensor)
      : shape_(tensor.shape), shortened_(element_count(tensor.shape) > kMaxShown) {
    collect(0, 0);
    if (is_float(tensor.dtype)) {
      std::vector<double> values;
      for (const size_t i : shown_) values.push_back(number_at(tensor, i));
      const Notation notation = notation_of(values);
      for (const double v : values) texts_.push_back(text_of(v, notation));
    } else {
      for (const size_t i : shown_)
        texts_.push_back(tensor.dtype == DType::boolean ? (number_at(tensor, i) != 0 ? "true" : "false")
                                                        : fmt::to_string(number_at<int64_t>(tensor, i)));
    }
    for (const std::string& text : texts_) width_ = std::max(width_, text.size());
  }

  bool shortened() const { return shortened_; }

  /// The brackets of a dim and all inside of it, from the next element on.
  std::string print(size_t dim) {
    if (dim == shape_.size()) return fmt::format("{:>{}}", texts_[next_++], width_);
    const std::string indent(kStart.size() + dim + 1, ' ');
    const bool inner = dim + 1 == shape_.size();
    const std::string between =
        inner ? ", "
              : "," + std::string(shape_.size() - dim - 1, '\n') + indent;  // blank lines part matrices
    std::string text = "[", line;
    const auto add = [&](const std::string& part, bool last) {
      if (inner && !line.empty() && indent.size() + line.size() + part.size() + 1 > kLineWidth) {
        line.pop_back();  // the space before the next element
        text += line + "\n" + indent;
        line.clear();
      }
      line += part;
      if (!last) line += between;
    };
    const int64_t size = shape_[dim];
    for (int64_t i = 0; i < size; ++i) {
      if (skips(size, i)) {
        if (i == kEdge) add("...", false);
        continue;
      }
      add(print(dim + 1), i + 1 == size);
    }
    return text + line + "]";
  }

 private:
  bool skips(int64_t size, int64_t i) const { return shortened_ && i >= kEdge && i < size - kEdge; }

  /// The places of the elements that are shown, in order.
  void collect(size_t dim, size_t at) {
    if (dim == shape_.size()) {
      shown_.push_back(at);
      return;
    }
    for (int64_t i = 0; i < shape_[dim]; i = skips(shape_[dim], i + 1) ? shape_[dim] - kEdge : i + 1)
      collect(dim + 1, at * static_cast<size_t>(shape_[dim]) + static_cast<size_t>(i));
  }

  Shape shape_;
  bool shortened_;
  std::vector<size_t> shown_;
  std::vector<std::string> texts_;
  size_t width_ = 0, next_ = 0;
};

}  // namespace

std::string to_string(const Array& array) {
  if (!array) return "array()";
  const HostTensor host = array.to_host();
  Printer printer(host);
  std::string text(kStart);
  text += host.shape.empty() || array.size() > 0 ? printer.print(0) : "[]";
  if (array.size() == 0 || printer.shortened()) text += ", shape=" + to_string(host.shape);
  const bool evident = host.dtype == DType::f32 ||
                       (array.size() > 0 && (host.dtype == DType::i32 || host.dtype == DType::boolean));
  if (!evident) text += fmt::format(", dtype={}", name_of(host.dtype));
  if (array.device() != Device()) text += ", device=" + array.device().name();
  return text + ")";
}

std::ostream& operator<<(std::ostream& stream, const Array& array) {
  return stream << to_string(array);
}

}  // namespace weft
