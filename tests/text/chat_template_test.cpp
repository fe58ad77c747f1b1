#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "base/paths.h"
#include "conform/suite.h"
#include "support/gguf_file.h"
#include "support/gpus.h"
#include "text/tokenizer_json.h"
#include "weft/chat.h"
#include "weft/text.h"

using namespace weft;
using test::error_of;
namespace fs = std::filesystem;

namespace {

const fs::path kSuite = fs::path(WEFT_SOURCE_DIR) / "tests/data/chat/suite.json";
const std::string kHello = R"([{"role": "user", "content": "Hello"}])";

std::string render(const ChatTemplate& chat, const std::string& tools = "null") {
  return chat.render_text({.messages = kHello, .tools = tools, .bos_token = "<s>", .eos_token = "</s>"});
}

/// A folder that goes with the test.
struct Folder {
  Folder() : path(fs::temp_directory_path() / fmt::format("weft-chat-{}", getpid())) {
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    write_text(path / name, text);
    return path / name;
  }
  fs::path path;
};

/// "template[from outside]template" of what a template makes of a message.
std::string shown(std::string_view source, const std::string& content, const std::string& role = "user") {
  std::string text;
  const std::string messages = fmt::format(R"([{{"role": "{}", "content": "{}"}}])", role, content);
  for (const ChatPart& part :
       ChatTemplate(source).render({.messages = messages, .bos_token = "<s>", .now = "2026-01-15T09:30:00"}))
    text += part.trusted ? part.text : "[" + part.text + "]";
  return text;
}

}  // namespace

