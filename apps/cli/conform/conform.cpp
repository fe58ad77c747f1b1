#include "conform/conform.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <map>

#include "backend/select.h"
#include "base/error.h"
#include "conform/compare.h"
#include "conform/suite.h"
#include "ops/op.h"
#include "weft/grad.h"

namespace weft::conform {
namespace {

struct Totals {
  int passed = 0, failed = 0, skipped = 0;
};

/// The arrays of one case, on the device under test.
class CaseRunner {
 public:
  CaseRunner(const OpsSuite& suite, const Case& c, const Device& device) : suite_(suite), case_(c) {
    for (const std::string& name : c.inputs)
      if (!name.empty() && !inputs_.contains(name))
        inputs_[name] = Array::from_host(suite.tensors.load(name), device);
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
  Array input(const std::string& name) const { return name.empty() ? Array() : inputs_.at(name); }

  std::vector<Array> compute() {
    std::vector<Array> inputs;
    for (const std::string& name : case_.inputs) inputs.push_back(input(name));
    if (case_.steps.empty()) return apply(case_.op, inputs, case_.attrs, device_);
    std::vector<std::vector<Array>> made;
    const auto resolve = [&](const std::string& name) {
      const auto reference = step_output(name);
      return reference ? made.at(reference->step).at(reference->output) : input(name);
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
      if (!case_.grads[i].empty()) wanted.push_back(input(case_.inputs[i]));
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
  std::map<std::string, Array> inputs_;
};

void run_ops_suite(const std::string& file, const Options& options, const Device& device, Totals& totals) {
  const OpsSuite suite = load_ops_suite(file);
  for (const Case& c : suite.cases) {
    if (!options.filter.empty() && fnmatch(options.filter.c_str(), c.name.c_str(), 0) != 0) continue;
    try {
      const std::string difference = CaseRunner(suite, c, device).run();
      if (difference.empty()) {
        ++totals.passed;
        continue;
      }
      fmt::print("FAIL {}: {}\n", c.name, difference);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::unsupported) {
        ++totals.skipped;
        fmt::print("skip {}: {}\n", c.name, e.what());
        continue;
      }
      fmt::print("FAIL {}: {}\n", c.name, e.what());
    }
    ++totals.failed;
  }
}

}  // namespace

int run(const Options& options) {
  const Device device = Device::open(options.device.empty() ? device_wish().value : options.device);
  Totals totals;
  for (const std::string& suite : options.suites) run_ops_suite(suite, options, device, totals);
  fmt::print("{} passed, {} failed, {} skipped\n", totals.passed, totals.failed, totals.skipped);
  return totals.failed == 0 ? 0 : 1;
}

}  // namespace weft::conform
