#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "base/paths.h"
#include "conform/suite.h"
#include "support/gguf_file.h"
#include "support/gpus.h"
#include "support/scoped.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"
#include "weft/error.h"
#include "weft/text.h"

using namespace weft;
using nlohmann::json;
using test::error_of;
using test::GgufFile;
namespace fs = std::filesystem;

namespace {

using Ids = std::vector<TokenId>;

const fs::path kData = fs::path(WEFT_SOURCE_DIR) / "tests/data/tokenizers";

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> suites() {
  std::vector<fs::path> files;
  for (const fs::path& folder : {kData, kData / "hf"})
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (entry.path().extension() == ".json" && name != "pre.json" &&
          name.find("-tokenizer") == std::string::npos)
        files.push_back(entry.path());
    }
  std::ranges::sort(files);
  return files;
}

Tokenizer gguf(const GgufFile& file) {
  const std::string bytes = file.file();
  return Tokenizer(read_gguf_tokenizer(Gguf::parse(std::as_bytes(std::span(bytes)), "test.gguf")));
}

/// A tokenizer.json with this model and these other members.
Tokenizer from_json(const std::string& model, const std::string& members = "",
                    const std::string& config = "") {
  return Tokenizer(parse_tokenizer_json("{\"model\":" + model + (members.empty() ? "" : ",") + members + "}",
                                        config, "tokenizer.json"));
}

const std::string kWords =
    R"({"type":"WordLevel","unk_token":"<unk>","vocab":{"<unk>":0,"a":1,"b":2,"<s>":3,"</s>":4}})";

std::string repeated(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

}  // namespace

TEST_SUITE_BEGIN("base: tokenizer");

TEST_CASE("the ids of llama.cpp and of the tokenizers library") {
  const std::vector<fs::path> files = suites();
  REQUIRE(files.size() >= 20);
  for (const fs::path& file : files) {
    CAPTURE(file.string());
    const conform::TokenizerSuite suite = conform::load_tokenizer_suite(file);
    const Tokenizer tokenizer = Tokenizer::open(suite.vocabulary);
    CHECK(suite.cases.size() >= 9);
    for (const conform::TokenizerCase& c : suite.cases) {
      CAPTURE(c.text);
      CHECK(tokenizer.encode(c.text) == c.ids);
    }
  }
}

TEST_CASE("every pre-tokenizer of llama.cpp") {
  // In this vocabulary any two bytes that follow each other merge, unless a piece ends between them.
  const std::string file = contents(kData / "pre.gguf");
  const json suite = json::parse(contents(kData / "pre.json"));
  const std::string key = "tokenizer.ggml.pre";
  const size_t at = file.find(key) + key.size() + sizeof(uint32_t);  // the length of "gpt-2"
  int names = 0;
  for (const json& group : suite["groups"])
    for (const std::string name : group["names"]) {
      CAPTURE(name);
      ++names;
      std::string renamed = file.substr(0, at);
      const uint64_t size = name.size();
      renamed.append(reinterpret_cast<const char*>(&size), sizeof size);
      renamed += name + file.substr(at + sizeof size + std::string_view("gpt-2").size());
      const Tokenizer tokenizer(
          read_gguf_tokenizer(Gguf::parse(std::as_bytes(std::span(renamed)), "renamed.gguf")));
      for (size_t i = 0; i < suite["texts"].size(); ++i) {
        CAPTURE(i);
        CHECK(tokenizer.encode(suite["texts"][i].get<std::string>()) == group["ids"][i].get<Ids>());
      }
    }
  CHECK(names == 87);
}

TEST_CASE("a user's text never becomes a control token") {
  for (const fs::path& file : suites()) {
    CAPTURE(file.string());
    const Tokenizer tokenizer = Tokenizer::open(conform::load_tokenizer_suite(file).vocabulary);
    int controls = 0;
    for (TokenId id = 0; static_cast<size_t>(id) < tokenizer.size(); ++id) {
      const std::string spelling(tokenizer.spelling(id));
      if (!tokenizer.is_control(id) || tokenizer.find(spelling) != id || spelling == "<unk>" ||
          spelling == "[UNK]")
        continue;
      ++controls;
      const Ids plain = tokenizer.encode(fmt::format("a{0}b{0}", spelling));
      CHECK(std::ranges::find(plain, id) == plain.end());
      const Ids parsed = tokenizer.encode(fmt::format("a{}b", spelling), {.parse_special = true});
      CHECK(std::ranges::count(parsed, id) == 1);
    }
    CHECK(controls > 0);
  }
}

