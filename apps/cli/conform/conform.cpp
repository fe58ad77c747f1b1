#include "conform/conform.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>

#include "backend/select.h"
#include "base/error.h"
#include "base/log.h"
#include "base/standard_error.h"
#include "conform/compare.h"
#include "conform/model_suite.h"
#include "conform/suite.h"
#include "ops/op.h"
#include "weft/grad.h"
#include "weft/text.h"

namespace weft::conform {
namespace {

struct Totals {
  int passed = 0, failed = 0, skipped = 0;

  int all() const { return passed + failed + skipped; }
};

/// The arrays of one case, on the device under test.
class CaseRunner {
 public:
  CaseRunner(const OpsSuite& suite, const Case& c, const Device& device) : suite_(suite), case_(c) {
    // One array per place: a tensor that is given twice has two gradients.
    for (const std::string& name : c.inputs)
      inputs_.push_back(name.empty() ? Array() : Array::from_host(suite.tensors.load(name), device));
    device_ = device;
  }

  /// What differs; empty when nothing does.
  std::string run() {
    const std::vector<Array> outputs = compute();
    if (outputs.size() != case_.outputs.size())
      return fmt::format("{} outputs, {} expected", outputs.size(), case_.outputs.size());
    std::vector<Array> gradients;
    if (!case_.grads.empty()) gradients = differentiate(outputs);  // before anything is evaluated
    for (size_t i = 0; i < outputs.size(); ++i)
      if (const std::string text = differs(outputs[i], case_.outputs[i]); !text.empty())
        return fmt::format("output {}: {}", i, text);
    for (size_t i = 0; i < gradients.size(); ++i)
      if (const std::string text = differs(gradients[i], case_.grads[i]); !text.empty())
        return fmt::format("gradient {}: {}", i, text);
    return "";
  }

 private:
  Array input(const std::string& name) const {
    const auto place = std::ranges::find(case_.inputs, name) - case_.inputs.begin();
    return name.empty() ? Array() : inputs_.at(static_cast<size_t>(place));
  }

  std::vector<Array> compute() {
    if (case_.steps.empty()) return apply(case_.op, inputs_, case_.attrs, device_);
    std::vector<std::vector<Array>> made;
    const auto resolve = [&](const std::string& name) {
      const auto reference = step_output(name);
      if (!reference) return input(name);
      const std::vector<Array>& outputs = made.at(reference->step);
      if (reference->output >= outputs.size())
        fail(ErrorKind::invalid, "[conform] step {} has {} outputs, there is no {}", reference->step,
             outputs.size(), one_line(name));
      return outputs[reference->output];
    };
    for (const Step& step : case_.steps) {
      std::vector<Array> arguments;
      for (const std::string& name : step.inputs) arguments.push_back(resolve(name));
      made.push_back(apply(step.op, arguments, step.attrs, device_));
    }
    std::vector<Array> results;
    for (const std::string& name : case_.results) results.push_back(resolve(name));
    return results;
  }

  std::vector<Array> differentiate(const std::vector<Array>& outputs) {
    std::vector<Array> seeds, wanted;
    for (const std::string& name : case_.grad_outputs)
      seeds.push_back(name.empty() ? Array() : Array::from_host(suite_.tensors.load(name), device_));
    for (size_t i = 0; i < case_.grads.size(); ++i)
      if (!case_.grads[i].empty()) wanted.push_back(inputs_[i]);
    const std::vector<Array> found = vjp(outputs, seeds, wanted);
    std::vector<Array> gradients(case_.grads.size());
    for (size_t i = 0, next = 0; i < case_.grads.size(); ++i)
      if (!case_.grads[i].empty()) gradients[i] = found[next++];
    return gradients;
  }

  std::string differs(const Array& got, const std::string& want) const {
    if (want.empty()) return "";
    return compare(got.to_host(), suite_.tensors.load(want), case_.rtol, case_.atol).text;
  }

