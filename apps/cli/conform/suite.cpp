#include "conform/suite.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "io/json.h"

namespace weft::conform {
namespace {

using nlohmann::json;

/// Reads the cases of one file. Throughout, `where_` says which case an error is about.
class Reader {
 public:
  Reader(std::string file, const Safetensors& tensors) : where_(std::move(file)), tensors_(tensors) {}

  Case read(const json& value, size_t number) {
    const std::string file = where_;
    where_ += fmt::format(": case {}", number);
    if (!value.is_object()) wrong("is not a JSON object");
    Case c;
    c.name = text(value, "name");
    if (std::ranges::any_of(c.name, [](char x) { return static_cast<unsigned char>(x) < ' ' || x == 0x7f; }))
      wrong("its name has control characters");
    where_ = fmt::format("{}: case '{}'", file, one_line(c.name));

    c.op = text(value, "op");
    c.inputs = tensor_names(value, "inputs", true);
    c.outputs = tensor_names(value, "outputs", false);
    c.attrs = attrs(value);
    c.rtol = tolerance(value, "rtol");
    c.atol = tolerance(value, "atol");
    if (value.contains("grads") != value.contains("grad_outputs")) wrong("has one of grads and grad_outputs");
    if (value.contains("grads")) {
      c.grads = tensor_names(value, "grads", true);
      c.grad_outputs = tensor_names(value, "grad_outputs", true);
      same_length("grads", c.grads, "inputs", c.inputs);
      same_length("grad_outputs", c.grad_outputs, "outputs", c.outputs);
    }
    if (c.op == "program") program(value, c);
    where_ = file;
    return c;
  }

  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::io, "[conform] {}: {}", where_, fmt::format(format, std::forward<Args>(args)...));
  }