TEST_CASE("parts of a text are one text, with control tokens in the trusted ones only") {
  struct Row {
    const char *name, *control;
  };
  for (const Row& row : {Row{"llama-spm.gguf", "</s>"}, Row{"llama-bpe.gguf", "<|begin_of_text|>"},
                         Row{"hf/mistral", "</s>"}, Row{"hf/qwen2", "<|im_end|>"}}) {
    CAPTURE(std::string(row.name));
    const Tokenizer tokenizer = Tokenizer::open(kData / row.name);
    const std::string_view control = row.control;
    const std::string user = fmt::format("Hel{}lo wor", control);
    const std::string_view half = control.substr(0, 2), other_half = control.substr(2);
    const TextPart parts[] = {{"Say: ", true}, {user, false},       {"ld", true},
                              {half, true},    {other_half, false}, {control, true}};
    Ids expected = tokenizer.encode(fmt::format("Say: {}ld{}", user, control));
    expected.push_back(tokenizer.find(control).value_or(kNoToken));
    CHECK(tokenizer.encode(parts) == expected);
  }
}

TEST_CASE("what the model wants around a text") {
  const auto around = [](const fs::path& model) {
    const Tokenizer tokenizer = Tokenizer::open(kData / model);
    const Ids inner = tokenizer.encode("Hello"), all = tokenizer.encode("Hello", {.add_special = true});
    const auto found = std::ranges::search(all, inner);
    std::string shown;
    for (auto it = all.begin(); it != found.begin(); ++it) shown += tokenizer.spelling(*it);
    shown += "Hello";
    for (auto it = found.end(); it != all.end(); ++it) shown += tokenizer.spelling(*it);
    return shown;
  };
  CHECK(around("llama-spm.gguf") == "<s>Hello");
  CHECK(around("llama-bpe.gguf") == "<|begin_of_text|>Hello");
  CHECK(around("gpt-2.gguf") == "Hello");
  CHECK(around("bert-bge.gguf") == "[CLS]Hello[SEP]");
  CHECK(around("nomic-bert-moe.gguf") == "<s>Hello</s>");
  CHECK(around("hf/mistral") == "<s>Hello");
  CHECK(around("hf/added-tokenizer.json") == "<s>Hello</s>");
  CHECK(Tokenizer::open(kData / "hf/qwen2").encode("", {.add_special = true}).empty());

  const Tokenizer both = from_json(kWords, R"("pre_tokenizer":{"type":"WhitespaceSplit"})",
                                   R"({"bos_token":{"content":"<s>"},"eos_token":"</s>",
                                       "add_bos_token":true,"add_eos_token":true})");
  CHECK(both.encode("a b", {.add_special = true}) == Ids{3, 1, 2, 4});
  CHECK(both.bos() == 3);
  CHECK(both.eos() == 4);
  CHECK(both.ends_generation(4));
  CHECK_FALSE(both.ends_generation(3));
}

TEST_CASE("added tokens: spaces, words, normalized text") {
  const std::string added =
      R"("pre_tokenizer":{"type":"WhitespaceSplit"},"normalizer":{"type":"Lowercase"},"added_tokens":[
    {"id":5,"content":"<l>","lstrip":true,"normalized":false},{"id":6,"content":"<r>","rstrip":true,"normalized":false},
    {"id":7,"content":"word","single_word":true,"normalized":false},{"id":8,"content":"Up","normalized":true},
    {"id":9,"content":"<ctl>","special":true},{"id":10,"content":"<ct","normalized":false}])";
  const Tokenizer tokenizer = from_json(kWords, added);
  CHECK(tokenizer.encode("a <l> b") == Ids{1, 5, 2});
  CHECK(tokenizer.encode("word words sword word") == Ids{7, 0, 0, 7});
  CHECK(tokenizer.encode("a up UP") == Ids{1, 8, 8});
  CHECK(tokenizer.encode("<ctl>", {.parse_special = true}) == Ids{9});
  CHECK(tokenizer.encode("<ctl>") == Ids{0});  // the longest counts, though it may not be used
  CHECK(tokenizer.encode("<ct l>") == Ids{10, 0});
  CHECK(tokenizer.decode(Ids{1, 9, 5}) == "a<l>");
  CHECK(tokenizer.decode(Ids{1, 9, 5}, {.special = true}) == "a<ctl><l>");
  const Tokenizer equal = from_json(
      kWords,
      R"("normalizer":{"type":"Lowercase"},"added_tokens":[{"id":5,"content":"tok"},{"id":6,"content":"TOK"}])");
  CHECK(equal.encode("Tok") == Ids{5});
  const Tokenizer phi = Tokenizer::open(kData / "phi-3.gguf");
  CHECK(phi.encode("<|end|> \n", {.parse_special = true}) == Ids{phi.find("<|end|>").value_or(-1)});
}

