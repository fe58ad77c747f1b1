#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/standard_error.h"
#include "input.h"
#include "models/commands.h"
#include "models/conversation.h"
#include "models/line_reader.h"
#include "models/markdown.h"
#include "models/model_flags.h"
#include "models/numbers.h"
#include "term.h"

namespace weft::cli {
namespace {

constexpr const char* kHelp =
    "/help           this list\n"
    "/reset          begin anew; the system's message stays\n"
    "/system TEXT    what the model is told about its role; no TEXT: nothing\n"
    "/save FILE      write the conversation as JSON\n"
    "/stats          times of the last answer\n"
    "/quit           end; so does Ctrl-D\n"
    "A line that ends in \\ goes on in the next one; \"\"\" begins and ends a longer text. Ctrl-C stops an "
    "answer.\n";

struct Flags {
  ModelFlags model;
  SamplerFlags sampler;
  DraftFlags draft;
  std::string system, form, prompt;
  int64_t count = -1;
};

class Chat {
 public:
  explicit Chat(const Flags& flags)
      : options_{.sampler = flags.sampler.checked(), .max_tokens = flags.count},
        model_(flags.model.open(flags.draft.checked())),
        conversation_(
            ChatTemplate::open(flags.form.empty() ? flags.model.path() : std::filesystem::path(flags.form)),
            model_.tokenizer()),
        colour_(term::colours(stdout)) {
    if (!flags.system.empty()) conversation_.set_system(flags.system);
  }

  /// One question, one answer, and the end.
  void ask_once(const std::string& text) {
    answer(text);
    to_stderr("{}\n", stats_);
  }

  void run() {
    const bool terminal = isatty(STDIN_FILENO) == 1;
    if (terminal)
      to_stderr("{} on {}, context {}. /help tells more.\n", model_.architecture(), model_.device().name(),
                model_.context());
    LineReader reader(terminal);
    while (const std::optional<std::string> text = reader.read("> ")) {
      if (text->empty()) continue;
      try {
        if (text->front() == '/') {
          if (!command(*text)) return;
        } else {
          answer(*text);
          if (cancelled_) to_stderr("{}\n", stats_);
        }
      } catch (const Error& e) {  // of this line only; the conversation goes on
        to_stderr("weft: {}\n", e.what());
      }
    }
    check_input("chat");
  }

 private:
  void answer(const std::string& text) {
    conversation_.say("user", text);
    try {
      const std::vector<TokenId> prompt = conversation_.prompt();
      Markdown shown(colour_);
      const Interrupt interrupt;
      options_.cancelled = [&] { return interrupt.happened(); };
      const GenerateResult result = model_.generate(prompt, options_, [&](const GeneratedToken& token) {
        fmt::print("{}", shown.push(token.text));
        term::flush();
        return true;
      });
      fmt::print("{}\n", shown.finish());
      term::flush();
      cancelled_ = result.reason == FinishReason::cancelled;
      if (cancelled_ && result.tokens.empty())
        conversation_.forget_last();
      else
        conversation_.say("assistant", result.text);
      stats_ = statistics(model_, result);
    } catch (...) {
      conversation_.forget_last();
      throw;
    }
  }

  /// False: the end.
  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string word = line.substr(0, space),
                      rest =
                          space == std::string::npos ? "" : line.substr(line.find_first_not_of(' ', space));
    if (word == "/quit" || word == "/exit") return false;
    if (word == "/help") {
      fmt::print("{}", kHelp);
    } else if (word == "/reset") {
      conversation_.reset();
    } else if (word == "/system") {
      conversation_.set_system(rest);
    } else if (word == "/stats") {
      fmt::print("{}\n", stats_.empty() ? "no answer yet" : stats_);
    } else if (word == "/save") {
      if (rest.empty()) fail(ErrorKind::invalid, "/save needs the name of a file");
      conversation_.save(rest);
      fmt::print("saved to {}\n", rest);
    } else {
      fail(ErrorKind::invalid, "there is no {}; /help lists what there is", word);
    }
    term::flush();
    return true;
  }

  GenerateOptions options_;
  LanguageModel model_;
  Conversation conversation_;
  bool colour_, cancelled_ = false;
  std::string stats_;
};

}  // namespace

void add_chat(CLI::App& app, int& status) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a language model");
  flags->model.add_to(*command);
  CLI::Option* prompt =
      command->add_option("-p,--prompt", flags->prompt, "One question: its answer, and the end");
  command->add_option("--system,--system-prompt", flags->system, "What the model is told about its role");
  command->add_option("--chat-template", flags->form,
                      "Another template: a .jinja file, or a name such as chatml, llama2 or alpaca");
  command->add_option("-n,--predict,--n-predict", flags->count, "Tokens of an answer; -1: until it ends")
      ->check(at_least<int64_t>(-1))
      ->capture_default_str();
  flags->sampler.add_to(*command);
  flags->draft.add_to(*command);
  check_numbers(*command);
  command->callback([&status, flags, prompt] {
    Chat chat(*flags);
    prompt->count() == 0 ? chat.run() : chat.ask_once(flags->prompt);
    status = 0;
  });
}

}  // namespace weft::cli
