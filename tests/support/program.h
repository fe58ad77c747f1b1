#pragma once

#include <map>
#include <string>
#include <vector>

namespace weft::test {

struct Output {
  int status = -1;     ///< exit status; 128 + N for signal N
  std::string text;    ///< standard output
  std::string errors;  ///< standard error
};

/// Runs a program in a pipe. An empty value unsets a variable.
Output run_program(const std::string& program, const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& environment = {});

/// Runs the `weft` program as a user would, in a pipe. An empty value unsets a variable.
Output run_weft(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& environment = {});

/// Runs one test of this program, marked with doctest::skip(), in a process of its own: no GPU library was
/// opened there yet, and what it leaves behind on purpose is no leak.
Output run_test_alone(const std::string& test_case);

}  // namespace weft::test
