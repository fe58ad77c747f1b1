// Matrix products. Everything is composed down to matmul_batched.
#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "ops/shorthand.h"

namespace weft {
namespace {

using Specs = std::vector<OutputSpec>;
using Arrays = std::vector<Array>;

// ---- Primitives.
// ------------------------------------------------------------------------------------------------

Specs infer_matmul(const OpCall& c) {
  const Array &a = c.inputs[0], &b = c.inputs[1];
  Shape shape = a.shape();
  shape.back() = b.shape(-1);
  return {{shape, c.attrs.has("dtype") ? dtype_from_name(c.attrs.text("dtype")) : a.dtype()}};
}

Arrays matmul_gradient(const GradCall& c) {
  const Array &a = c.inputs[0], &b = c.inputs[1], g = as(c.output_grads[0], a.dtype());
  Attrs wide;  // a broadcast operand's is summed before it is rounded
  if (is_half(a.dtype())) wide.set("dtype", std::string("f32"));
  return {call("matmul_batched", {g, transpose(b, -2, -1)}, wide),
          call("matmul_batched", {transpose(a, -2, -1), g}, wide)};
}

std::vector<Op> primitive_rows() {
  return {
      // a (.., m, k), b (.., k, n), equal batch dims -> (.., m, n); halves into f32 where `dtype` says so
      {.name = "matmul_batched",
       .kind = OpKind::primitive,
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {{"dtype", {}}},
       .infer = infer_matmul,
       .gradient = matmul_gradient,
       .is_product = true},
  };
}

// ---- matmul, linear, outer.
// -------------------------------------------------------------------------------------

void check_operands(std::string_view op, const Array& a, const Array& b) {
  if (a.dtype() != b.dtype())
    fail(ErrorKind::invalid, "[{}] inputs are {} and {}; convert one with to_dtype", op, name_of(a.dtype()),
         name_of(b.dtype()));
  if (!is_float(a.dtype()) && a.dtype() != DType::i32 && a.dtype() != DType::u32 && a.dtype() != DType::i64)
    fail(ErrorKind::invalid, "[{}] {} cannot be multiplied; convert to f32 or i32 with to_dtype", op,
         name_of(a.dtype()));
}

/// torch.matmul. The result has the operands' dtype, or `out`.
Array product(std::string_view op, const Array& left, const Array& right, DType out) {
  check_operands(op, left, right);
  if (left.ndim() == 0 || right.ndim() == 0)
    fail(ErrorKind::invalid, "[{}] a scalar has no rows or columns: {} x {}", op, to_string(left.shape()),
         to_string(right.shape()));
  Array a = left.ndim() == 1 ? unsqueeze(left, 0) : left;
  Array b = right.ndim() == 1 ? unsqueeze(right, 1) : right;
  const int64_t m = a.shape(-2), k = a.shape(-1), n = b.shape(-1);
  if (b.shape(-2) != k)
    fail(ErrorKind::invalid, "[{}] inner dimensions differ: {} x {}", op, to_string(left.shape()),
         to_string(right.shape()));

  Shape result(a.shape().begin(), a.shape().end() - 2);
  if (b.ndim() ==
      2) {  // one tall matrix: the gradient of b is then one product too, not a sum over the batch
    a = reshape(a, {element_count(result) * m, k});
  } else {
    result = broadcast_shapes(op, result, Shape(b.shape().begin(), b.shape().end() - 2));
    const auto spread = [&](const Array& x) {
      Shape shape = result;
      shape.insert(shape.end(), {x.shape(-2), x.shape(-1)});
      return expand(x, shape);
    };
    a = spread(a), b = spread(b);
  }
  Attrs attrs;
  if (out != a.dtype()) attrs.set("dtype", std::string(name_of(out)));
  if (left.ndim() > 1) result.push_back(m);
  if (right.ndim() > 1) result.push_back(n);
  return reshape(call("matmul_batched", {a, b}, attrs), result);
}

Array linear_form(const OpCall& c) {
  const Array &x = c.inputs[0], &w = c.inputs[1];
  const Array bias = c.inputs.size() > 2 ? c.inputs[2] : Array();
  if (w.ndim() != 2)
    fail(ErrorKind::invalid, "[linear] the weight has shape {}, expected (outputs, inputs)",
         to_string(w.shape()));
  const Array wt = transpose(w, 0, 1);
  if (!bias) return product("linear", x, wt, x.dtype());
  check_operands("linear", x, bias);
  if (bias.shape() != Shape{w.shape(0)})
    fail(ErrorKind::invalid, "[linear] the bias has shape {}, expected ({})", to_string(bias.shape()),
         w.shape(0));
  // Halves are rounded once, after the bias.
  const DType wide = is_half(x.dtype()) ? DType::f32 : x.dtype();
  return as(product("linear", x, wt, wide) + as(bias, wide), x.dtype());
}

Array outer(const OpCall& c) {
  const Array &a = c.inputs[0], &b = c.inputs[1];
  if (a.ndim() != 1 || b.ndim() != 1)
    fail(ErrorKind::invalid, "[outer] takes two vectors, not {} and {}", to_string(a.shape()),
         to_string(b.shape()));
  return unsqueeze(a, 1) * unsqueeze(b, 0);
}

// ---- einsum: operands with labelled dims, multiplied in pairs.
// --------------------------------------------------

/// Letters are their character codes; the dims of `...` are kEllipsis and up, the last of them the same in
/// every operand.
using Labels = std::vector<int>;
constexpr int kEllipsis = 128;

struct Term {
  Array array;
  Labels labels;  // of its dims
};

bool contains(const Labels& labels, int label) {
  return std::ranges::find(labels, label) != labels.end();
}

int64_t dim_of(const Term& t, int label) {
  return std::ranges::find(t.labels, label) - t.labels.begin();
}

/// Its size, 1 for a label that the term does not have.
int64_t size_of_label(const Term& t, int label) {
  return contains(t.labels, label) ? t.array.shape(dim_of(t, label)) : 1;
}

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
  bool implicit = true;
};

Equation parse(std::string text) {
  std::erase(text, ' ');
  Equation e;
  const size_t arrow = text.find("->");
  if (arrow != std::string::npos) {
    e.implicit = false;
    e.output = text.substr(arrow + 2);
  }
  std::string rest = text.substr(0, arrow) + ',';
  for (size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1))
    e.inputs.push_back(rest.substr(0, comma));
  return e;
}

