#include "support/random_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "array/element.h"
#include "ops/shorthand.h"
#include "weft/compile.h"

namespace weft::test {
namespace {

constexpr int64_t kSizes[] = {0, 1, 2, 3, 5, 8, 17};
constexpr int64_t kMaxElements = 3000;
constexpr double kMaxBound = 300, kMaxError = 0.05;
constexpr size_t kMaxRank = 4;

/// What one more rounding or a library's other way to compute an op may do to a value of magnitude 1.
double rounding(DType dtype) {
  return dtype == DType::f16 ? 1e-3 : dtype == DType::bf16 ? 8e-3 : 4e-6;
}

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) { program_.seed = seed; }

  Program make() {
    const int64_t wanted = between(5, 25);
    for (int64_t i = between(1, 3); i > 0; --i) leaf(random_shape(), random_dtype());
    int64_t made = 0;
    for (int tries = 0; made < wanted && tries < 400; ++tries) made += step() ? 1 : 0;
    for (ProgramNode& node : program_.nodes) node.held = !node.op.empty() && chance(25);
    return std::move(program_);
  }

 private:
  // ---- Chance.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  template <typename T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(between(0, static_cast<int64_t>(list.size()) - 1))];
  }
  int64_t random_size() { return chance(4) ? 0 : kSizes[between(1, 6)]; }
  Shape random_shape() {
    for (;;) {
      Shape shape(static_cast<size_t>(between(0, 4)));
      for (int64_t& n : shape) n = random_size();
      if (element_count(shape) <= kMaxElements / 2) return shape;
    }
  }
  DType random_dtype() {
    const int64_t at = between(0, 99);
    return at < 55   ? DType::f32
           : at < 70 ? DType::i32
           : at < 78 ? DType::u8
           : at < 84 ? DType::boolean
           : at < 92 ? DType::f16
                     : DType::bf16;
  }

  // ---- Nodes.
  ProgramNode& node(size_t i) { return program_.nodes[i]; }
  const Array& array(size_t i) const { return arrays_[i]; }
  size_t last() const { return arrays_.size() - 1; }

  size_t leaf_of(const std::vector<float>& values, const Shape& shape, DType dtype, double bound) {
    ProgramNode made;
    made.leaf = as(Array::from_vector(values, shape), dtype).to_host();
    made.bound = bound;
    arrays_.push_back(Array::from_host(made.leaf));
    program_.nodes.push_back(std::move(made));
    return last();
  }

  /// Eighths between -4 and 4, whole numbers, 0 and 1: exact in every dtype.
  size_t leaf(const Shape& shape, DType dtype) {
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& v : values)
      v = static_cast<float>(is_float(dtype)       ? static_cast<double>(between(-32, 32)) / 8
                             : dtype == DType::i32 ? static_cast<double>(between(-100, 100))
                             : dtype == DType::u8  ? static_cast<double>(between(0, 255))
                                                   : static_cast<double>(between(0, 1)));
    return leaf_of(values, shape, dtype,
                   is_float(dtype)       ? 4
                   : dtype == DType::i32 ? 100
                   : dtype == DType::u8  ? 255
                                         : 1);
  }

  size_t indices(const Shape& shape, int64_t below) {
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& v : values) v = static_cast<float>(between(0, below - 1));
    return leaf_of(values, shape, DType::i32, static_cast<double>(below));
  }

  /// Adds a node unless its result would be too large, in either sense.
  bool add(std::string op, std::vector<size_t> inputs, Attrs attrs, double bound, double error) {
    std::vector<Array> given;
    for (size_t i : inputs) given.push_back(array(i));
    const Array result = call(op, given, attrs);
    if (result.size() > kMaxElements || result.ndim() > kMaxRank) return false;
    if (is_float(result.dtype())) {
      if (!(bound <= kMaxBound) || !(error <= kMaxError)) return false;
    } else {
      error = 0;
      if (result.dtype() == DType::u8) bound = 255;
      if (result.dtype() == DType::boolean) bound = 1;
    }
    ProgramNode made;
    made.op = std::move(op);
    made.inputs = std::move(inputs);
    made.attrs = std::move(attrs);
    made.bound = bound;
    made.error = error;
    program_.nodes.push_back(std::move(made));
    arrays_.push_back(result);
    return true;
  }
  /// The same values in other places.
  bool move(std::string op, size_t x, Attrs attrs) {
    return add(std::move(op), {x}, std::move(attrs), node(x).bound, node(x).error);
  }

  /// Mostly the newest result, so that chains grow.
  size_t pick() {
    const auto count = static_cast<int64_t>(arrays_.size());
    if (chance(55)) return last();
    return static_cast<size_t>(between(chance(40) ? std::max<int64_t>(0, count - 4) : 0, count - 1));
  }

  static bool broadcasts(const Shape& a, const Shape& b) {
    for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
      const int64_t m = a[a.size() - i], n = b[b.size() - i];
      if (m != n && m != 1 && n != 1) return false;
    }
    return true;
  }

  /// A node, or a new leaf, that can be an operand beside x.
  size_t partner(size_t x, DType dtype) {
    std::vector<size_t> fitting;
    for (size_t i = 0; i < arrays_.size(); ++i)
      if (array(i).dtype() == dtype && broadcasts(array(i).shape(), array(x).shape())) fitting.push_back(i);
    if (!fitting.empty() && chance(70)) return one_of(fitting);
    Shape shape = array(x).shape();
    while (!shape.empty() && chance(20)) shape.erase(shape.begin());
    for (int64_t& n : shape)
      if (chance(25))
        n = 1;
      else if (n == 1 && chance(30))
        n = between(1, 3);
    return leaf(shape, dtype);
  }

  int64_t random_dim(size_t x) { return between(0, static_cast<int64_t>(array(x).ndim()) - 1); }

  // ---- Ops.
  bool step() {
    const size_t x = pick();
    const int64_t kind = between(0, 99);
    if (kind < 22) return unary(x);
    if (kind < 46) return binary(x);
    if (kind < 52) return choose(x);
    if (kind < 58) return convert(x);
    if (kind < 80) return movement(x);
    if (kind < 90) return reduction(x);
    if (kind < 97) return indexing(x);
    return product(x);
  }

  bool unary(size_t x) {
    const DType dtype = array(x).dtype();
    const double b = node(x).bound, e = node(x).error;
    if (dtype == DType::boolean) return add("logical_not", {x}, {}, 1, 0);
    if (!is_float(dtype) && chance(25))
      return add("clamp", {x}, {{"min", dtype == DType::u8 ? 20.0 : -50.0}, {"max", 60.0}}, 60, 0);
    if (!is_float(dtype))
      return add(one_of<std::string>({"neg", "abs", "square"}), {x}, {}, b > 1e4 ? 1e10 : b * b + 1, 0);
    const double own = rounding(dtype);
    switch (between(0, 7)) {
      case 0:
        return add("neg", {x}, {}, b, e);
      case 1:
        return add("abs", {x}, {}, b, e);
      case 2:
        return add("square", {x}, {}, b * b, 2 * b * e + own * b * b);
      case 3:
        return add("tanh", {x}, {}, 1, e + 4 * own);
      case 4:
        return add("sigmoid", {x}, {}, 1, e + 4 * own);
      case 5:
        return add("clamp", {x}, {{"min", -2.0}, {"max", 2.5}}, std::min(b, 2.5), e);
      case 6:
        if (b > 4 && !add("clamp", {x}, {{"min", -4.0}, {"max", 2.0}}, 4, e)) return false;
        return add("exp", {b > 4 ? last() : x}, {}, 55, (b > 4 ? 8 : 55) * e + 55 * 4 * own);
      default:
        return add("affine", {x}, {{"mul", 0.5}, {"add", -1.25}}, b / 2 + 1.25, e + own * (b + 1));
    }
  }

  bool binary(size_t x) {
    const DType dtype = array(x).dtype();
    const size_t y = partner(x, dtype);
    std::vector<size_t> pair = chance(50) ? std::vector<size_t>{x, y} : std::vector<size_t>{y, x};
    const double bx = node(x).bound, by = node(y).bound, ex = node(x).error, ey = node(y).error;
    const double own = is_float(dtype) ? rounding(dtype) : 0;
    // Whether computed floats are the same or not is chance.
    const bool exact = ex == 0 && ey == 0;
    if (dtype == DType::boolean)
      return add(one_of<std::string>({"logical_and", "logical_or", "logical_xor", "bitwise_xor"}), pair, {},
                 1, 0);
    switch (between(0, exact ? 6 : 5)) {
      case 0:
        return add("add", pair, {}, bx + by, ex + ey + own * (bx + by));
      case 1:
        return add("sub", pair, {}, bx + by, ex + ey + own * (bx + by));
      case 2:
      case 3:
        return add("mul", pair, {}, bx * by, ex * by + ey * bx + ex * ey + own * bx * by);
      case 4:
        return add("maximum", pair, {}, std::max(bx, by), std::max(ex, ey));
      case 5:
        return add("minimum", pair, {}, std::max(bx, by), std::max(ex, ey));
      default:
        return add(one_of<std::string>({"eq", "ne", "lt", "le", "gt", "ge"}), pair, {}, 1, 0);
    }
  }

  bool choose(size_t x) {
    const size_t condition = partner(x, DType::boolean);
    const size_t y = partner(x, array(x).dtype());
    if (!broadcasts(array(condition).shape(), array(y).shape())) return false;
    return add("where", {condition, x, y}, {}, std::max(node(x).bound, node(y).bound),
               std::max(node(x).error, node(y).error));
  }

  bool convert(size_t x) {
    const DType from = array(x).dtype();
    const DType to = random_dtype();
    const double b = node(x).bound, e = node(x).error;
    if (from == to) return false;
    // Floats that are not exact may be on either side of a whole number; only values in range are defined.
    if (is_float(from) && !is_float(to) && (e != 0 || to == DType::u8)) return false;
    if (!is_float(from) && is_float(to) && b > kMaxBound) return false;
    const bool rounds = (to == DType::f16 || to == DType::bf16) && from != DType::boolean;
    return add("to_dtype", {x}, {{"dtype", std::string(name_of(to))}}, b,
               e + (rounds ? rounding(to) * b : 0));
  }

  bool movement(size_t x) {
    const Shape& shape = array(x).shape();
    const auto rank = static_cast<int64_t>(shape.size());
    switch (between(0, 7)) {
      case 0:
        return move("reshape", x, {{"shape", Ints(reshaped(shape))}});
      case 1: {
        Ints dims(shape.size());
        for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int64_t>(i);
        for (size_t i = dims.size(); i > 1; --i)
          std::swap(dims[i - 1], dims[static_cast<size_t>(between(0, static_cast<int64_t>(i) - 1))]);
        return move("permute", x, {{"dims", dims}});
      }
      case 2: {
        Shape to = shape;
        for (int64_t& n : to)
          if (n == 1 && chance(60)) n = between(0, 5);
        if (to.size() < kMaxRank && chance(50)) to.insert(to.begin(), between(1, 3));
        return move("expand", x, {{"shape", Ints(to)}});
      }
      case 3:
      case 4: {
        if (rank == 0) return false;
        if (chance(30))  // the first elements, in the order of the whole
          return move("slice", x, {{"starts", Ints{0}}, {"stops", Ints{between(0, shape[0])}}});
        Ints starts, stops, steps;
        for (int64_t i = between(1, rank), at = 0; at < i; ++at) {
          const int64_t n = shape[static_cast<size_t>(at)];
          const bool whole = chance(40);
          starts.push_back(whole || chance(30) ? kNone : between(-n - 2, n + 2));
          stops.push_back(whole || chance(30) ? kNone : between(-n - 2, n + 2));
          steps.push_back(one_of<int64_t>({1, 1, 1, 2, 3, -1, -1, -2, -3}));
        }
        return move("slice", x, {{"starts", starts}, {"stops", stops}, {"steps", steps}});
      }
      case 5: {
        Ints dims;
        for (int64_t d = 0; d < rank; ++d)
          if (chance(50)) dims.push_back(d);
        return move("flip", x, {{"dims", dims}});
      }
      case 6: {
        if (rank == 0) return false;
        Ints pads;
        for (int64_t n : shape)
          for (int side = 0; side < 2; ++side) pads.push_back(chance(50) ? 0 : between(n >= 2 ? -1 : 0, 2));
        return add("pad", {x}, {{"pads", pads}, {"value", 1.0}}, std::max(node(x).bound, 1.0), node(x).error);
      }
      default: {
        if (rank == 0) return false;
        const int64_t dim = random_dim(x);
        std::vector<size_t> parts = {x};
        for (int64_t i = between(1, 2); i > 0; --i) parts.push_back(beside(x, dim));
        if (chance(50)) std::swap(parts.front(), parts.back());
        double bound = 0, error = 0;
        for (size_t p : parts) bound = std::max(bound, node(p).bound), error = std::max(error, node(p).error);
        return add("cat", parts, {{"dim", dim}}, bound, error);
      }
    }
  }

  Shape reshaped(const Shape& shape) {
    Shape to = shape;
    for (int64_t rounds = between(1, 3); rounds > 0; --rounds) {
      const auto rank = static_cast<int64_t>(to.size());
      if (rank >= 2 && chance(50)) {  // merge
        const int64_t at = between(0, rank - 2);
        to[static_cast<size_t>(at)] *= to[static_cast<size_t>(at) + 1];
        to.erase(to.begin() + at + 1);
      } else if (rank >= 1 && to.size() < kMaxRank) {  // split
        const int64_t at = between(0, rank - 1), n = to[static_cast<size_t>(at)];
        std::vector<int64_t> factors;
        for (int64_t f = 1; f <= n; ++f)
          if (n % f == 0) factors.push_back(f);
        const int64_t f = factors.empty() ? 3 : one_of(factors);
        to[static_cast<size_t>(at)] = n / f;
        to.insert(to.begin() + at + between(0, 1), f);
      } else if (rank == 0) {
        to.push_back(1);
      }
    }
    return to;
  }

  /// A node or a new leaf with x's shape but along dim.
  size_t beside(size_t x, int64_t dim) {
    std::vector<size_t> fitting;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (array(i).dtype() != array(x).dtype() || array(i).ndim() != array(x).ndim()) continue;
      Shape shape = array(i).shape();
      shape[static_cast<size_t>(dim)] = array(x).shape(dim);
      if (shape == array(x).shape()) fitting.push_back(i);
    }
    if (chance(60)) return one_of(fitting);
    Shape shape = array(x).shape();
    shape[static_cast<size_t>(dim)] = between(0, 3);
    return leaf(shape, array(x).dtype());
  }

  bool reduction(size_t x) {
    const DType dtype = array(x).dtype();
    const Shape& shape = array(x).shape();
    const double b = node(x).bound, e = node(x).error, own = is_float(dtype) ? rounding(dtype) : 0;
    Ints dims;
    int64_t count = 1;
    for (size_t d = 0; d < shape.size(); ++d)
      if (chance(50)) dims.push_back(static_cast<int64_t>(d)), count *= shape[d];
    const Attrs attrs = {{"dims", dims}, {"keepdim", chance(50)}};
    const auto n = static_cast<double>(count);
    if (dtype == DType::boolean) return add(one_of<std::string>({"any", "all"}), {x}, attrs, 1, 0);
    const int64_t kind = between(0, is_float(dtype) ? 5 : 2);
    if (kind == 0) return add("sum", {x}, attrs, n * b, n * (e + 2 * rounding(DType::f32) * b) + own * n * b);
    if (kind == 1) return count > 0 && add(one_of<std::string>({"max", "min"}), {x}, attrs, b, e);
    if (kind == 3) return count > 0 && add("mean", {x}, attrs, b, e + 4 * own * b);
    if (shape.empty()) return false;
    const int64_t dim = random_dim(x);
    const auto along = static_cast<double>(shape[static_cast<size_t>(dim)]);
    if (kind >= 4) return along > 0 && add("softmax", {x}, {{"dim", dim}}, 1, 2 * e + 8 * own);
    return add("cumsum", {x}, {{"dim", dim}, {"reverse", chance(40)}, {"exclusive", chance(30)}}, along * b,
               along * (e + 2 * rounding(DType::f32) * b) + own * along * b);
  }

  bool indexing(size_t x) {
    const Shape shape = array(x).shape();
    if (shape.empty()) return false;
    const int64_t dim = random_dim(x), n = shape[static_cast<size_t>(dim)];
    const double b = node(x).bound, e = node(x).error;
    const int64_t kind = between(0, 2);
    if (kind == 0 && array(x).dtype() != DType::boolean)
      return add("sort", {x}, {{"dim", dim}, {"descending", chance(50)}}, b, e);
    if (n == 0) return false;
    if (kind == 1) {
      const size_t idx = indices({between(0, 6)}, n);
      return add("index_select", {x, idx}, {{"dim", dim}}, b, e);
    }
    Shape to = shape;
    for (int64_t& size : to)
      if (size > 1 && chance(40)) size = between(1, size);
    to[static_cast<size_t>(dim)] = between(1, 6);
    const size_t idx = indices(to, n);
    return add("gather", {x, idx}, {{"dim", dim}}, b, e);
  }

  bool product(size_t x) {
    const Shape& shape = array(x).shape();
    if (shape.empty() || !is_float(array(x).dtype())) return false;
    const DType dtype = array(x).dtype();
    const int64_t k = shape.back();
    const double n = static_cast<double>(k), b = node(x).bound, e = node(x).error;
    const size_t w = leaf(chance(30) ? Shape{k} : Shape{k, one_of<int64_t>({1, 2, 3, 5, 8, 17})}, dtype);
    return add("matmul", {x, w}, {}, n * b * 4,
               n * 4 * (e + 2 * rounding(DType::f32) * b) + rounding(dtype) * n * b * 4);
  }

  std::mt19937_64 random_;
  Program program_;
  std::vector<Array> arrays_;  // never evaluated: they know shapes and dtypes
};

