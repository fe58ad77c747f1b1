#include <cmath>
#include <limits>

#include "backend/cpu/choose.h"
#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"
#include "backend/cpu/wide.h"
#include "base/error.h"

// A reduction walks the kept dims (outputs) and the reduced dims (the elements of one output) apart.
//   rows:    each output folds its own elements, a tile at a time                 x: (outputs, elements)
//   columns: 4096 neighbouring outputs take one element each at a time             x: (elements, outputs)
// When there are few outputs the elements are cut into pieces as well; the pieces depend on the shape alone.

namespace weft::cpu {
namespace {

constexpr int64_t kWide = 4096;  // columns at a time: the longer their rows, the further memory is read ahead
constexpr int64_t kRows = 8;     // of columns at a time: one stream of loads uses half the memory's speed

// A rule folds elements of type T into a Lane, and lanes into an Acc every 16 elements or so, which is where
// float sums move to double: 1e6 elements keep a relative error below 1e-7 at the speed of f32 adders.

template <typename Real>
struct Sum {
  static constexpr bool kFloat = std::is_same_v<Real, float>;
  using T = Real;
  using Lane = std::conditional_t<kFloat, float, uint64_t>;  // unsigned: integers wrap
  using Acc = std::conditional_t<kFloat, double, uint64_t>;
  static constexpr Acc kStart = 0;
  template <typename A, typename V>
  static A step(A a, V v) {
    return a + static_cast<A>(v);
  }
  static T result(Acc a) { return static_cast<T>(a); }
};

template <typename Real>
struct Prod {
  using T = Real;
  using Lane = std::conditional_t<std::is_same_v<Real, float>, double, uint64_t>;
  using Acc = Lane;
  static constexpr Acc kStart = 1;
  template <typename A, typename V>
  static A step(A a, V v) {
    return a * static_cast<A>(v);
  }
  static T result(Acc a) { return static_cast<T>(a); }
};

template <typename Real, bool kLargest>
struct Extreme {
  using T = Real;
  using Lane = Real;
  using Acc = Real;
  using Limits = std::numeric_limits<Real>;
  static constexpr Real kHuge = Limits::has_infinity ? Limits::infinity() : Limits::max();
  static constexpr Real kTiny = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  static constexpr Acc kStart = kLargest ? kTiny : kHuge;
  static T step(T a, T v) {
    const bool take = kLargest ? v > a : v < a;
    return (take | (v != v)) ? v : a;  // once NaN, nothing compares greater
  }
  static void fold(const T* x, int64_t count, T* lanes) { choose_lanes<kLargest>(x, count, lanes); }
  static T result(Acc a) { return a; }
};

template <typename Real, bool kAny>
struct Truth {
  using T = Real;
  using Lane = int32_t;
  using Acc = int32_t;
  static constexpr Acc kStart = kAny ? 0 : 1;
  template <typename V>
  static int32_t step(int32_t a, V v) {
    return kAny ? a | static_cast<int32_t>(v != V{0}) : a & static_cast<int32_t>(v != V{0});
  }
  static int64_t result(Acc a) { return a; }
};

/// How a rule is applied to a tile of a row, and to tiles of columns.
template <typename Rule>
struct Fold {
  using T = typename Rule::T;
  using Lane = typename Rule::Lane;
  using Acc = typename Rule::Acc;
  static constexpr bool kOrdered = false;

  static Acc start() { return Rule::kStart; }
  static Acc join(Acc a, Acc b) { return Rule::step(a, b); }
  static auto result(Acc a) { return Rule::result(a); }

  static constexpr bool kChooses = requires { &Rule::fold; };
  static constexpr int64_t kRun =
      kChooses ? kWide : 256;  // elements of a tile: sums lose digits in long ones

  static Acc add(Acc acc, const T* x, int64_t count, int64_t /*at*/) { return join(acc, tile(x, count)); }
  static Acc tile(const T* x, int64_t count) {
    constexpr int64_t kLanes = kChooses ? kChooseLanes : 16;  // GCC 12 keeps 16 sums in registers
    Lane lanes[kLanes];
    std::fill_n(lanes, kLanes, static_cast<Lane>(Rule::kStart));
    if constexpr (kChooses) {
      Rule::fold(x, count, lanes);
    } else {
      int64_t i = 0;
      for (; i + kLanes <= count; i += kLanes)
        for (int64_t l = 0; l < kLanes; ++l) lanes[l] = Rule::step(lanes[l], x[i + l]);
      for (int64_t l = 0; i + l < count; ++l) lanes[l] = Rule::step(lanes[l], x[i + l]);
    }
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      for (int64_t l = 0; l < half; ++l) lanes[l] = Rule::step(lanes[l], lanes[l + half]);
    return static_cast<Acc>(lanes[0]);
  }