/// The labels of one side; `ellipsis` dims stand where `...` is, the last `widest` of all.
Labels labels_of(const std::string& side, size_t ellipsis, size_t widest) {
  Labels labels;
  bool had_ellipsis = false;
  for (size_t i = 0; i < side.size(); ++i) {
    const char ch = side[i];
    if (side.compare(i, 3, "...") == 0 && !had_ellipsis) {
      for (size_t d = widest - ellipsis; d < widest; ++d) labels.push_back(kEllipsis + static_cast<int>(d));
      had_ellipsis = true;
      i += 2;
    } else if ((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')) {
      labels.push_back(ch);
    } else {
      fail(ErrorKind::invalid, "[einsum] '{}' in '{}' is not a letter, ',', '->' or one '...'", ch, side);
    }
  }
  return labels;
}

/// ii -> i.
Term without_repeats(Term t) {
  for (size_t i = 0; i < t.labels.size(); ++i) {
    const auto again = std::find(t.labels.begin() + static_cast<int64_t>(i) + 1, t.labels.end(), t.labels[i]);
    if (again == t.labels.end()) continue;
    const int64_t d1 = static_cast<int64_t>(i), d2 = again - t.labels.begin();
    const int label = t.labels[i];
    if (t.array.shape(d1) != t.array.shape(d2))
      fail(ErrorKind::invalid, "[einsum] a repeated letter names dims of {} and {} in {}", t.array.shape(d1),
           t.array.shape(d2), to_string(t.array.shape()));
    t.array = call("diagonal", {t.array}, {{"dim1", d1}, {"dim2", d2}});
    t.labels.erase(again);
    t.labels.erase(t.labels.begin() + d1);
    t.labels.push_back(label);
    return without_repeats(std::move(t));
  }
  return t;
}

/// Sums over the labels that are not kept.
Term summed(const Term& t, const Labels& kept) {
  Ints dims;
  Labels labels;
  for (size_t i = 0; i < t.labels.size(); ++i) {
    if (contains(kept, t.labels[i]))
      labels.push_back(t.labels[i]);
    else
      dims.push_back(static_cast<int64_t>(i));
  }
  return dims.empty() ? t : Term{sum(t.array, dims), labels};
}

Array permuted(const Term& t, const Labels& to) {
  if (t.labels == to) return t.array;
  Ints dims;
  for (int label : to) dims.push_back(dim_of(t, label));
  return permute(t.array, dims);
}

Labels joined(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// a b, summed over the labels that both have and `kept` has not. What only one of them has is in `kept`;
/// what both have is of one size.
Term multiplied(const Term& a, const Term& b, const Labels& kept) {
  Labels batch, rows, inner, columns;
  for (int label : a.labels)
    (!contains(b.labels, label) ? rows : contains(kept, label) ? batch : inner).push_back(label);
  for (int label : b.labels)
    if (!contains(a.labels, label)) columns.push_back(label);
  const Labels labels = joined(joined(batch, rows), columns);
  Shape shape;
  for (int label : labels)
    shape.push_back(contains(a.labels, label) ? size_of_label(a, label) : size_of_label(b, label));

  const auto as_shape = [&](const Term& t, const Labels& order, const std::vector<const Labels*>& groups) {
    Shape to;
    for (int label : batch) to.push_back(size_of_label(t, label));
    for (const Labels* group : groups) {
      int64_t size = 1;
      for (int label : *group) size *= size_of_label(t, label);
      to.push_back(size);
    }
    return reshape(permuted(t, order), to);
  };
  if (inner.empty()) {  // nothing to sum: broadcasting
    Shape of_a, of_b;
    for (int label : labels) of_a.push_back(size_of_label(a, label)), of_b.push_back(size_of_label(b, label));
    return {
        reshape(permuted(a, joined(batch, rows)), of_a) * reshape(permuted(b, joined(batch, columns)), of_b),
        labels};
  }
  const Array left = as_shape(a, joined(joined(batch, rows), inner), {&rows, &inner});
  const Array right = as_shape(b, joined(joined(batch, inner), columns), {&inner, &columns});
  return {reshape(call("matmul_batched", {left, right}), shape), labels};
}

/// What is needed of two terms: the labels of the output and of the other terms.
Labels labels_besides(const std::vector<Term>& terms, size_t i, size_t j, const Labels& output) {
  Labels kept = output;
  for (size_t t = 0; t < terms.size(); ++t)
    if (t != i && t != j) kept.insert(kept.end(), terms[t].labels.begin(), terms[t].labels.end());
  return kept;
}

/// The pair whose product adds least to what is kept: greedy, as opt_einsum does above a few operands.
std::pair<size_t, size_t> cheapest_pair(const std::vector<Term>& terms, const Labels& output) {
  std::pair<size_t, size_t> best = {0, 1};
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i + 1 < terms.size(); ++i)
    for (size_t j = i + 1; j < terms.size(); ++j) {
      const Labels kept = labels_besides(terms, i, j, output);
      double size = 1;
      for (int label : terms[i].labels)
        size *= contains(kept, label) ? static_cast<double>(size_of_label(terms[i], label)) : 1;
      for (int label : terms[j].labels)
        size *= contains(kept, label) && !contains(terms[i].labels, label)
                    ? static_cast<double>(size_of_label(terms[j], label))
                    : 1;
      const double added =
          size - static_cast<double>(terms[i].array.size()) - static_cast<double>(terms[j].array.size());
      if (added < least) least = added, best = {i, j};
    }
  return best;
}

/// The operands with labels, without repeats, every dim of its full size. `output`: the labels wanted.
std::vector<Term> labelled(const OpCall& c, Labels& output) {
  const std::string& text = c.attrs.text("equation");
  const Equation equation = parse(text);
  if (equation.inputs.size() != c.inputs.size())
    fail(ErrorKind::invalid, "[einsum] '{}' has {} operands, {} were given", text, equation.inputs.size(),
         c.inputs.size());
  std::vector<size_t> ellipsis(c.inputs.size(), 0);
  size_t widest = 0;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    check_operands("einsum", c.inputs[0], c.inputs[i]);
    const size_t letters = labels_of(equation.inputs[i], 0, 0).size(), rank = c.inputs[i].ndim();
    const bool open = equation.inputs[i].find("...") != std::string::npos;
    if (open ? letters > rank : letters != rank)
      fail(ErrorKind::invalid, "[einsum] '{}' does not name the dims of {}", equation.inputs[i],
           to_string(c.inputs[i].shape()));
    ellipsis[i] = rank - letters;
    widest = std::max(widest, ellipsis[i]);
  }
  std::vector<Term> terms;
  std::array<int, kEllipsis> uses{};
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Labels labels = labels_of(equation.inputs[i], ellipsis[i], widest);
    for (int label : labels)
      if (label < kEllipsis) ++uses[static_cast<size_t>(label)];
    terms.push_back(without_repeats({c.inputs[i], labels}));
  }
  if (equation.implicit) {  // the dims of `...`, then the letters that occur once, sorted
    output = labels_of("...", widest, widest);
    for (int letter = 0; letter < kEllipsis; ++letter)
      if (uses[static_cast<size_t>(letter)] == 1) output.push_back(letter);
  } else {
    output = labels_of(equation.output, widest, widest);
  }

  Labels all;
  for (const Term& t : terms) all.insert(all.end(), t.labels.begin(), t.labels.end());
  for (size_t i = 0; i < output.size(); ++i)
    if (std::ranges::count(output, output[i]) > 1 || !contains(all, output[i]))
      fail(ErrorKind::invalid,
           "[einsum] the output of '{}' repeats a letter or names one that no operand has", text);
  for (Term& t : terms) {
    Shape shape;
    for (int label : t.labels) {
      int64_t size = t.array.shape(dim_of(t, label));
      for (const Term& other : terms) {
        const int64_t its = size_of_label(other, label);
        if (its != 1 && size != 1 && its != size)
          fail(ErrorKind::invalid, "[einsum] '{}' gives one letter to dims of {} and {}", text, size, its);
        if (size == 1) size = its;
      }
      shape.push_back(size);
    }
    t.array = expand(t.array, shape);
  }
  return terms;
}

