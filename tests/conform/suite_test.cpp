#include "conform/suite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/paths.h"
#include "support/gpus.h"
#include "weft/error.h"

using namespace weft;
using namespace weft::conform;
using test::error_of;
namespace fs = std::filesystem;

namespace {

const Case& case_of(const OpsSuite& suite, const std::string& name) {
  const auto found = std::ranges::find(suite.cases, name, &Case::name);
  REQUIRE_MESSAGE(found != suite.cases.end(), name);
  return *found;
}

/// A folder with the tensors a, b and c, and a suite of the cases given.
struct Folder {
  fs::path path = fs::temp_directory_path() / fmt::format("weft-suite-{}", getpid());
  Folder() {
    fs::remove_all(path);
    fs::create_directory(path);
    const HostTensor one{.dtype = DType::u8, .shape = {1}, .bytes = {std::byte{1}}};
    write_safetensors(path / "t.safetensors", {{"a", one}, {"b", one}, {"c", one}});
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  OpsSuite load(const std::string& text) const {
    write_text(path / "s.json", text);
    return load_ops_suite(path / "s.json");
  }
  OpsSuite load_cases(const std::string& cases) const {
    return load(R"({"format":1,"tensors":"t.safetensors","cases":[)" + cases + "]}");
  }
};

/// A case whose members after the name are those given.
std::string named(const std::string& members) {
  return "{\"name\":\"n\"," + members + "}";
}

std::string with_attrs(const std::string& attrs) {
  return named(R"("op":"neg","inputs":["a"],"outputs":["b"],"rtol":0,"atol":1e-3,"attrs":)" + attrs);
}

std::string program(const std::string& steps, const std::string& results) {
  return named(fmt::format(
      R"("op":"program","inputs":["a","b"],"outputs":["c"],"rtol":0,"atol":0,"steps":[{}],"results":[{}])",
      steps, results));
}

}  // namespace

TEST_SUITE("base: conform") {
  TEST_CASE("suite: the sample of the op set") {
    const OpsSuite suite = load_ops_suite(WEFT_SOURCE_DIR "/tests/data/ops/suite.json");
    CHECK(suite.cases.size() == 946);
    CHECK(std::ranges::count_if(suite.cases, [](const Case& c) { return !c.grads.empty(); }) == 634);
    CHECK(std::ranges::count_if(suite.cases, [](const Case& c) { return !c.steps.empty(); }) == 44);

    const Case& neg = case_of(suite, "neg/rank3");
    CHECK(neg.op == "neg");
    CHECK((neg.inputs == std::vector<std::string>{"0/x"}));
    CHECK((neg.outputs == std::vector<std::string>{"0/y"}));
    CHECK((neg.grad_outputs == std::vector<std::string>{"0/gy"}));
    CHECK((neg.grads == std::vector<std::string>{"0/gx"}));
    CHECK(neg.rtol == 1e-5);
    CHECK(neg.attrs.values().empty());
    CHECK((case_of(suite, "topk/1d").grad_outputs == std::vector<std::string>{"603/gy0", ""}));

    const Attrs& norm = case_of(suite, "norm/first_keep").attrs;
    CHECK(norm.number("p") == std::numeric_limits<double>::infinity());
    CHECK((norm.list("dims") == std::vector<int64_t>{0}));
    CHECK(norm.flag("keepdim"));
    CHECK(case_of(suite, "masked_fill/neg_inf").attrs.number("value") ==
          -std::numeric_limits<double>::infinity());
    CHECK((case_of(suite, "pad/nchw_reflect").attrs.list("pads") ==
           std::vector<int64_t>{0, 0, 0, 0, 2, 2, 1, 3}));
    CHECK((case_of(suite, "pad/negative_crop").attrs.list("pads") == std::vector<int64_t>{-1, 2, 3, -2}));
    CHECK(case_of(suite, "pad/nchw_reflect").attrs.text("mode") == "reflect");
    CHECK(case_of(suite, "pad/i32").attrs.integer("value") == 7);
    CHECK(case_of(suite, "full/bool").attrs.flag("value"));
    CHECK(case_of(suite, "full/bool").attrs.text("dtype") == "bool");
  }

  TEST_CASE("suite: a program of the sample") {
    const OpsSuite suite = load_ops_suite(WEFT_SOURCE_DIR "/tests/data/ops/suite.json");
    const Case& pool = case_of(suite, "program/pool_of_sliced");
    REQUIRE(pool.steps.size() == 3);
    CHECK(pool.steps[0].op == "slice");
    CHECK((pool.steps[0].inputs == std::vector<std::string>{"558/a"}));
    CHECK((pool.steps[0].attrs.list("starts") == std::vector<int64_t>{kNone, kNone, 1, 0}));
    CHECK((pool.steps[0].attrs.list("stops") == std::vector<int64_t>{kNone, kNone, kNone, -1}));
    CHECK((pool.steps[1].inputs == std::vector<std::string>{"%0"}));
    CHECK((pool.results == std::vector<std::string>{"%2"}));
    const Case& split = case_of(suite, "program/qkv_split_sdpa");
    CHECK(split.steps.at(4).inputs.at(0) == "%2.1");
  }

  TEST_CASE("suite: references to steps") {
    const auto is = [](std::string_view text, size_t step, size_t output) {
      const auto found = step_output(text);
      return found && found->step == step && found->output == output;
    };
    CHECK(is("%0", 0, 0));
    CHECK(is("%12", 12, 0));
    CHECK(is("%3.14", 3, 14));
    for (const char* text : {"", "%", "0", "%x", "%1.", "%.1", "%-1", "%1.-1", "%1.2.3", "%1 ", "% 1", "%+1",
                             "%99999999999999999999999", "a%1"}) {
      CAPTURE(text);
      CHECK_FALSE(step_output(text).has_value());
    }
  }

  TEST_CASE("suite: attributes of every type") {
    const Folder folder;
    const OpsSuite suite = folder.load_cases(with_attrs(
        R"({"t":true,"i":-3,"big":9223372036854775807,"f":0.5,"whole":2.0,"inf":"inf","minus":"-inf","nan":"nan",
            "word":"info","none":null,"list":[1,null,-2],"empty":[],"pads":[[1,2],[-3,4]]})"));
    const Attrs& attrs = suite.cases.at(0).attrs;
    CHECK(attrs.flag("t"));
    CHECK(attrs.integer("i") == -3);
    CHECK(attrs.integer("big") == std::numeric_limits<int64_t>::max());
    CHECK(attrs.number("f") == 0.5);
    CHECK((attrs.values().at("whole") == AttrValue(2.0)));
    CHECK(attrs.number("inf") == std::numeric_limits<double>::infinity());
    CHECK(attrs.number("minus") == -std::numeric_limits<double>::infinity());
    CHECK(std::isnan(attrs.number("nan")));
    CHECK(attrs.text("word") == "info");
    CHECK(attrs.values().contains("none"));
    CHECK_FALSE(attrs.has("none"));
    CHECK((attrs.list("list") == std::vector<int64_t>{1, kNone, -2}));
    CHECK(attrs.list("empty").empty());
    CHECK((attrs.list("pads") == std::vector<int64_t>{1, 2, -3, 4}));
    CHECK(suite.cases[0].grads.empty());
  }

  TEST_CASE("suite: a null input is an empty name, attrs may be left off") {
    const Folder folder;
    const OpsSuite suite = folder.load_cases(
        named(R"("op":"layer_norm","inputs":["a",null,"b"],"outputs":["c"],"rtol":0,"atol":0,
                 "grads":["a",null,"b"],"grad_outputs":[null])") +
        "," + program(R"({"op":"add","in":["a",null]},{"op":"neg","in":["%0.1"]})", R"("%1")"));
    CHECK((suite.cases.at(0).inputs == std::vector<std::string>{"a", "", "b"}));
    CHECK((suite.cases[0].grads == std::vector<std::string>{"a", "", "b"}));
    CHECK((suite.cases[0].grad_outputs == std::vector<std::string>{""}));
    CHECK((suite.cases.at(1).steps.at(0).inputs == std::vector<std::string>{"a", ""}));
    CHECK(folder.load_cases("").cases.empty());
  }

  TEST_CASE("suite: errors name the file and the case") {
    const Folder folder;
    struct Row {
      std::string cases, message;
    };
    const std::string ends = R"(,"rtol":0,"atol":0)";
    const Row rows[] = {
        {"3", "case 0: is not a JSON object"},
        {with_attrs("{}") + ",{}", "case 1: name is missing"},
        {"{\"name\":3}", "case 0: name is not a text"},
        {R"({"name":"a\nb"})", "case 0: its name has control characters"},
        {named(R"("inputs":[])"), "case 'n': op is missing"},
        {named(R"("op":"neg")"), "case 'n': inputs is missing"},
        {named(R"("op":"neg","inputs":"a")"), "case 'n': inputs is not a list"},
        {named(R"("op":"neg","inputs":[1])"), "case 'n': inputs is not a list of names"},
        {named(R"("op":"neg","inputs":[""])"), "case 'n': inputs is not a list of names"},
        {named(R"("op":"neg","inputs":["no\nne"])"), "case 'n': tensor 'no?ne' is not in the tensors file"},
        {named(R"("op":"neg","inputs":["a"],"outputs":[null])"), "case 'n': outputs is not a list of names"},
        {named(R"("op":"neg","inputs":["a"],"outputs":["b"],"rtol":"x","atol":0)"),
         "case 'n': rtol is not a tolerance"},
        {named(R"("op":"neg","inputs":["a"],"outputs":["b"],"rtol":0,"atol":-1)"),
         "case 'n': atol is not a tolerance"},
        {named(R"("op":"neg","inputs":["a"],"outputs":["b"],"grads":["c"])" + ends),
         "case 'n': has one of grads and grad_outputs"},
        {named(R"("op":"neg","inputs":["a"],"outputs":["b"],"grads":[],"grad_outputs":["b"])" + ends),
         "case 'n': 0 grads for 1 inputs"},
        {named(R"("op":"neg","inputs":["a"],"outputs":["b"],"grads":["a"],"grad_outputs":["b","b"])" + ends),
         "case 'n': 2 grad_outputs for 1 outputs"},
        {with_attrs("[]"), "case 'n': attrs is not a JSON object"},
        {with_attrs(R"({"x":{}})"), "case 'n': attribute 'x' is of a type that no op takes"},
        {with_attrs(R"({"x":9223372036854775808})"), "case 'n': attribute 'x' has a number out of range"},
        {with_attrs(R"({"x":[-9223372036854775808]})"), "case 'n': attribute 'x' has a number out of range"},
        {with_attrs(R"({"x":["inf"]})"), "case 'n': attribute 'x' has string where a whole number must be"},
        {with_attrs(R"({"x":[[1,2],3]})"), "case 'n': attribute 'x' is not a list of pairs"},
        {with_attrs(R"({"x":[[1,2,3]]})"), "case 'n': attribute 'x' is not a list of pairs"},
        {with_attrs(R"({"x":[[1,null]]})"), "case 'n': attribute 'x' has null where a whole number must be"},
        {named(R"("op":"program","inputs":["a"],"outputs":["b"])" + ends), "case 'n': steps is missing"},
        {program("1", R"("%0")"), "case 'n': step 0 is not a JSON object"},
        {program(R"({"op":"neg"})", R"("%0")"), "case 'n': in is missing"},
        {program(R"({"op":"neg","in":["%0"]})", R"("%0")"),
         "case 'n': step 0 takes '%0', which is neither an input nor an earlier step"},
        {program(R"({"op":"neg","in":["c"]})", R"("%0")"),
         "case 'n': step 0 takes 'c', which is neither an input nor an earlier step"},
        {program(R"({"op":"neg","in":["a"]})", R"("%1")"), "case 'n': result '%1' is not of a step"},
        {program(R"({"op":"neg","in":["a"]})", R"("a")"), "case 'n': result 'a' is not of a step"},
        {program(R"({"op":"neg","in":["a"]})", R"("%0","%0")"), "case 'n': 2 results for 1 outputs"},
    };
    for (const Row& row : rows) {
      CAPTURE(row.message);
      const auto caught = error_of([&] { folder.load_cases(row.cases); });
      CHECK(caught.kind == "io");
      CHECK(caught.message.starts_with(
          fmt::format("[conform] {}: {}", (folder.path / "s.json").string(), row.message)));
    }
  }

  TEST_CASE("suite: files that are no suite") {
    const Folder folder;
    struct Row {
      std::string text, message;
    };
    const Row rows[] = {
        {"", "not valid JSON at byte"},
        {"{", "not valid JSON at byte 2"},
        {"[1e999]", "not valid JSON"},
        {std::string(1'000'000, '['), "JSON nested deeper than 100 levels"},
        {"[" + std::string(300'000, '[') + std::string(300'000, ']') + "]",
         "JSON nested deeper than 100 levels"},
        {"{}", "format is not 1"},
        {R"({"format":2})", "format is not 1"},
        {R"({"format":1,"kind":"chat"})", "not a suite of kind ops"},
        {R"({"format":1})", "tensors is not a file name"},
        {R"({"format":1,"tensors":"/etc/passwd"})", "tensors '/etc/passwd' is not beside the suite"},
        {R"({"format":1,"tensors":"../t"})", "tensors '../t' is not beside the suite"},
        {R"({"format":1,"tensors":"t.safetensors"})", "cases is missing"},
        {R"({"format":1,"tensors":"t.safetensors","cases":{}})", "cases is not a list"},
        {R"({"format":1,"tensors":"absent"})", "[io] cannot open"},
        {R"({"format":1,"tensors":"s.json"})", "[safetensors]"},
    };
    for (const Row& row : rows) {
      CAPTURE(row.message);
      const auto caught = error_of([&] { folder.load(row.text); });
      CHECK(caught.kind == "io");
      CHECK(caught.message.find(row.message) != std::string::npos);
    }
    CHECK(error_of([&] { load_ops_suite(folder.path / "absent.json"); }).kind == "io");
  }

  TEST_CASE("suite: chats that are none") {
    const Folder folder;
    for (const char* text :
         {R"({"kind":5})", R"({"kind":"chat","cases":[5]})", R"({"kind":"chat","cases":[{"name":5}]})",
          R"({"kind":"chat","cases":5})", R"({"kind":"chat","strftime_now":5,"cases":[]})"}) {
      CAPTURE(text);
      write_text(folder.path / "s.json", text);
      const auto caught = error_of([&] { load_chat_suite(folder.path / "s.json"); });
      CHECK(caught.kind == "io");
      CHECK(caught.message.starts_with("[conform] " + (folder.path / "s.json").string()));
    }
  }

  TEST_CASE("suite: 1,000 random corruptions end in a suite or an error") {
    const Folder folder;
    const std::string original =
        R"({"format":1,"tensors":"t.safetensors","cases":[)" +
        with_attrs(R"({"f":0.5,"inf":"inf","list":[1,null,-2],"pads":[[1,2],[-3,4]]})") + "," +
        program(R"({"op":"add","in":["a",null]},{"op":"neg","in":["%0.1"]})", R"("%1")") + "]}";
    const std::string likely = "0123456789-.[]{},:\"\\%nabc";
    std::mt19937 random(7);
    int refused = 0;
    for (int round = 0; round < 1000; ++round) {
      std::string damaged = original;
      for (unsigned hits = 1 + random() % 2; hits > 0; --hits) {
        const size_t at = random() % damaged.size();
        switch (random() % 3) {
          case 0:
            damaged[at] = likely[random() % likely.size()];
            break;
          case 1:
            damaged.erase(at, 1 + random() % 3);
            break;
          default:
            damaged.insert(at, original.substr(random() % original.size(), random() % 12));
            break;
        }
      }
      try {
        folder.load(damaged);
      } catch (const Error& e) {
        ++refused;
        if (std::string_view(e.what()).find('\n') != std::string_view::npos) FAIL_CHECK(e.what());
      }
    }
    CHECK(refused > 100);
    CHECK(refused < 1000);
  }
}