TEST_CASE("text comes back, piece by piece and never half a character") {
  const std::string text = "Hello, w\u00f6rld \U0001F999\U0001F469\u200d\U0001F467 \u4f60\u597d  x\n\n\t1234";
  for (const char* name : {"llama-spm.gguf", "llama-bpe.gguf", "qwen2.gguf", "gemma-4.gguf", "phi-3.gguf",
                           "hf/mistral", "hf/gptoss", "hf/fallback-tokenizer.json"}) {
    CAPTURE(name);
    const Tokenizer tokenizer = Tokenizer::open(kData / name);
    const Ids ids = tokenizer.encode(text);
    CHECK(tokenizer.decode(ids) == text);
    Detokenizer detokenizer(tokenizer);
    std::string grown;
    for (TokenId id : ids) {
      const std::string piece = detokenizer.push(id);
      CHECK(utf8::valid(piece) == piece);
      CHECK(piece.find("\ufffd") == std::string::npos);
      grown += piece;
    }
    CHECK(grown + detokenizer.finish() == text);
  }
  const Tokenizer bytes = Tokenizer::open(kData / "llama-spm.gguf");
  CHECK(bytes.decode(bytes.encode("Hello")) == "Hello");
  CHECK(bytes.decode(bytes.encode("Hello"), {.continues = true}) == " Hello");
  const TokenId half = bytes.find("<0xF0>").value_or(-1);
  CHECK(bytes.decode(Ids{half}) == "\ufffd");
  CHECK(bytes.decode(Ids{half, half}) == "\ufffd\ufffd");
  CHECK(Tokenizer::open(kData / "hf/wordpiece-tokenizer.json").decode(Ids{}) == "");
  CHECK(
      error_of([&] { bytes.decode(Ids{1'000'000}); }).message.starts_with("[tokenizer] 1000000 is no token"));
}

TEST_CASE("any bytes are a text") {
  std::mt19937 random(3);
  const std::string alphabet = "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff\xc0\x80 ab1'\n<|>\xe2\x96\x81";
  for (const fs::path& file : suites()) {
    CAPTURE(file.string());
    const Tokenizer tokenizer = Tokenizer::open(conform::load_tokenizer_suite(file).vocabulary);
    for (int round = 0; round < 100; ++round) {
      std::string text(random() % 30, ' ');
      for (char& c : text)
        c = round % 2 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
      for (TokenId id : tokenizer.encode(text, {.parse_special = round % 3 == 0}))
        CHECK((id >= 0 && static_cast<size_t>(id) < tokenizer.size()));
    }
  }
  // A vocabulary with bytes keeps them.
  const Tokenizer spm = Tokenizer::open(kData / "llama-spm.gguf");
  CHECK(spm.encode("\xff").back() == spm.find("<0xFF>").value_or(-1));
}

TEST_CASE("long texts of one kind take no longer than others") {
  constexpr size_t kMany = 100'000;
  for (const char* name : {"llama-spm.gguf", "llama-bpe.gguf", "bert-bge.gguf", "nomic-bert-moe.gguf",
                           "gemma-4.gguf", "hf/gptoss", "hf/mistral"}) {
    CAPTURE(name);
    const Tokenizer tokenizer = Tokenizer::open(kData / name);
    for (std::string_view part : {" ", "a", "\n", "7", "'", "<|", "e\u0301"})
      CHECK(tokenizer.encode(repeated(part, kMany / part.size())).size() <= kMany + 1);
  }
}