  const OpsSuite& suite_;
  const Case& case_;
  Device device_;
  std::vector<Array> inputs_;
};

constexpr std::string_view kNoMemory = "its sizes are beyond this machine's memory";

/// Runs one case after the other; `difference(case)` says what differs, nothing when all is right.
template <typename Cases, typename Difference>
void run_cases(const std::string& file, const Cases& cases, const Options& options, Totals& totals,
               const Difference& difference) {
  if (cases.empty()) log(LogLevel::warn, "[conform] {}: the suite has no cases", file);
  for (const auto& c : cases) {
    if (!options.filter.empty() && fnmatch(options.filter.c_str(), c.name.c_str(), 0) != 0) continue;
    try {
      const std::string text = difference(c);
      if (text.empty()) {
        ++totals.passed;
        continue;
      }
      fmt::print("FAIL {}: {}\n", c.name, text);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::unsupported) {
        ++totals.skipped;
        fmt::print("skip {}: {}\n", c.name, e.what());
        continue;
      }
      fmt::print("FAIL {}: {}\n", c.name, e.what());
    } catch (const std::bad_alloc&) {
      fmt::print("FAIL {}: {}\n", c.name, kNoMemory);
    } catch (const std::length_error&) {
      fmt::print("FAIL {}: {}\n", c.name, kNoMemory);
    }
    ++totals.failed;
  }
}

void run_model_suite(const std::string& file, const Options& options, const Device& device, Totals& totals) {
  run_cases(file, load_model_suite(file), options, totals,
            [&](const ModelCase& c) { return model_difference(c, device); });
}

void run_ops_suite(const std::string& file, const Options& options, const Device& device, Totals& totals) {
  const OpsSuite suite = load_ops_suite(file);
  run_cases(file, suite.cases, options, totals,
            [&](const Case& c) { return CaseRunner(suite, c, device).run(); });
}

std::string token_difference(const Tokenizer& tokenizer, const TokenizerCase& c) {
  const std::vector<TokenId> ids = tokenizer.encode(c.text);
  if (ids == c.ids) return "";
  const auto [got, want] = std::ranges::mismatch(ids, c.ids);
  const auto shown = [](auto at, auto end) {
    return at == end ? std::string("the end") : std::to_string(*at);
  };
  return fmt::format("token {} is {}, expected {}: '{}'", got - ids.begin(), shown(got, ids.end()),
                     shown(want, c.ids.end()), one_line(c.text));
}

void run_tokenizer_suite(const std::string& file, const Options& options, Totals& totals) {
  const TokenizerSuite suite = load_tokenizer_suite(file);
  const Tokenizer tokenizer = Tokenizer::open(suite.vocabulary);
  run_cases(file, suite.cases, options, totals,
            [&](const TokenizerCase& c) { return token_difference(tokenizer, c); });
}

std::string chat_difference(const ChatCase& c) {
  std::string text;
  try {
    text = ChatTemplate(c.source).render_text(c.input);
  } catch (const Error& error) {
    return c.expect ? error.what() : "";
  }
  if (!c.expect) return "the template must fail, and did not";
  if (text == *c.expect) return "";
  const auto place = static_cast<size_t>(std::ranges::mismatch(text, *c.expect).in1 - text.begin());
  return fmt::format("byte {}: '{}', expected '{}'", place, one_line(text.substr(place)),
                     one_line(c.expect->substr(place)));
}

void run_chat_suite(const std::string& file, const Options& options, Totals& totals) {
  run_cases(file, load_chat_suite(file).cases, options, totals, chat_difference);
}

/// A suite that cannot be run counts as one failure; the others go on.
void run_suite(const std::string& file, const Options& options, std::optional<Device>& device,
               Totals& totals) {
  const auto guarded = [&](const auto& work) {
    try {
      work();
    } catch (const std::exception& e) {
      if (std::ferror(stdout)) throw;  // nobody would read of the other suites either
      to_stderr("weft: {}\n", e.what());
      ++totals.failed;
    }
  };
  std::optional<std::string> kind;
  guarded([&] { kind = suite_kind(file); });
  if (!kind) return;
  // A device that is not there is the call's mistake, and no suite's.
  if (!device && (kind == "ops" || kind == "model")) device = Device::open(device_wish(options.device).value);
  guarded([&] {
    if (kind == "ops")
      run_ops_suite(file, options, *device, totals);
    else if (kind == "model")
      run_model_suite(file, options, *device, totals);
    else if (kind == "tokenizer")
      run_tokenizer_suite(file, options, totals);
    else if (kind == "chat")
      run_chat_suite(file, options, totals);
    else
      fail(ErrorKind::io, "[conform] {}: suites of kind {} are not known", file, one_line(*kind));
  });
}

}  // namespace

int run(const Options& options) {
  Totals totals;
  std::optional<Device> device;  // opened by the first suite that computes
  for (const std::string& suite : options.suites) run_suite(suite, options, device, totals);
  if (!options.filter.empty() && totals.all() == 0)
    fail(ErrorKind::invalid, "[conform] no case is called '{}'", options.filter);
  fmt::print("{} passed, {} failed, {} skipped\n", totals.passed, totals.failed, totals.skipped);
  return totals.failed == 0 ? 0 : 1;
}

}  // namespace weft::conform
