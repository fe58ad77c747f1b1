#include "completion.h"

#include "base/error.h"

namespace weft::cli {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string names(const std::vector<CommandWords>& commands) {
  std::vector<std::string> words;
  for (const CommandWords& c : commands) words.push_back(c.name);
  return join(words);
}

std::string bash(const std::vector<CommandWords>& commands) {
  std::string text =
      "# weft completion for bash; use: source <(weft completion bash)\n"
      "_weft() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n";
  text +=
      fmt::format("    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n    return\n  fi\n",
                  names(commands));
  text += "  case \"${COMP_WORDS[1]}\" in\n";
  for (const CommandWords& c : commands)
    text +=
        fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")) ;;\n", c.name, join(c.options));
  return text + "  esac\n}\ncomplete -o default -F _weft weft\n";
}

std::string zsh(const std::vector<CommandWords>& commands) {
  std::string text =
      "#compdef weft\n"
      "# weft completion for zsh; use: source <(weft completion zsh)\n"
      "_weft() {\n"
      "  if (( CURRENT == 2 )); then\n"
      "    local -a commands=(\n";
  for (const CommandWords& c : commands) text += fmt::format("      '{}:{}'\n", c.name, c.help);
  text += "    )\n    _describe command commands\n    return\n  fi\n  case $words[2] in\n";
  for (const CommandWords& c : commands)
    text += fmt::format("    {}) compadd -- {} ;;\n", c.name, join(c.options));
  return text + "  esac\n}\ncompdef _weft weft\n";
}

std::string fish(const std::vector<CommandWords>& commands) {
  std::string text = "# weft completion for fish; use: weft completion fish | source\ncomplete -c weft -f\n";
  for (const CommandWords& c : commands) {
    text += fmt::format("complete -c weft -n __fish_use_subcommand -a {} -d '{}'\n", c.name, c.help);
    for (const std::string& option : c.options)
      if (option.starts_with("--"))
        text += fmt::format("complete -c weft -n '__fish_seen_subcommand_from {}' -l {}\n", c.name,
                            option.substr(2));
  }
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CommandWords>& commands) {
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  if (shell == "fish") return fish(commands);
  fail(ErrorKind::invalid, "[completion] no completion for '{}'; use bash, zsh or fish", shell);
}

}  // namespace weft::cli