Array einsum_form(const OpCall& c) {
  Labels output;
  std::vector<Term> terms = labelled(c, output);
  const DType dtype = c.inputs[0].dtype();
  // A product or a sum of halves rounds once by itself; a chain of them is computed in f32.
  bool chain = terms.size() > 2;
  for (size_t i = 0; i < terms.size() && terms.size() > 1; ++i) {
    const Labels kept = labels_besides(terms, i, i, output);
    chain = chain || std::ranges::any_of(terms[i].labels, [&](int label) { return !contains(kept, label); });
  }
  if (chain && is_half(dtype))
    for (Term& t : terms) t.array = as(t.array, DType::f32);

  for (size_t i = 0; i < terms.size(); ++i) terms[i] = summed(terms[i], labels_besides(terms, i, i, output));
  while (terms.size() > 1) {
    const auto [i, j] = cheapest_pair(terms, output);
    terms[i] = multiplied(terms[i], terms[j], labels_besides(terms, i, j, output));
    terms.erase(terms.begin() + static_cast<int64_t>(j));
  }
  return as(permuted(terms[0], output), dtype);
}

}  // namespace

std::vector<Op> matmul_ops() {
  std::vector<Op> all = primitive_rows();
  for (Op& op : std::vector<Op>{
           composed1("matmul", 2, 2, {},
                     [](const OpCall& c) {
                       return product("matmul", c.inputs[0], c.inputs[1], c.inputs[0].dtype());
                     }),
           composed1("linear", 2, 3, {}, linear_form),
           composed1("outer", 2, 2, {}, outer),
           composed1("einsum", 1, -1, {{"equation", {}, true}}, einsum_form),
       })
    all.push_back(std::move(op));
  return all;
}

}  // namespace weft
