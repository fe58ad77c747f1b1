#include "llm/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "io/safetensors.h"
#include "llm/logits.h"

namespace weft::llm {
namespace {

template <typename T>
std::vector<T> values(const HostTensor& tensor) {
  std::vector<T> result(tensor.bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

int32_t likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

/// sum p (log p - log q) of the softmaxes of two rows.
double divergence(std::span<const float> p, std::span<const float> q) {
  const double of_p = log_sum_exp(p), of_q = log_sum_exp(q);
  double result = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double a = static_cast<double>(p[i]) - of_p, b = static_cast<double>(q[i]) - of_q;
    if (std::exp(a) > 0) result += std::exp(a) * (a - b);
  }
  return result;
}

}  // namespace

Expected load_expected(const std::filesystem::path& file) {
  const Safetensors tensors = Safetensors::open(file);
  for (const char* name : {"input_ids", "logits"})
    if (!tensors.contains(name))
      fail(ErrorKind::io, "[verify] {}: there are no {} in the file", file.string(), name);
  const HostTensor ids = tensors.load("input_ids"), logits = tensors.load("logits");
  if (ids.dtype != DType::i32 || ids.shape.size() != 2 || logits.dtype != DType::f32 ||
      logits.shape.size() != 3 || logits.shape[0] != ids.shape[0] || logits.shape[1] != ids.shape[1] ||
      std::ranges::find(logits.shape, 0) != logits.shape.end())
    fail(ErrorKind::io, "[verify] {}: input_ids {} and logits {} do not go together", file.string(),
         to_string(ids.shape), to_string(logits.shape));
  Expected expected{.texts = ids.shape[0],
                    .length = ids.shape[1],
                    .vocabulary = logits.shape[2],
                    .ids = values<int32_t>(ids),
                    .logits = values<float>(logits)};
  for (const int32_t id : expected.ids)
    if (id < 0 || id >= expected.vocabulary)
      fail(ErrorKind::io, "[verify] {}: input_ids has a {}, and logits are of {} tokens", file.string(), id,
           expected.vocabulary);
  if (tensors.contains("greedy_ids")) {
    const HostTensor greedy = tensors.load("greedy_ids");
    if (greedy.dtype != DType::i32 || greedy.shape.size() != 2 || greedy.shape[0] != expected.texts)
      fail(ErrorKind::io, "[verify] {}: greedy_ids are {}", file.string(), to_string(greedy.shape));
    expected.greedy = values<int32_t>(greedy);
    expected.follow = greedy.shape[1];
  }
  return expected;
}

Expected expected_of(Model& model, std::span<const TokenId> text, int64_t texts, int64_t length) {
  if (std::ssize(text) < length)
    fail(ErrorKind::io, "[verify] the text has {} tokens, {} are needed", text.size(), length);
  Expected expected{.texts = std::min(texts, std::ssize(text) / length),
                    .length = length,
                    .vocabulary = model.config().vocabulary};
  for (int64_t i = 0; i < expected.texts; ++i) {
    const auto ids = text.subspan(static_cast<size_t>(i * length), static_cast<size_t>(length));
    expected.ids.insert(expected.ids.end(), ids.begin(), ids.end());
    Sequence sequence = model.new_sequence();
    const std::vector<float> logits = model.run(sequence, ids, true);
    expected.logits.insert(expected.logits.end(), logits.begin(), logits.end());
    truncate(sequence, 0, model.pages());
  }
  return expected;
}

Comparison compare(Model& model, const Expected& expected) {
  if (model.config().vocabulary != expected.vocabulary)
    fail(ErrorKind::io, "[verify] the model has {} tokens, {} are expected", model.config().vocabulary,
         expected.vocabulary);
  Comparison result;
  const auto width = static_cast<size_t>(expected.vocabulary);
  size_t same = 0, rows = 0;
  for (int64_t text = 0; text < expected.texts; ++text) {
    const auto ids =
        std::span(expected.ids)
            .subspan(static_cast<size_t>(text * expected.length), static_cast<size_t>(expected.length));
    Sequence sequence = model.new_sequence();
    const std::vector<float> got = model.run(sequence, ids, true);
    const auto want = std::span(expected.logits).subspan(static_cast<size_t>(text) * got.size(), got.size());
    for (size_t row = 0; row < ids.size(); ++row, ++rows) {
      const auto g = std::span(got).subspan(row * width, width), w = want.subspan(row * width, width);
      for (size_t i = 0; i < width; ++i) {
        const double difference = std::abs(static_cast<double>(g[i]) - static_cast<double>(w[i]));
        result.max = std::isnan(difference) ? INFINITY : std::max(result.max, difference);
        result.mean += difference;
      }
      same += likeliest(g) == likeliest(w);
      result.kl += divergence(w, g);
    }
    std::vector<float> last(got.end() - static_cast<int64_t>(width), got.end());
    for (int64_t i = 0; i < expected.follow; ++i) {
      const int32_t id = likeliest(last);
      if (id != expected.greedy[static_cast<size_t>(text * expected.follow + i)]) result.same_greedy = false;
      if (i + 1 < expected.follow) last = model.run(sequence, std::vector<TokenId>{id});
    }
    truncate(sequence, 0, model.pages());
  }
  const auto count = static_cast<double>(std::max<size_t>(rows, 1));
  result.mean /= count * static_cast<double>(width);
  result.kl /= count;
  result.top1 = static_cast<double>(same) / count;
  return result;
}

}  // namespace weft::llm