  const json& member(const json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) wrong("{} is missing", key);
    return *found;
  }

  std::string text(const json& object, const char* key) const {
    const json& value = member(object, key);
    if (!value.is_string()) wrong("{} is not a text", key);
    return value.get<std::string>();
  }

  const json& list(const json& object, const char* key) const {
    const json& value = member(object, key);
    if (!value.is_array()) wrong("{} is not a list", key);
    return value;
  }

 private:
  /// null becomes "", so a real name must not be empty.
  std::vector<std::string> names(const json& object, const char* key, bool null_allowed) const {
    std::vector<std::string> result;
    for (const json& entry : list(object, key)) {
      const bool left_out = entry.is_null() && null_allowed;
      if (!left_out && (!entry.is_string() || entry.get_ref<const std::string&>().empty()))
        wrong("{} is not a list of names", key);
      result.push_back(left_out ? "" : entry.get<std::string>());
    }
    return result;
  }

  std::vector<std::string> tensor_names(const json& object, const char* key, bool null_allowed) const {
    std::vector<std::string> result = names(object, key, null_allowed);
    for (const std::string& name : result)
      if (!name.empty() && !tensors_.contains(name))
        wrong("tensor '{}' is not in the tensors file", one_line(name));
    return result;
  }

  double tolerance(const json& object, const char* key) const {
    const json& value = member(object, key);
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0 && std::isfinite(number))) wrong("{} is not a tolerance", key);
    return number;
  }

  void same_length(const char* a, const std::vector<std::string>& list_a, const char* b,
                   const std::vector<std::string>& list_b) const {
    if (list_a.size() != list_b.size()) wrong("{} {} for {} {}", list_a.size(), a, list_b.size(), b);
  }

  void program(const json& value, Case& c) const {
    for (const json& entry : list(value, "steps")) {
      const size_t k = c.steps.size();
      if (!entry.is_object()) wrong("step {} is not a JSON object", k);
      Step step{.op = text(entry, "op"), .inputs = names(entry, "in", true), .attrs = attrs(entry)};
      for (const std::string& input : step.inputs)
        if (!input.empty() && !is_earlier(input, k) && std::ranges::find(c.inputs, input) == c.inputs.end())
          wrong("step {} takes '{}', which is neither an input nor an earlier step", k, one_line(input));
      c.steps.push_back(std::move(step));
    }
    c.results = names(value, "results", false);
    for (const std::string& result : c.results)
      if (!is_earlier(result, c.steps.size())) wrong("result '{}' is not of a step", one_line(result));
    same_length("results", c.results, "outputs", c.outputs);
  }

  static bool is_earlier(const std::string& reference, size_t step) {
    const std::optional<StepOutput> output = step_output(reference);
    return output && output->step < step;
  }

  Attrs attrs(const json& object) const {
    Attrs result;
    const auto found = object.find("attrs");
    if (found == object.end()) return result;
    if (!found->is_object()) wrong("attrs is not a JSON object");
    for (const auto& [name, value] : found->items()) result.set(name, attr(name, value));
    return result;
  }

  AttrValue attr(const std::string& name, const json& value) const {
    if (value.is_null()) return std::monostate();
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number_integer()) return whole(name, value);
    if (value.is_number()) return value.get<double>();
    if (value.is_array()) return whole_list(name, value);
    if (!value.is_string()) wrong("attribute '{}' is of a type that no op takes", one_line(name));
    std::string word = value.get<std::string>();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (word == "inf") return kInfinity;
    if (word == "-inf") return -kInfinity;
    if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
    return word;
  }

  int64_t whole(const std::string& name, const json& value) const {
    const bool too_large =
        value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    if (!value.is_number_integer() || too_large || value.get<int64_t>() == kNone)
      wrong("attribute '{}' has {} where a whole number must be", one_line(name),
            value.is_number() ? "a number out of range" : value.type_name());
    return value.get<int64_t>();
  }

  /// [1, null, 2], or pairs [[1,2],[3,4]], which become [1,2,3,4].
  std::vector<int64_t> whole_list(const std::string& name, const json& value) const {
    std::vector<int64_t> result;
    const bool pairs = !value.empty() && value.front().is_array();
    for (const json& entry : value) {
      if (pairs) {
        if (!entry.is_array() || entry.size() != 2)
          wrong("attribute '{}' is not a list of pairs", one_line(name));
        for (const json& side : entry) result.push_back(whole(name, side));
      } else {
        result.push_back(entry.is_null() ? kNone : whole(name, entry));
      }
    }
    return result;
  }

  std::string where_;
  const Safetensors& tensors_;
};

json parse_file(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  check_json_depth(text, "[conform] " + file.string());
  try {
    return json::parse(text);
  } catch (const json::parse_error& e) {
    fail(ErrorKind::io, "[conform] {}: not valid JSON at byte {}", file.string(), e.byte);
  } catch (const json::exception&) {  // a number that no double holds
    fail(ErrorKind::io, "[conform] {}: not valid JSON", file.string());
  }
}

[[noreturn]] void wrong_suite(const std::filesystem::path& file, const std::string& what) {
  fail(ErrorKind::io, "[conform] {}: {}", file.string(), what);
}

json parse_suite(const std::filesystem::path& file) {
  json suite = parse_file(file);
  if (!suite.is_object()) wrong_suite(file, "not a JSON object");
  if (suite.value("format", json()) != 1) wrong_suite(file, "format is not 1, the only one known");
  return suite;
}

std::string kind_of(const json& suite) {
  const json kind = suite.value("kind", json("ops"));
  return kind.is_string() ? kind.get<std::string>() : kind.dump();
}

/// The file, or folder, of this name in the suite's folder.
std::filesystem::path beside(const std::filesystem::path& suite_file, const json& suite, const char* key) {
  const json name = suite.value(key, json());
  if (!name.is_string() || name.get_ref<const std::string&>().empty())
    wrong_suite(suite_file, fmt::format("{} is not a file name", key));
  const std::filesystem::path path = name.get<std::string>();
  if (path.is_absolute() || std::ranges::find(path, "..") != path.end())
    wrong_suite(suite_file, fmt::format("{} '{}' is not beside the suite", key, one_line(path.string())));
  return suite_file.parent_path() / path;
}

}  // namespace