std::string to_string(const AttrValue& value) {
  struct Printer {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(const std::string& v) const { return v; }
    std::string operator()(const std::vector<int64_t>& v) const {
      std::string text = "[";
      for (int64_t i : v) text += (text.size() > 1 ? "," : "") + (i == kNone ? "none" : fmt::format("{}", i));
      return text + "]";
    }
  };
  return std::visit(Printer{}, value);
}

/// Lazy arrays of all nodes.
std::vector<Array> build(const Program& program, const Device& device, bool each) {
  std::vector<Array> arrays;
  for (const ProgramNode& node : program.nodes) {
    std::vector<Array> inputs;
    for (size_t i : node.inputs) inputs.push_back(arrays[i]);
    arrays.push_back(node.op.empty() ? Array::from_host(node.leaf, device)
                                     : call(node.op, std::move(inputs), node.attrs));
    if (each) eval(arrays.back());
  }
  return arrays;
}

}  // namespace

std::vector<size_t> Program::results() const {
  std::vector<bool> used(nodes.size());
  for (const ProgramNode& node : nodes)
    for (size_t i : node.inputs) used[i] = true;
  std::vector<size_t> free;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (!used[i] && !nodes[i].op.empty()) free.push_back(i);
  return free;
}

std::vector<size_t> Program::compared() const {
  const std::vector<size_t> ends = results();
  std::vector<size_t> all = ends;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].held && std::ranges::find(ends, i) == ends.end()) all.push_back(i);
  return all;
}