  static constexpr int64_t kLine = 64 / sizeof(T);  // columns

  struct Columns {
    Lane lanes[kWide];
    Acc accs[kWide];
    int rows = 0;

    explicit Columns(int64_t count) {
      std::fill_n(accs, count, Rule::kStart);
      std::fill_n(lanes, count, static_cast<Lane>(Rule::kStart));
    }
    void add(const T* x, int64_t count, int64_t /*at*/) {
      for (int64_t j = 0; j < count; ++j) lanes[j] = Rule::step(lanes[j], x[j]);
      if (++rows >= 16) flush(count);
    }
    void add_rows(const T* x, int64_t stride, int64_t count, int64_t /*at*/) {
      int64_t begin = 0;
      if constexpr (!kChooses) {
        // Meanwhile the next rows come into L2 in the order in which they lie: 73 instead of 57 % of a copy's
        // speed. In bursts of 32 lines that is slower than nothing.
        const T* next = x + kRows * stride;
        for (int64_t ahead = 0; begin + kLine <= count; begin += kLine) {
          for (int64_t r = 0; r < kRows; ++r) __builtin_prefetch(next + ahead + r * kLine, 0, 2);
          ahead += kRows * kLine;
          if (ahead >= count) {
            ahead = 0;
            next += stride;
          }
          Lane line[kLine];  // in registers
          std::fill_n(line, kLine, static_cast<Lane>(Rule::kStart));
          for (int64_t r = 0; r < kRows; ++r)
            for (int64_t l = 0; l < kLine; ++l) line[l] = Rule::step(line[l], x[r * stride + begin + l]);
          for (int64_t l = 0; l < kLine; ++l) accs[begin + l] = Rule::step(accs[begin + l], line[l]);
        }
      }
      for (int64_t j = begin; j < count; ++j) {
        auto lane = static_cast<Lane>(Rule::kStart);
        for (int64_t r = 0; r < kRows; ++r) lane = Rule::step(lane, x[r * stride + j]);
        accs[j] = Rule::step(accs[j], lane);
      }
    }
    void flush(int64_t count) {
      for (int64_t j = 0; j < count; ++j) accs[j] = Rule::step(accs[j], lanes[j]);
      std::fill_n(lanes, count, static_cast<Lane>(Rule::kStart));
      rows = 0;
    }
    void finish(Acc* to, int64_t count) {
      flush(count);
      std::copy_n(accs, count, to);
    }
  };
};

/// The same for the place of the largest or smallest element.
template <typename Real, bool kLargest>
struct Place {
  using T = Real;
  struct Acc {
    T value{};
    int64_t index = -1;  // -1: nothing seen
  };
  static constexpr bool kOrdered = true;

  static Acc start() { return {}; }
  static bool better(T v, T a) {
    const bool beyond = kLargest ? v > a : v < a;
    return beyond | ((v != v) & (a == a));
  }
  static Acc join(Acc a, Acc b) { return a.index < 0 || better(b.value, a.value) ? b : a; }
  static int64_t result(Acc a) { return a.index; }

  static constexpr int64_t kRun = kWide;
  /// The best of every 32nd element says where to look for the best of all: only there.
  static Acc add(Acc acc, const T* x, int64_t count, int64_t at) {
    using Rule = Extreme<T, kLargest>;
    T lanes[kChooseLanes];
    std::fill_n(lanes, kChooseLanes, Rule::kStart);
    Rule::fold(x, count, lanes);
    T best = lanes[0];
    for (const T lane : lanes) best = Rule::step(best, lane);
    if (acc.index >= 0 && !better(best, acc.value)) return acc;
    const auto is_best = [best](T v) { return v == best || ((v != v) & (best != best)); };
    int64_t place = count;
    for (int64_t l = 0; l < std::min(kChooseLanes, count); ++l)
      for (int64_t i = l; i < place && is_best(lanes[l]); i += kChooseLanes)
        if (is_best(x[i])) place = i;
    return {best, at + place};
  }

  struct Columns {
    // As wide as the values, so that both are chosen by one mask; i32 is all that the output can hold.
    using Index = std::conditional_t<std::is_same_v<T, float>, int32_t, int64_t>;
    T values[kWide];
    Index places[kWide];
    bool first = true;