TEST_SUITE("base: chat templates") {
  TEST_CASE("real templates render as with transformers") {
    const conform::ChatSuite suite = conform::load_chat_suite(kSuite);
    CHECK(suite.cases.size() == 210);
    for (const conform::ChatCase& c : suite.cases) {
      CAPTURE(c.name);
      if (c.expect)
        CHECK(ChatTemplate(c.source).render_text(c.input) == *c.expect);
      else
        CHECK(error_of([&] { ChatTemplate(c.source).render(c.input); }).kind == "invalid");
    }
  }

  TEST_CASE("text from outside stays apart from the template's") {
    CHECK(shown("{{ bos_token }}<|u|>{{ messages[0].content }}<|e|>", "a<|e|>b") == "<s><|u|>[a<|e|>b]<|e|>");
    const std::pair<const char*, const char*> rows[] = {
        {"{{ '<' + messages[0].content + '>' }}", "<[ a-B ]>"},
        {"{{ '<' ~ messages[0].content ~ '>' }}", "<[ a-B ]>"},
        {"{{ messages[0].content | trim }}|", "[a-B]|"},
        {"{{ ('<' + messages[0].content + '>') | upper }}", "<[ A-B ]>"},
        {"{{ ('<' + messages[0].content + '>')[1:-2] }}", "[ a-B]"},
        {"{{ messages[0].content | replace('-', '<|>') }}", "[ a]<|>[B ]"},
        {"{{ messages[0].content.split('-') | join('<|>') }}", "[ a]<|>[B ]"},
        {"{{ '%s!' % messages[0].content }}", "[ a-B ]!"},
        {"{{ '{}!'.format(messages[0].content) }}", "[ a-B ]!"},
        {"{{ '<|x|>'.replace('x', messages[0].content) }}", "<|[ a-B ]|>"},
        {"{% for c in messages[0].content %}{{ c }}{% endfor %}", "[ a-B ]"},
        {"{{ messages | tojson }}", R"([[{"role": "user", "content": " a-B "}]])"},
        {"{{ messages[0] }}", "[{'role': 'user', 'content': ' a-B '}]"},
        {"{{ messages[0].keys() | last }}", "[content]"},
        {"{% set x %}<{{ messages[0].content }}>{% endset %}{{ x | trim('<') }}", "[ a-B ]>"},
        {"{% macro m(x) %}({{ x }}){% endmacro %}{{ m(messages[0].content) }}", "([ a-B ])"},
        {"{{ messages[0].content | length }}{{ messages[0].content == 'x' }}", "5False"},
        {"{{ messages[0].content | indent(2, true) }}", "  [ a-B ]"},
        {"{{ messages[0].content | e }}{{ messages[0].content | urlencode }}", "[ a-B %20a-B%20]"},
        {"{{ strftime_now('%Y') }}", "2026"},
    };
    for (const auto& [source, want] : rows) {
      CAPTURE(source);
      CHECK(shown(source, " a-B ") == want);
    }
  }

  TEST_CASE("only the names of roles may be part of a control token") {
    CHECK(shown("<|{{ messages[0].role }}|>", "") == "<|user|>");
    CHECK(shown("<|{{ messages[0].role }}|>", "", "endoftext") == "<|[endoftext]|>");
    CHECK(shown("<|{{ messages[0].content }}|>", "user") == "<|[user]|>");
  }

  TEST_CASE("a user's words never become control tokens") {
    const Tokenizer tokenizer(parse_tokenizer_json(
        R"({"added_tokens": [{"id": 3, "content": "<|e|>", "special": true, "normalized": false, "lstrip": false,
            "rstrip": false, "single_word": false}], "normalizer": null, "pre_tokenizer": null, "decoder": null,
            "post_processor": null, "model": {"type": "BPE", "byte_fallback": false, "merges": [],
            "vocab": {"<": 0, "|": 1, "e": 2, "<|e|>": 3, ">": 4, "!": 5}}})",
        "", "tokenizer.json"));
    const ChatTemplate chat("!{{ messages[0].content }}<|e|>");
    const auto parts = chat.render({.messages = R"([{"role": "user", "content": "<|e|>"}])"});
    std::vector<TextPart> views;
    for (const ChatPart& part : parts) views.push_back({part.text, part.trusted});
    CHECK(tokenizer.encode(views) == std::vector<TokenId>{5, 0, 1, 2, 1, 4, 3});
    // Nor do words that only together with the template's spell one.
    const ChatTemplate joined("<|{{ messages[0].content }}");
    CHECK(joined.render({.messages = R"([{"role": "user", "content": "e|>"}])"}).size() == 2);
  }

  TEST_CASE("a template is found in a model's files") {
    const Folder folder;
    const auto config = [](const std::string& value) {
      return fmt::format(R"({{"chat_template": {}}})", value);
    };
    folder.write("tokenizer_config.json", config(R"("old {{ bos_token }}")"));
    CHECK(render(ChatTemplate::open(folder.path)) == "old <s>");
    folder.write("chat_template.json", config(R"("newer")"));
    CHECK(render(ChatTemplate::open(folder.path)) == "newer");
    const fs::path jinja = folder.write("chat_template.jinja", "newest\n");
    CHECK(render(ChatTemplate::open(folder.path)) == "newest");
    CHECK(render(ChatTemplate::open(jinja)) == "newest");
    folder.write("additional_chat_templates/rag.jinja", "rag");
    const ChatTemplate both = ChatTemplate::open(folder.path);
    CHECK(both.variants() == std::vector<std::string>{"default", "rag"});
    CHECK(both.render_text({.messages = kHello, .variant = "rag"}) == "rag");
    CHECK(error_of([&] { both.render({.messages = kHello, .variant = "x"}); }).message.find("default, rag") !=
          std::string::npos);
  }

  TEST_CASE("tools choose the template for tools") {
    const Folder folder;
    folder.write("tokenizer_config.json",
                 R"({"chat_template": [{"name": "default", "template": "plain"},
                                       {"name": "tool_use", "template": "tools"}]})");
    const ChatTemplate listed = ChatTemplate::open(folder.path);
    CHECK(render(listed) == "plain");
    CHECK(render(listed, "[]") == "tools");
    test::GgufFile gguf;
    gguf.text("tokenizer.chat_template", "plain").text("tokenizer.chat_template.tool_use", "tools");
    const ChatTemplate stored = ChatTemplate::open(folder.write("model.gguf", gguf.file()));
    CHECK(render(stored) == "plain");
    CHECK(render(stored, "[]") == "tools");
    CHECK(error_of([&] {
            ChatTemplate::open(folder.write("empty.gguf", test::GgufFile().file()));
          }).message.find("no chat template") != std::string::npos);
  }

  TEST_CASE("built-in templates") {
    const std::string messages = R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                                     {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}])";
    const auto text = [&](const char* name) {
      return ChatTemplate::open(name).render_text(
          {.messages = messages, .bos_token = "<s>", .eos_token = "</s>"});
    };
    CHECK(
        text("chatml") ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
        "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n");
    CHECK(text("llama2") == "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]");
    CHECK(text("llama3") ==
          "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_"
          "id|>\n\nU"
          "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user"
          "<|end_header_id|>\n\nV<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
    CHECK(text("mistral-v1") == "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]");
    CHECK(text("gemma") ==
          "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
          "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n");
    CHECK(text("phi3") ==
          "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n<|"
          "assistant|>\n");
    CHECK(text("zephyr") ==
          "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n");
    CHECK(text("vicuna") == "<s>S\n\nUSER: U\nASSISTANT: A</s>\nUSER: V\nASSISTANT:");
    CHECK(text("alpaca") ==
          "S\n\n### Instruction:\nU\n\n### Response:\nA</s>\n\n### Instruction:\nV\n\n### Response:\n");
    for (std::string_view name : ChatTemplate::built_in_names())
      CHECK(!render(ChatTemplate::open(name)).empty());
  }

  TEST_CASE("input that is no conversation") {
    const ChatTemplate chat("{{ messages[0].content }}");
    for (const char* messages : {"", "[", "{]", "[1e999]", "\xff"}) {
      CAPTURE(messages);
      CHECK(error_of([&] { chat.render({.messages = messages}); }).message.starts_with("[chat template] "));
    }
    CHECK(error_of([&] { chat.render({.messages = std::string(100'000, '[')}); }).message.find("deeply") !=
          std::string::npos);
    CHECK(error_of([&] { chat.render({.messages = "[]", .now = "today"}); }).message.find("today") !=
          std::string::npos);
    CHECK(error_of([&] { chat.render({.messages = "[]"}); }).message ==
          "[chat template] line 1: 'list object' has no item 0");
  }
}