TEST_CASE("RWKV: the longest token, bytes spelt with escapes") {
  GgufFile file;
  file.text("tokenizer.ggml.model", "rwkv")
      .texts("tokenizer.ggml.tokens", {"<s>", "a", "ab", "abcd", "\\n", "\\xff\\xfe", "\\\\", " "})
      .integers("tokenizer.ggml.token_type", {3, 1, 1, 1, 1, 1, 1, 1});
  const Tokenizer tokenizer = gguf(file);
  CHECK(tokenizer.encode("abcab\na") == Ids{2, 2, 4, 1});  // "c" is nothing
  CHECK(tokenizer.encode("abcd\xff\xfe\\ ") == Ids{3, 5, 6, 7});
  CHECK(tokenizer.decode(Ids{3, 4, 6}) == "abcd\n\\");
}

TEST_CASE("Unigram takes the best sum, not the longest piece") {
  const std::string model =
      R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1],["b",-1],["ab",-3],["abc",-1.5]]})";
  const Tokenizer tokenizer = from_json(model);
  CHECK(tokenizer.encode("ab") == Ids{1, 2});
  CHECK(tokenizer.encode("abc") == Ids{4});
  CHECK(tokenizer.encode("axya") == Ids{1, 0, 1});  // unknown characters together
  CHECK(tokenizer.encode("") == Ids{});
}

TEST_CASE("a byte's token that is spelt in the text is that token") {
  const std::string vocab = R"("vocab":[["<unk>",0],["<0x41>",-1],["<",-2],["0",-2],["x",-2]]})";
  const Tokenizer tokenizer = from_json(R"({"type":"Unigram","unk_id":0,"byte_fallback":true,)" + vocab);
  CHECK(tokenizer.encode("x<0x41>0A") == Ids{4, 1, 3, 1});
}

TEST_CASE("a character that is no token, where there is none for unknown ones, is not there") {
  const Tokenizer tokenizer =
      from_json(R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]})");
  CHECK(tokenizer.encode("axb") == Ids{2});
  CHECK(tokenizer.encode("a\u2581b") == Ids{2});
}

TEST_CASE("BERT's cleaning keeps what Unicode may assign one day") {
  const Tokenizer tokenizer =
      from_json(kWords, R"("normalizer":{"type":"BertNormalizer","lowercase":false})");
  CHECK(tokenizer.encode("a\u200d") == Ids{1});
  CHECK(tokenizer.encode("a\u0378") == Ids{0});
}