Program random_program(uint64_t seed) {
  return Generator(seed).make();
}

std::string to_string(const Program& program) {
  std::string text = fmt::format("seed {}\n", program.seed);
  const std::vector<Array> arrays = build(program, {}, false);
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const ProgramNode& node = program.nodes[i];
    text += fmt::format("%{}{} {}{} = {}(", i, node.held ? " held" : "", name_of(arrays[i].dtype()),
                        weft::to_string(arrays[i].shape()), node.op.empty() ? "leaf" : node.op);
    for (size_t k = 0; k < node.inputs.size(); ++k)
      text += fmt::format("{}%{}", k ? ", " : "", node.inputs[k]);
    if (node.op.empty())
      for (size_t k = 0; k < std::min<size_t>(8, static_cast<size_t>(arrays[i].size())); ++k)
        text += fmt::format("{}{}", k ? " " : "", number_at(node.leaf, k));
    for (const auto& [name, value] : node.attrs.values())
      text += fmt::format(" {}={}", name, to_string(value));
    text += ")\n";
  }
  return text;
}

namespace {

std::vector<Array> compared_of(const Program& program, const Device& device, bool each) {
  const std::vector<Array> arrays = build(program, device, each);
  std::vector<Array> compared;
  for (size_t i : program.compared()) compared.push_back(arrays[i]);
  return compared;
}

}  // namespace

