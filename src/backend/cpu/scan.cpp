#include <cmath>
#include <limits>

#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"
#include "base/error.h"

namespace weft::cpu {
namespace {

// A rule: State, kStart, step(state, x), value(state). Floats run in double and are rounded on store.

template <typename Real>
struct Wide {
  using T = Real;
  using State = std::conditional_t<std::is_same_v<Real, float>, double, uint64_t>;  // unsigned: integers wrap
  static T value(State s) { return static_cast<T>(s); }
};

template <typename Real>
struct RunningSum : Wide<Real> {
  using State = typename Wide<Real>::State;
  static constexpr State kStart = 0;
  static void step(State& s, Real x) { s += static_cast<State>(x); }
};

template <typename Real>
struct RunningProd : Wide<Real> {
  using State = typename Wide<Real>::State;
  static constexpr State kStart = 1;
  static void step(State& s, Real x) { s *= static_cast<State>(x); }
};

template <typename Real, bool kLargest>
struct RunningExtreme {
  using T = Real;
  using State = Real;
  using Limits = std::numeric_limits<Real>;
  static constexpr Real kHuge = Limits::has_infinity ? Limits::infinity() : Limits::max();
  static constexpr Real kTiny = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  static constexpr State kStart = kLargest ? kTiny : kHuge;
  static void step(State& s, T x) {
    const bool take = kLargest ? x > s : x < s;
    s = (take | (x != x)) ? x : s;  // once NaN, nothing compares greater
  }
  static T value(State s) { return s; }
};

struct RunningLogSumExp {
  using T = float;
  struct State {
    double largest, sum;  // the result is largest + log(sum)
  };
  static constexpr State kStart = {-std::numeric_limits<double>::infinity(), 0};
  static void step(State& s, T x) {
    if (x > s.largest) {
      s = {x, s.sum * std::exp(s.largest - x) + 1};
    } else {
      s.sum += x == s.largest ? 1 : std::exp(x - s.largest);  // equal infinities have no difference
    }
  }
  static T value(const State& s) { return static_cast<float>(s.largest + std::log(s.sum)); }
};

template <typename Rule>
typename Rule::T next(typename Rule::State& state, typename Rule::T x, bool exclusive) {
  const typename Rule::State before = state;
  Rule::step(state, x);
  return Rule::value(exclusive ? before : state);
}

/// `in_at` and `out_at` are the places where the scan of one line starts.
template <typename Rule>
void scan_line(const Lines& lines, const Tensor& in, int64_t in_at, const Tensor& out, int64_t out_at,
               bool exclusive) {
  typename Rule::T scratch[kTile], results[kTile];
  typename Rule::State state = Rule::kStart;
  for (int64_t i = 0; i < lines.size; i += kTile) {
    const int64_t n = std::min(kTile, lines.size - i);
    const auto* x = view_run(in, in_at + i * lines.in_stride, lines.in_stride, n, scratch);
    for (int64_t k = 0; k < n; ++k) results[k] = next<Rule>(state, x[k], exclusive);
    store_run(results, n, out, out_at + i * lines.out_stride, lines.out_stride);
  }
}

/// `count` neighbouring lines at once, one element of each at a time.
template <typename Rule>
void scan_columns(const Lines& lines, const Tensor& in, int64_t in_at, const Tensor& out, int64_t out_at,
                  int64_t count, bool exclusive) {
  typename Rule::T scratch[kTile], results[kTile];
  typename Rule::State states[kTile];
  std::fill_n(states, count, Rule::kStart);
  const Walk::Offsets side = lines.rest.inner().strides;
  for (int64_t i = 0; i < lines.size; ++i) {
    const auto* x = view_run(in, in_at + i * lines.in_stride, side[0], count, scratch);
    for (int64_t j = 0; j < count; ++j) results[j] = next<Rule>(states[j], x[j], exclusive);
    store_run(results, count, out, out_at + i * lines.out_stride, side[1]);
  }
}

template <typename Rule>
void scan(ThreadPool& pool, const Tensor& in, const Tensor& out, Lines lines, bool exclusive) {
  const Walk::Offsets side = lines.rest.inner().strides;
  const bool columns = side[1] == 1;  // the lines lie side by side in the output: dim is not the last one
  const int64_t grain = std::max<int64_t>(columns ? 64 : 1, kGrain / std::max<int64_t>(lines.size, 1));
  pool.for_each(static_cast<size_t>(lines.rest.count()), static_cast<size_t>(grain),
                [&](size_t begin, size_t end) {
                  lines.rest.runs(static_cast<int64_t>(begin), static_cast<int64_t>(end),
                                  [&](int64_t, const Walk::Offsets& at, int64_t count) {
                                    for (int64_t j = 0; j < count; j += columns ? kTile : 1) {
                                      const int64_t in_at = at[0] + j * side[0], out_at = at[1] + j * side[1];
                                      if (columns)
                                        scan_columns<Rule>(lines, in, in_at, out, out_at,
                                                           std::min(kTile, count - j), exclusive);
                                      else
                                        scan_line<Rule>(lines, in, in_at, out, out_at, exclusive);
                                    }
                                  });
                });
}

using Tensors = std::span<const Tensor>;

bool flag_or_false(const Attrs& attrs, std::string_view name) {
  return attrs.has(name) && attrs.flag(name);
}

Lines make_lines(std::string_view op, const Tensor& in, const Tensor& out, const Attrs& attrs) {
  Lines lines = lines_along(op, in.layout, out.layout, attrs.integer("dim"));
  if (flag_or_false(attrs, "reverse") && lines.size > 0) {
    lines.rest.start[0] += (lines.size - 1) * lines.in_stride;
    lines.rest.start[1] += (lines.size - 1) * lines.out_stride;
    lines.in_stride = -lines.in_stride;
    lines.out_stride = -lines.out_stride;
  }
  return lines;
}

template <typename OnFloat, typename OnInteger>
void scan_as(std::string_view op, ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  const Lines lines = make_lines(op, in[0], out[0], attrs);
  const bool exclusive = flag_or_false(attrs, "exclusive");
  if (is_float(in[0].dtype))
    scan<OnFloat>(pool, in[0], out[0], lines, exclusive);
  else
    scan<OnInteger>(pool, in[0], out[0], lines, exclusive);
}

void check_inclusive(std::string_view op, const Attrs& attrs) {
  if (flag_or_false(attrs, "exclusive")) fail(ErrorKind::invalid, "[{}] has no exclusive form", op);
}

}  // namespace

void cumsum(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  scan_as<RunningSum<float>, RunningSum<int64_t>>("cumsum", pool, in, out, attrs);
}

void cumprod(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  scan_as<RunningProd<float>, RunningProd<int64_t>>("cumprod", pool, in, out, attrs);
}

void cummax(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  check_inclusive("cummax", attrs);
  scan_as<RunningExtreme<float, true>, RunningExtreme<int64_t, true>>("cummax", pool, in, out, attrs);
}

void cummin(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  check_inclusive("cummin", attrs);
  scan_as<RunningExtreme<float, false>, RunningExtreme<int64_t, false>>("cummin", pool, in, out, attrs);
}

void logcumsumexp(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  check_inclusive("logcumsumexp", attrs);
  if (!is_float(in[0].dtype))
    fail(ErrorKind::unsupported, "[logcumsumexp] needs floats, got {}", name_of(in[0].dtype));
  scan<RunningLogSumExp>(pool, in[0], out[0], make_lines("logcumsumexp", in[0], out[0], attrs), false);
}

}  // namespace weft::cpu
