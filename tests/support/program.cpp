#include "support/program.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/paths.h"

#include <sys/wait.h>
#include <unistd.h>

namespace weft::test {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) c == '\'' ? result += "'\\''" : result += c;
  return result + "'";
}

}  // namespace

Output run_program(const std::string& program, const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& environment) {
  static int count = 0;
  const std::filesystem::path base =
      std::filesystem::temp_directory_path() / fmt::format("weft-out-{}-{}", getpid(), ++count);
  std::string command = "env";
  for (const auto& [name, value] : environment)  // env wants what is unset before what is set
    if (value.empty()) command += " -u " + name;
  for (const auto& [name, value] : environment)
    if (!value.empty()) command += " " + quoted(name + "=" + value);
  // Under a sanitizer: the loader unloads drivers before the leak check, which then cannot tell their leaks
  // from ours.
  command += " ASAN_OPTIONS=detect_leaks=0 " + quoted(program);
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  command += fmt::format(" </dev/null >{0}.out 2>{0}.err", base.string());
  const int status = std::system(command.c_str());
  Output output;
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  output.text = read_text(base.string() + ".out").value_or("");
  output.errors = read_text(base.string() + ".err").value_or("");
  std::filesystem::remove(base.string() + ".out");
  std::filesystem::remove(base.string() + ".err");
  return output;
}

Output run_weft(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& environment) {
  return run_program(WEFT_PROGRAM, arguments, environment);
}

Output run_test_alone(const std::string& test_case) {
  return run_program(std::filesystem::read_symlink("/proc/self/exe"),
                     {"--no-skip", "--test-case=" + test_case});
}

}  // namespace weft::test