    explicit Columns(int64_t count) {
      std::fill_n(values, count, T{});
      std::fill_n(places, count, Index{-1});
    }
    void add(const T* x, int64_t count, int64_t at) {
      if (first) {
        std::copy_n(x, count, values);
        std::fill_n(places, count, static_cast<Index>(at));
        first = false;
        return;
      }
      for (int64_t j = 0; j < count; ++j) {
        const bool take = better(x[j], values[j]);
        values[j] = take ? x[j] : values[j];
        places[j] = take ? static_cast<Index>(at) : places[j];
      }
    }
    void add_rows(const T* x, int64_t stride, int64_t count, int64_t at) {
      for (int64_t r = 0; r < kRows; ++r) add(x + r * stride, count, at + r);
    }
    void finish(Acc* to, int64_t count) {
      for (int64_t j = 0; j < count; ++j) to[j] = {values[j], places[j]};
    }
  };
};

struct Plan {
  Walk kept, reduced;
  bool columns = false;
};

Plan make_plan(const Layout& in, const std::vector<int64_t>& dims, bool ordered) {
  Plan plan;
  plan.kept.start[0] = in.offset;
  std::vector<Walk::Dim> reduced;
  for (size_t d = 0; d < in.shape.size(); ++d) {
    const int64_t size = in.shape[d], stride = in.strides[d];
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end()) {
      plan.kept.add(size, {stride});
    } else if (ordered || stride >= 0) {
      reduced.push_back({size, {stride}});
    } else {  // order does not matter: walk memory forwards
      if (size > 0) plan.reduced.start[0] += (size - 1) * stride;
      reduced.push_back({size, {-stride}});
    }
  }
  const auto reach = [](const Walk::Dim& dim) {  // expanded dims go outside: a run of one element is no run
    return dim.strides[0] == 0 ? INT64_MAX : dim.strides[0];
  };
  std::stable_sort(reduced.begin(), reduced.end(),
                   [&](const Walk::Dim& a, const Walk::Dim& b) { return reach(a) > reach(b); });
  for (const Walk::Dim& dim : reduced) plan.reduced.add(dim.size, dim.strides);
  const Walk::Dim kept = plan.kept.inner(), inner = plan.reduced.inner();
  plan.columns =
      kept.size >= 8 && (inner.size < 32 || std::abs(kept.strides[0]) < std::abs(inner.strides[0]));
  return plan;
}

/// Outputs [begin, end), elements [from, to) of each.
template <typename F>
void fold_block(const Plan& plan, const Tensor& x, int64_t begin, int64_t end, int64_t from, int64_t to,
                typename F::Acc* accs) {
  typename F::T scratch[kWide];
  const int64_t kept_stride = plan.kept.inner().strides[0], stride = plan.reduced.inner().strides[0];
  const auto rows = [&](int64_t offset) {
    typename F::Acc acc = F::start();
    plan.reduced.runs(from, to, [&](int64_t position, const Walk::Offsets& at, int64_t count) {
      for (int64_t i = 0; i < count; i += F::kRun) {
        const int64_t n = std::min(F::kRun, count - i);
        acc = F::add(acc, view_run(x, offset + at[0] + i * stride, stride, n, scratch), n, position + i);
      }
    });
    return acc;
  };
  const auto columns = [&](int64_t offset, int64_t n, typename F::Acc* result) {
    typename F::Columns folded(n);
    plan.reduced.runs(from, to, [&](int64_t position, const Walk::Offsets& at, int64_t count) {
      const auto row = [&](int64_t i) {
        return view_run(x, offset + at[0] + i * stride, kept_stride, n, scratch);
      };
      int64_t i = 0;
      if (row(0) != scratch)
        for (; i + kRows <= count; i += kRows) folded.add_rows(row(i), stride, n, position + i);
      for (; i < count; ++i) folded.add(row(i), n, position + i);
    });
    folded.finish(result, n);
  };
  plan.kept.runs(begin, end, [&](int64_t position, const Walk::Offsets& at, int64_t count) {
    if (plan.columns) {
      const int64_t width = kept_stride == 1 ? kWide : kTile;  // apart, 1024 would leave L1 between two rows
      for (int64_t j = 0; j < count; j += width)
        columns(at[0] + j * kept_stride, std::min(width, count - j), accs + (position - begin) + j);
    } else {
      for (int64_t j = 0; j < count; ++j) accs[position - begin + j] = rows(at[0] + j * kept_stride);
    }
  });
}

template <typename F>
void store(const typename F::Acc* accs, const Tensor& to, int64_t at, int64_t count) {
  decltype(F::result(F::start())) results[kTile];
  for (int64_t i = 0; i < count; i += kTile) {
    const int64_t n = std::min(kTile, count - i);
    for (int64_t j = 0; j < n; ++j) results[j] = F::result(accs[i + j]);
    store_run(results, n, to, at + i, 1);
  }
}

template <typename F>
void reduce(ThreadPool& pool, const Tensor& x, const Tensor& out, const std::vector<int64_t>& dims) {
  using Acc = typename F::Acc;
  const Plan plan = make_plan(x.layout, dims, F::kOrdered);
  const int64_t outputs = plan.kept.count(), length = plan.reduced.count();
  if (outputs == 0) return;
  const int64_t blocks = (outputs + kWide - 1) / kWide;
  // Columns are cut across rather than along, so that a thread reads what lies together.
  const int64_t work = plan.columns ? length * std::max<int64_t>(std::min(outputs, kWide) / 128, 1) : length;
  const int64_t pieces = std::clamp<int64_t>(work / kGrain, 1, std::max<int64_t>(64 / blocks, 1));
  if (pieces == 1) {
    // Columns: narrower than kWide when there are threads without work, but for whole cache lines.
    const int64_t share = std::clamp<int64_t>(outputs / (int64_t{2} * pool.threads()), 64, kWide);
    const int64_t grain = std::max(plan.columns ? share : 1, kGrain / std::max<int64_t>(length, 1));
    pool.for_each(static_cast<size_t>(outputs), static_cast<size_t>(grain), [&](size_t first, size_t last) {
      Acc accs[kWide];
      const auto end = static_cast<int64_t>(last);
      for (auto begin = static_cast<int64_t>(first); begin < end; begin += kWide) {
        const int64_t n = std::min(kWide, end - begin);
        if (length == 0)
          std::fill_n(accs, n, F::start());
        else
          wide<fold_block<F>>(plan, x, begin, begin + n, 0, length, accs);
        store<F>(accs, out, begin, n);
      }
    });
    return;
  }
  std::vector<Acc> accs(static_cast<size_t>(pieces * outputs), F::start());  // (pieces, outputs)
  pool.for_each(static_cast<size_t>(pieces * blocks), 1, [&](size_t first, size_t last) {
    for (auto task = static_cast<int64_t>(first); task < static_cast<int64_t>(last); ++task) {
      const int64_t piece = task / blocks, begin = task % blocks * kWide;
      wide<fold_block<F>>(plan, x, begin, std::min(begin + kWide, outputs), length * piece / pieces,
                          length * (piece + 1) / pieces, accs.data() + piece * outputs + begin);
    }
  });
  for (int64_t piece = 1; piece < pieces; ++piece)
    for (int64_t j = 0; j < outputs; ++j) {
      Acc& acc = accs[static_cast<size_t>(j)];
      acc = F::join(acc, accs[static_cast<size_t>(piece * outputs + j)]);
    }
  store<F>(accs.data(), out, 0, outputs);
}

using Inputs = std::span<const Tensor>;

template <typename OnFloat, typename OnInteger>
void reduce_as(ThreadPool& pool, Inputs in, Inputs out, const std::vector<int64_t>& dims) {
  if (is_float(in[0].dtype))
    reduce<OnFloat>(pool, in[0], out[0], dims);
  else
    reduce<OnInteger>(pool, in[0], out[0], dims);
}

void check_not_empty(const char* op, const Layout& x, const std::vector<int64_t>& dims) {
  for (int64_t d : dims)
    if (static_cast<size_t>(d) < x.shape.size() && x.shape[static_cast<size_t>(d)] == 0)
      fail(ErrorKind::invalid, "[{}] reduction over an empty dim", op);
}

template <bool kLargest>
void extreme(const char* op, ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  const std::vector<int64_t>& dims = attrs.list("dims");
  check_not_empty(op, in[0].layout, dims);
  reduce_as<Fold<Extreme<float, kLargest>>, Fold<Extreme<int64_t, kLargest>>>(pool, in, out, dims);
}

template <bool kLargest>
void place(const char* op, ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  const size_t dim = dim_of(op, attrs.integer("dim"), in[0].layout.shape.size());
  const std::vector<int64_t> dims = {static_cast<int64_t>(dim)};
  check_not_empty(op, in[0].layout, dims);
  reduce_as<Place<float, kLargest>, Place<int64_t, kLargest>>(pool, in, out, dims);
}

}  // namespace

void reduce_sum(ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  reduce_as<Fold<Sum<float>>, Fold<Sum<int64_t>>>(pool, in, out, attrs.list("dims"));
}

void reduce_prod(ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  reduce_as<Fold<Prod<float>>, Fold<Prod<int64_t>>>(pool, in, out, attrs.list("dims"));
}

void reduce_max(ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  extreme<true>("max", pool, in, out, attrs);
}

void reduce_min(ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  extreme<false>("min", pool, in, out, attrs);
}

void reduce_any(ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  reduce_as<Fold<Truth<float, true>>, Fold<Truth<int64_t, true>>>(pool, in, out, attrs.list("dims"));
}

void reduce_all(ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  reduce_as<Fold<Truth<float, false>>, Fold<Truth<int64_t, false>>>(pool, in, out, attrs.list("dims"));
}

void argmax(ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  place<true>("argmax", pool, in, out, attrs);
}

void argmin(ThreadPool& pool, Inputs in, Inputs out, const Attrs& attrs) {
  place<false>("argmin", pool, in, out, attrs);
}

}  // namespace weft::cpu