std::vector<HostTensor> run_program(const Program& program, const Device& device, Running how) {
  std::vector<Array> compared;
  if (how == Running::recorded)
    compared = compile([&](const std::vector<Array>&) { return compared_of(program, device, false); })({});
  else
    compared = compared_of(program, device, how == Running::apart);
  eval(std::span(compared).first(program.results().size()));
  std::vector<HostTensor> values;
  for (const Array& array : compared) values.push_back(array.to_host());
  return values;
}

std::string difference(const Program& program, const std::vector<HostTensor>& got,
                       const std::vector<HostTensor>& want) {
  const std::vector<size_t> compared = program.compared();
  for (size_t r = 0; r < compared.size(); ++r) {
    const HostTensor &a = got[r], &b = want[r];
    if (a.dtype != b.dtype || a.shape != b.shape)
      return fmt::format("%{}: {}{} instead of {}{}", compared[r], name_of(a.dtype), weft::to_string(a.shape),
                         name_of(b.dtype), weft::to_string(b.shape));
    const double relative = b.dtype == DType::f16    ? 1e-2
                            : b.dtype == DType::bf16 ? 5e-2
                            : is_float(b.dtype)      ? 1e-4
                                                     : 0;
    for (size_t i = 0; i < static_cast<size_t>(element_count(b.shape)); ++i) {
      const double x = number_at(a, i), y = number_at(b, i);
      if (x == y || (!std::isfinite(x) && !std::isfinite(y))) continue;
      if (std::abs(x - y) <= std::max(relative * (1 + std::abs(y)), program.nodes[compared[r]].error))
        continue;
      return fmt::format("%{}[{}] is {} instead of {}", compared[r], i, x, y);
    }
  }
  return "";
}

Program minimal(Program program, const Device& device, Verdict verdict) {
  while (program.nodes.size() > 1) {
    Program shorter = program;
    shorter.nodes.pop_back();
    if (verdict(shorter, device).empty()) break;
    program = std::move(shorter);
  }
  // The last node cannot be dropped, so it is the one, or it is what the one fuses with: try every other.
  for (size_t at = program.nodes.size(); at-- > 0;) {
    const auto uses = [&](const ProgramNode& node) { return std::ranges::count(node.inputs, at) > 0; };
    if (std::ranges::any_of(program.nodes, uses)) continue;
    Program without = program;
    without.nodes.erase(without.nodes.begin() + static_cast<std::ptrdiff_t>(at));
    for (ProgramNode& node : without.nodes)
      for (size_t& i : node.inputs) i -= i > at ? 1 : 0;
    if (!verdict(without, device).empty()) program = std::move(without);
  }
  return program;
}

}  // namespace weft::test
