#include "conform/model_suite.h"

#include "base/error.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "llm/verify.h"

namespace weft::conform {

using nlohmann::json;

std::vector<ModelCase> load_model_suite(const std::filesystem::path& file) {
  const json suite = read_json(file, "[conform]");
  const json cases = suite.is_object() ? suite.value("cases", json()) : json();
  if (!cases.is_array()) fail(ErrorKind::io, "[conform] {}: there is no list of cases", file.string());
  std::vector<ModelCase> result;
  for (const json& value : cases) {
    const auto text = [&](const char* key) {
      const json found = value.is_object() ? value.value(key, json("")) : json();
      if (!found.is_string())
        fail(ErrorKind::io, "[conform] {}: a case's {} is not a text", file.string(), key);
      return found.get<std::string>();
    };
    const auto path = [&](const char* key) {
      const std::string name = text(key);
      return name.empty() ? std::filesystem::path() : file.parent_path() / name;
    };
    const auto number = [&](const char* key) -> std::optional<double> {
      const json found = value.value(key, json());
      if (found.is_null()) return std::nullopt;
      if (!found.is_number())
        fail(ErrorKind::io, "[conform] {}: a case's {} is not a number", file.string(), key);
      return found.get<double>();
    };
    result.push_back({text("name"), path("model"), path("adapter"), path("expect"), number("max"),
                      number("mean"), number("top1")});
    if (result.back().model.empty() || result.back().expect.empty())
      fail(ErrorKind::io, "[conform] {}: case '{}' has no model or nothing to expect", file.string(),
           one_line(result.back().name));
  }
  return result;
}

std::string model_difference(const ModelCase& c, const Device& device) {
  try {
    const llm::Expected expected = llm::load_expected(c.expect);
    llm::LoadOptions options{
        .device = device, .context = expected.length + expected.follow, .cache_type = quant::Type::f32};
    if (!c.adapter.empty()) options.adapters.push_back({c.adapter});
    llm::Model model(c.model, options);
    const llm::Comparison got = llm::compare(model, expected);
    if (c.max && !(got.max <= *c.max))
      return fmt::format("logits differ by {:.3g}, allowed are {:.3g}", got.max, *c.max);
    if (c.mean && !(got.mean <= *c.mean))
      return fmt::format("logits differ by {:.3g} in the mean, allowed are {:.3g}", got.mean, *c.mean);
    if (c.top1 && got.top1 < *c.top1)
      return fmt::format("the likeliest token is right at {:.1f} % of the places", 100 * got.top1);
    return got.same_greedy ? "" : "the tokens that follow differ";
  } catch (const Error& e) {
    return e.what();  // a model that weft does not know is no reason to skip it
  }
}

}  // namespace weft::conform