TEST_CASE("a file that is wrong, or asks for too much, is one line") {
  struct Row {
    std::string text, message;
  };
  const std::string model = "{\"model\":" + kWords;
  const Row rows[] = {
      {"", "is not valid JSON"},
      {"[]", "is not a JSON object"},
      {"{}", "vocab is missing"},
      {R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})", "token id -1 is out of range"},
      {R"({"model":{"type":"BPE","vocab":{"a":99999999999},"merges":[]}})",
       "token id 99999999999 is out of range"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}})", "merges has an entry that is no pair"},
      {R"({"model":{"type":"BPE","vocab":{"a":0}}})", "merges is not a list"},
      {R"({"model":{"type":"Unigram","vocab":[["a"]]}})", "vocab is not a list of texts and scores"},
      {R"({"model":{"type":"Unigram","vocab":{"a":0}}})", "vocab is not a list of texts and scores"},
      {R"({"model":{"type":"Nope","vocab":{}}})", "the model Nope is not known"},
      {model + R"(,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"})" +
           repeated(R"(,{"type":"NFC"})", 300) + "]}}",
       "has more than 256 steps of a kind"},
      {model + R"(,"pre_tokenizer":{"type":"Metaspace","replacement":")" + repeated("x", 1000) + "\"}}",
       "replacement has 1000 bytes"},
      {model + R"(,"post_processor":{"type":"TemplateProcessing","special_tokens":{"x":{"ids":[0)" +
           repeated(",0", 900) + R"(]}},"single":[{"SpecialToken":{"id":"x"}})" +
           repeated(R"(,{"SpecialToken":{"id":"x"}})", 900) + "]}}",
       "puts more than 1000 tokens around a text"},
      {model + R"(,"normalizer":{"type":"Nope"}})", "the normalizer Nope is not known"},
      {model + R"(,"normalizer":{"type":"Precompiled","precompiled_charsmap":"!"}})",
       "precompiled_charsmap is not base64"},
      {model + R"(,"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Nope"}})",
       "the behavior Nope is not known"},
      {model + R"(,"post_processor":{"type":"BertProcessing","cls":["x",77],"sep":["x",77]}})",
       "token 77 is not in the vocabulary"},
      {model + R"(,"decoder":{"type":"CTC"}})", "the decoder CTC is not known"},
      {model + ",\"normalizer\":" + repeated(R"({"type":"Sequence","normalizers":[)", 40) +
           repeated("]}", 40) + "}",
       "nested deeper than 16 levels"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.message);
    CHECK(error_of([&] { parse_tokenizer_json(row.text, "", "t.json"); }).message ==
          "[tokenizer] t.json: " + row.message);
  }
  CHECK(error_of([&] {
          from_json(kWords, R"("added_tokens":[{"id":9,"content":")" + repeated("a", 20'000) + "b\"}]");
        }).message.ends_with("has 20001 bytes; at most 1024"));
  CHECK(error_of([&] {
          from_json(kWords, R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"("}})");
        }).message.starts_with("[regex] '('"));

  const test::ScopedFolder folder;
  const std::string path = (folder.path / "tokenizer.json").string();
  write_text(path, model + R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("}}})");
  const std::string named = error_of([&] { Tokenizer::open(path); }).message;
  CHECK(named.starts_with("[regex] '('"));
  CHECK(named.ends_with(", in " + path));

  GgufFile file;
  CHECK(error_of([&] { gguf(file); }).message == "[tokenizer] test.gguf: the file has no vocabulary");
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "nope");
  CHECK(error_of([&] { gguf(file); }).message == "[tokenizer] the pre-tokenizer 'nope' is not known");
  GgufFile scores;
  scores.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"a", "b"});
  scores.numbers("tokenizer.ggml.scores", {1});
  CHECK(error_of([&] { gguf(scores); }).message == "[tokenizer] test.gguf: 1 scores for 2 tokens");
  GgufFile map;
  map.text("tokenizer.ggml.model", "t5").texts("tokenizer.ggml.tokens", {"a"});
  map.bytes("tokenizer.ggml.precompiled_charsmap", "\x40");
  CHECK(error_of([&] { gguf(map); }).message == "[tokenizer] precompiled_charsmap has 1 bytes");
}

TEST_CASE("no text grows without bounds, whatever the steps of a small file are") {
  const std::string ten = R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})",
                    bytes = R"({"type":"ByteLevel","use_regex":false,"add_prefix_space":false})",
                    long_one = R"({"type":"Replace","pattern":{"Regex":"a"},"content":")" +
                               repeated("b", 100'000) + "\"}";
  for (const std::string& members :
       {R"("normalizer":{"type":"Sequence","normalizers":[)" + ten + repeated("," + ten, 20) + "]}",
        R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + bytes + repeated("," + bytes, 40) + "]}",
        R"("normalizer":)" + long_one}) {
    const Tokenizer tokenizer = from_json(kWords, members);
    CHECK(error_of([&] {
            tokenizer.encode("\u00e9" + repeated("a", 1000));
          }).message.starts_with("[tokenizer] a text of 1002 bytes would become"));
  }
  CHECK(from_json(kWords, R"("normalizer":{"type":"NFKC"})").encode(repeated("\ufdfa", 10'000)).size() == 1);
}

TEST_CASE("a damaged map of characters is not followed out of its memory") {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string map(4 + random() % 200, '\0');
    for (char& c : map) c = static_cast<char>(random() % (round % 2 == 0 ? 256 : 4));
    const auto size = static_cast<uint32_t>(random() % (map.size() / 4) * 4);
    std::memcpy(map.data(), &size, sizeof size);
    GgufFile file;
    file.text("tokenizer.ggml.model", "t5").texts("tokenizer.ggml.tokens", {"a", "\u2581", "<unk>"});
    file.bytes("tokenizer.ggml.precompiled_charsmap", map);
    const Tokenizer tokenizer = gguf(file);
    for (int i = 0; i < 20; ++i) {
      std::string text(10, ' ');
      for (char& c : text) c = static_cast<char>(random() % 130);
      CHECK(tokenizer.encode(text).size() <= 4000);
    }
  }
}

TEST_SUITE_END();