std::optional<StepOutput> step_output(std::string_view reference) {
  if (!reference.starts_with('%')) return std::nullopt;
  StepOutput result{};
  const char* end = reference.data() + reference.size();
  auto parsed = std::from_chars(reference.data() + 1, end, result.step);
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '.')
    parsed = std::from_chars(parsed.ptr + 1, end, result.output);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return result;
}

OpsSuite load_ops_suite(const std::filesystem::path& file) {
  const json suite = parse_suite(file);
  if (kind_of(suite) != "ops") wrong_suite(file, "not a suite of kind ops");
  OpsSuite result{.tensors = Safetensors::open(beside(file, suite, "tensors")), .cases = {}};
  Reader reader(file.string(), result.tensors);
  const json& cases = reader.list(suite, "cases");
  result.cases.reserve(cases.size());
  for (const json& value : cases) result.cases.push_back(reader.read(value, result.cases.size()));
  return result;
}

TokenizerSuite load_tokenizer_suite(const std::filesystem::path& file) {
  const json suite = parse_suite(file);
  if (kind_of(suite) != "tokenizer") wrong_suite(file, "not a suite of kind tokenizer");
  TokenizerSuite result{.vocabulary = beside(file, suite, "vocab"), .cases = {}};
  const json name = suite.value("name", json(file.stem().string()));
  const json cases = suite.value("cases", json());
  if (!name.is_string() || !cases.is_array()) wrong_suite(file, "name is not a text, or cases is not a list");
  for (const json& value : cases) {
    TokenizerCase c{.name = fmt::format("{}/{}", one_line(name.get<std::string>()), result.cases.size())};
    const json text = value.is_object() ? value.value("text", json()) : json();
    const json ids = value.is_object() ? value.value("ids", json()) : json();
    const auto is_id = [](const json& id) { return id.is_number_integer() && id == id.get<int32_t>(); };
    if (!text.is_string() || !ids.is_array() || !std::ranges::all_of(ids, is_id))
      wrong_suite(file, fmt::format("case {} has no text, or no list of ids", c.name));
    c.text = text.get<std::string>();
    c.ids = ids.get<std::vector<int32_t>>();
    result.cases.push_back(std::move(c));
  }
  return result;
}

ChatSuite load_chat_suite(const std::filesystem::path& file) {
  using nlohmann::ordered_json;  // templates show the keys of tools in their order
  const auto suite = read_json<ordered_json>(file, "[conform]");
  if (!suite.is_object() || suite.value("kind", ordered_json()) != "chat")
    wrong_suite(file, "not a suite of kind chat");
  ChatSuite result;
  const ordered_json now = suite.value("strftime_now", ordered_json("")),
                     cases = suite.value("cases", ordered_json());
  if (!now.is_string() || !cases.is_array())
    wrong_suite(file, "strftime_now is not a text, or cases is not a list");
  for (const ordered_json& value : cases) {
    ChatCase c{.name = std::to_string(result.cases.size())};
    try {
      if (value.contains("name")) c.name = one_line(value.at("name").get<std::string>());
      c.source = suite.at("templates").at(value.at("template").get<std::string>()).get<std::string>();
      c.input = {.messages = value.at("messages").dump(),
                 .tools = value.value("tools", ordered_json()).dump(),
                 .variables = value.value("variables", ordered_json::object()).dump(),
                 .add_generation_prompt = value.value("add_generation_prompt", false),
                 .bos_token = value.value("bos_token", ""),
                 .eos_token = value.value("eos_token", ""),
                 .now = now.get<std::string>()};
      if (!value.contains("error")) c.expect = value.at("expect").get<std::string>();
    } catch (const ordered_json::exception&) {
      wrong_suite(file, fmt::format("case {} lacks a template, messages or what is expected", c.name));
    }
    result.cases.push_back(std::move(c));
  }
  return result;
}

std::string suite_kind(const std::filesystem::path& file) {
  return kind_of(parse_suite(file));
}

}  // namespace weft::conform
