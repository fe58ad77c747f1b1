#include "base/env.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

#include "base/paths.h"
#include "support/gpus.h"
#include "support/scoped.h"

using namespace weft;
using test::error_of;
using Set = test::ScopedVariable;
using Strings = std::vector<std::string>;

namespace {

std::string error_for(const char* name, const char* value) {
  const Set variable(name, value);
  const auto caught = error_of([&] { env::get(name); });
  CHECK(caught.kind == "invalid");
  return caught.message;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" `");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" `") - begin + 1);
}

/// The rows of the table in docs/environment.md: name, values, meaning.
std::vector<std::array<std::string, 3>> documented() {
  const auto text = read_text(WEFT_SOURCE_DIR "/docs/environment.md");
  REQUIRE(text.has_value());
  std::vector<std::array<std::string, 3>> rows;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    std::istringstream cells(line.substr(1));
    std::array<std::string, 3> row;
    for (std::string& cell : row) {
      std::getline(cells, cell, '|');
      cell = trimmed(cell);
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST_SUITE("base: env") {
  TEST_CASE("unset and empty are the same: nothing") {
    for (const env::Variable& v : env::table()) {
      CAPTURE(v.name);
      for (const char* value : {static_cast<const char*>(nullptr), ""}) {
        const Set variable(std::string(v.name), value);
        CHECK_FALSE(env::get(v.name).has_value());
        CHECK(env::get_list(v.name).empty());
        CHECK_FALSE(env::get_count(v.name).has_value());
      }
    }
  }

  TEST_CASE("free text comes back as it is") {
    for (const char* name : {"WEFT_DEVICE", "DEVICE", "WEFT_WEBGPU_LIB", "WEFT_CACHE"}) {
      const Set variable(name, " Any:thing,/at all ");
      CHECK(env::get(name) == " Any:thing,/at all ");
    }
  }

  TEST_CASE("every choice is accepted, alone and where lists are allowed together") {
    for (const env::Variable& v : env::table()) {
      if (v.choices.empty()) continue;
      CAPTURE(v.name);
      std::string all;
      for (std::string_view choice : v.choices) {
        const Set variable(std::string(v.name), std::string(choice).c_str());
        CHECK(env::get(v.name) == choice);
        all += (all.empty() ? "" : ",") + std::string(choice);
      }
      if (!v.list) continue;
      const Set variable(std::string(v.name), all.c_str());
      CHECK(env::get_list(v.name) == Strings(v.choices.begin(), v.choices.end()));
    }
  }

  TEST_CASE("an unknown value is an error that names the right ones") {
    CHECK(error_for("WEFT_LOG", "loud") ==
          "[env] WEFT_LOG=loud: 'loud' is not known; use error, warn, info, debug");
    CHECK(error_for("WEFT_LOG", "Debug").starts_with("[env] WEFT_LOG=Debug: 'Debug' is not known"));
    CHECK(error_for("WEFT_LOG", "warn,info").starts_with("[env] WEFT_LOG=warn,info"));
    CHECK(error_for("WEFT_LOG", "warn:2").starts_with("[env] WEFT_LOG=warn:2"));
    CHECK(error_for("WEFT_GPU_DISABLE", "f16,f32") ==
          "[env] WEFT_GPU_DISABLE=f16,f32: 'f32' is not known; use a list of f16, subgroups, "
          "subgroup_matrix, timestamps, immediates, last_workgroup, lockstep, images");
    CHECK(error_for("WEFT_GPU_DISABLE", "f16:1").find("'f16:1' is not known") != std::string::npos);
    CHECK(error_for("WEFT_GPU_DISABLE", "f16, subgroups").find("' subgroups'") != std::string::npos);
    CHECK(error_for("WEFT_FAULT", "fire") ==
          "[env] WEFT_FAULT=fire: 'fire' is not known; use a list of device_lost, oom, map_timeout, each "
          "optionally with :N");
  }

  TEST_CASE("lists: empty parts do not count") {
    const Set variable("WEFT_GPU_DISABLE", ",f16,,subgroups,");
    CHECK(env::get_list("WEFT_GPU_DISABLE") == Strings{"f16", "subgroups"});
  }

  TEST_CASE("counted choices: N is a whole number from 1") {
    {
      const Set variable("WEFT_FAULT", "oom:3,device_lost,map_timeout:1");
      CHECK(env::get_list("WEFT_FAULT") == Strings{"oom:3", "device_lost", "map_timeout:1"});
    }
    for (const char* bad :
         {"oom:", "oom:0", "oom:-1", "oom:+1", "oom:two", "oom:1x", "oom:1:2", "oom:99999999999", ":3"}) {
      CAPTURE(bad);
      CHECK(error_for("WEFT_FAULT", bad).find("is not known; use a list of device_lost") !=
            std::string::npos);
    }
  }

  TEST_CASE("numbers") {
    for (int n : {1, 2, 96, 1'000'000}) {
      const Set variable("WEFT_THREADS", std::to_string(n).c_str());
      CHECK(env::get_count("WEFT_THREADS") == n);
    }
    for (const char* bad : {"0", "-1", "+1", "two", "2x", " 2", "1.5", "0x4", "99999999999"}) {
      const Set variable("WEFT_THREADS", bad);
      const auto caught = error_of([] { env::get_count("WEFT_THREADS"); });
      CHECK(caught.kind == "invalid");
      CHECK(caught.message == std::string("[env] WEFT_THREADS=") + bad + ": use a whole number from 1");
      CHECK(error_of([] { env::check_all(); }).message == caught.message);
    }
  }

  TEST_CASE("threads are as many as can be started") {
    CHECK(env::most_threads() >= 256);
    {
      const Set none("WEFT_THREADS", nullptr);
      CHECK(env::thread_count() >= 1);
    }
    {
      const Set most("WEFT_THREADS", std::to_string(env::most_threads()).c_str());
      CHECK(env::thread_count() == env::most_threads());
    }
    const Set variable("WEFT_THREADS", "1000000");
    const std::string says =
        fmt::format("[env] WEFT_THREADS=1000000: here it can be up to {}", env::most_threads());
    CHECK(error_of([] { env::thread_count(); }).message == says);
    CHECK(error_of([] { env::check_all(); }).message == says);
  }

  TEST_CASE("a name that is not in the table is a mistake of the program") {
    CHECK(error_of([] { env::get("WEFT_COLOUR"); }).message ==
          "[env] WEFT_COLOUR is not in the table of variables");
  }

  TEST_CASE("check_all finds wrong values and misspelt names") {
    const Set log("WEFT_LOG", nullptr), threads("WEFT_THREADS", nullptr);
    CHECK_NOTHROW(env::check_all());
    {
      const Set variable("WEFT_FAULT", "flood");
      CHECK(error_of([] { env::check_all(); }).message.starts_with("[env] WEFT_FAULT=flood"));
    }
    {
      const Set variable("WEFT_DEVCE", "cpu");
      const auto caught = error_of([] { env::check_all(); });
      CHECK(caught.kind == "invalid");
      CHECK(caught.message.starts_with("[env] WEFT_DEVCE is not a variable of weft; these are: "));
      for (const env::Variable& v : env::table()) CHECK(caught.message.find(v.name) != std::string::npos);
    }
    const Set other("WEFTY", "not ours");
    CHECK_NOTHROW(env::check_all());
  }

  TEST_CASE("docs/environment.md has the table as it is") {
    const auto rows = documented();
    REQUIRE(rows.size() == env::table().size());
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK(rows[i][0] == env::table()[i].name);
      CHECK(rows[i][1] == env::table()[i].values);
      CHECK(rows[i][2] == env::table()[i].meaning);
    }
  }

  TEST_CASE("the values for people name every choice") {
    for (const env::Variable& v : env::table())
      for (std::string_view choice : v.choices) CHECK(v.values.find(choice) != std::string_view::npos);
  }
}
