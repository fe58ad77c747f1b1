// Commands about language models, as a user would call them.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "base/paths.h"
#include "io/safetensors.h"
#include "support/gpus.h"
#include "support/program.h"
#include "support/scoped.h"
#include "support/skip.h"
#include "weft/text.h"

using namespace weft;
using nlohmann::json;
using test::run_weft;

namespace {

const std::string kModel = WEFT_SOURCE_DIR "/tests/data/models/qwen2/model-f32.gguf";

test::Output run_greedy(std::vector<std::string> more,
                        const std::map<std::string, std::string>& environment = {}) {
  std::vector<std::string> arguments = {"run", kModel,   "-p", "Hello",       "-n",
                                        "16",  "--temp", "0",  "--ignore-eos"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_weft(arguments, environment);
}

/// The real model that `make run` uses; empty where it cannot be had.
std::string smollm2() {
  const test::Output out = run_weft({"pull", "smollm2"});
  return out.status == 0 ? out.text.substr(0, out.text.find('\n')) : "";
}

}  // namespace

TEST_SUITE("cli: models") {
  TEST_CASE("run prints the continuation and nothing else") {
    const test::Output out = run_greedy({"--device", "cpu"});
    CHECK(out.status == 0);
    CHECK(out.text.size() > 10);
    CHECK(out.errors.starts_with("prompt: "));
    const test::Output report = run_greedy({"--device", "cpu", "--json", "--logprobs", "2"});
    const json parsed = json::parse(report.text);
    CHECK(parsed["text"].get<std::string>() + "\n" == out.text);
    CHECK(parsed["tokens"].size() == 16);
    CHECK(parsed["finish_reason"] == "length");
    CHECK(parsed["logprobs"][0]["top"].size() == 2);
  }

  TEST_CASE("guessed tokens do not change the text") {
    const json want = json::parse(run_greedy({"--device", "cpu", "--json"}).text);
    for (const std::vector<std::string>& draft :
         {std::vector<std::string>{"-md", kModel, "--draft-max", "4", "--draft-p-min", "0"}, {"--lookup"}}) {
      std::vector<std::string> more = {"--device", "cpu", "--json"};
      more.insert(more.end(), draft.begin(), draft.end());
      const json got = json::parse(run_greedy(more).text);
      CHECK(got["tokens"] == want["tokens"]);
      if (draft[0] == "-md") CHECK(got["guessed_tokens"] > 0);
    }
  }

  TEST_CASE("wrong files and numbers are one line") {
    const auto line = [](const std::vector<std::string>& arguments) {
      const test::Output out = run_weft(arguments);
      CHECK((out.status == 1 || out.status == 2));  // the work failed, or it was a wrong call
      CHECK(out.text.empty());
      CHECK(out.errors.find('\n') == out.errors.size() - 1);
      return out.errors;
    };
    CHECK(line({"run", kModel, "-f", "/nowhere", "--device", "cpu"}).starts_with("weft: "));
    CHECK(line({"run", WEFT_SOURCE_DIR "/README.md", "-p", "x"}).find("this is no GGUF file") !=
          std::string::npos);
    CHECK(line({"info", "/nowhere/model.gguf"}).starts_with("weft: "));
    CHECK(line({"run", kModel, "-p", std::string(200, 'x'), "-c", "8", "--device", "cpu"})
              .find("the context 8") != std::string::npos);
    CHECK(line({"run", kModel, "-p", "x", "--device", "cpu", "--grammar", "root ::= ("})
              .find("[grammar] line 1") != std::string::npos);
    // A file that ends too early.
    const std::filesystem::path cut = std::filesystem::temp_directory_path() / "weft-cut.gguf";
    std::filesystem::copy_file(kModel, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, std::filesystem::file_size(cut) / 2);
    CHECK(line({"run", cut.string(), "-p", "x"}).find("are announced where the file has") !=
          std::string::npos);
    std::filesystem::remove(cut);
  }

  TEST_CASE("senseless numbers are a wrong call") {
    for (const std::vector<std::string>& senseless : {std::vector<std::string>{"-n", "-2"},
                                                      {"-n", "-5"},
                                                      {"-n", ""},
                                                      {"--keep", "-2"},
                                                      {"--json", "--logprobs", "-1"},
                                                      {"-s", ""},
                                                      {"-s", "99999999999999999999"},
                                                      {"-s", "-2"},
                                                      {"-c", "99999999999999999999"},
                                                      {"-c", "9000000000000000000"},
                                                      {"-c", "-1"},
                                                      {"--temp", ""},
                                                      {"--top-k", "7x"},
                                                      {"--min-p", "nan"},
                                                      {"--repeat-last-n", "-2"},
                                                      {"--mirostat", "1"},
                                                      {"--mirostat", "7"},
                                                      {"-l", "512+1"},
                                                      {"-l", "1.5+1"}}) {
      CAPTURE(senseless);
      std::vector<std::string> arguments = {"run", kModel, "-p", "x", "--device", "cpu"};
      arguments.insert(arguments.end(), senseless.begin(), senseless.end());
      const test::Output out = run_weft(arguments);
      CHECK(out.status == 2);
      CHECK(out.text.empty());
      CHECK(out.errors.starts_with("weft: "));
    }
    CHECK(run_weft({"bench", kModel, "-p", "-5"}).status == 2);
    CHECK(run_weft({"bench", kModel, "-p", "4,-5", "-n", "1"}).status == 2);
    CHECK(run_weft({"bench", kModel, "-n", "-4"}).status == 2);
  }

  TEST_CASE("a prompt can be kept when the context is full") {
    const std::vector<std::string> kept = {"run", kModel, "-p",     "Hello", "-n",           "60",
                                           "-c",  "32",   "--keep", "-1",    "--ignore-eos", "--json"};
    const test::Output out = run_weft(kept, {{"WEFT_DEVICE", "cpu"}});
    CHECK(json::parse(out.text)["tokens"].size() == 60);
  }

  TEST_CASE("a conversation that its template refuses is no wrong call") {
    const test::ScopedFolder folder;
    const std::string form = folder.path / "refuses.jinja";
    write_text(form, "{{ raise_exception('no such role') }}");
    const test::Output out =
        run_weft({"chat", kModel, "--device", "cpu", "-p", "x", "--chat-template", form});
    CHECK(out.status == 1);
    CHECK(out.errors == "weft: [chat template] line 1: no such role\n");
  }

  TEST_CASE("Ctrl-C ends an answer with its statistics, and the chat goes on") {
    const test::ScopedFolder folder;
    write_text(folder.path / "said", "x\n/quit\n");
    // The model's ends are banned: only the interrupt ends the answer.
    const std::string script =
        "at=$1; shift; \"$0\" chat \"$@\" <\"$at/said\" >\"$at/out\" 2>\"$at/err\" & "
        "until [ -s \"$at/out\" ]; do sleep 0.02; done; kill -INT $!; wait $!; status=$?; "
        "cat \"$at/err\"; exit $status";
    std::vector<std::string> arguments = {"-c",       script, WEFT_PROGRAM,      folder.path, kModel,
                                          "--device", "cpu",  "--chat-template", "chatml"};
    const Tokenizer tokenizer = Tokenizer::open(kModel);
    for (TokenId id = 0; static_cast<size_t>(id) < tokenizer.size(); ++id)
      if (tokenizer.ends_generation(id))
        arguments.insert(arguments.end(), {"-l", std::to_string(id) + "-inf"});
    const test::Output out = test::run_program("/bin/sh", arguments);
    CHECK(out.status == 0);
    CHECK(out.text.find("prompt: ") != std::string::npos);
  }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need more addresses
  TEST_CASE("memory that ends is a sentence") {
    const test::Output out =
        test::run_program("/bin/sh", {"-c", "ulimit -v 500000; exec \"$0\" \"$@\"", WEFT_PROGRAM, "run",
                                      kModel, "-p", "x", "--device", "cpu", "-t", "1", "-c", "4000000"});
    CHECK(out.status == 1);
    CHECK(out.errors == "weft: there is not enough memory for this\n");
  }
#endif

  TEST_CASE("chat -p answers once, whatever the question") {
    const test::Output out =
        run_weft({"chat", kModel, "--chat-template", "chatml", "-p", "", "-n", "2", "--device", "cpu"});
    CHECK(out.status == 0);
    CHECK(out.errors.starts_with("prompt: "));  // the statistics of an answer
  }

  TEST_CASE("files that a user names are checked before the work") {
    const test::ScopedFolder folder;
    const std::string file = folder.path / "none/file";
    const std::string says =
        fmt::format("weft: [io] cannot write {}: there is no folder {}/none\n", file, folder.path.string());
    CHECK(run_greedy({"--device", "cpu", "--prompt-cache", file}).errors == says);
    CHECK(run_weft({"quantize", kModel, file, "q8_0"}).errors == says);
    CHECK_FALSE(std::filesystem::exists(folder.path / "none"));
  }

  TEST_CASE("info tells what is in a model") {
    const json facts = json::parse(run_weft({"info", kModel, "--json", "--tensors"}).text);
    CHECK(facts["architecture"] == "qwen2");
    CHECK(facts["layers"] == 2);
    const json latent = json::parse(
        run_weft({"info", WEFT_SOURCE_DIR "/tests/data/architectures/deepseek2/model.gguf", "--json"}).text);
    CHECK(latent["cache_bytes_per_token"] ==
          2 * (16 + 4 + 16) * 2);  // layers, latent keys and values, halves
    CHECK(facts["tensors"].size() > 20);
    CHECK(facts["chat_template"] == true);
    CHECK(facts["metadata"]["qwen2.block_count"] == 2);
    CHECK(facts["cache_bytes_per_token"] == 2 * 2 * (16 + 16) * sizeof(float));  // layers, heads, k and v

    const json& memory = facts["memory"];
    const uint64_t need = memory["bytes"];
    CHECK(need > facts["bytes"]);
    const json cpu = memory["devices"].back();
    CHECK(cpu["device"] == "cpu");
    CHECK(cpu["bytes"] == need);
    CHECK(cpu["memory"] > need);
    CHECK(cpu["fits"] == true);
    CHECK(memory["devices"].size() == json::parse(run_weft({"devices", "--json"}).text)["devices"].size());

    const std::string text = run_weft({"info", kModel}).text;
    CHECK(text.find("\nqwen2.block_count ") != text.npos);
    CHECK(text.find(" cpu (") != text.npos);
    CHECK(text.find("): it fits: ") != text.npos);
  }

  TEST_CASE("info of a vocabulary without weights tells what is there") {
    const std::string file = WEFT_SOURCE_DIR "/tests/data/tokenizers/gpt-2.gguf";
    const test::Output out = run_weft({"info", file, "--json"});
    CHECK(out.status == 0);
    const json facts = json::parse(out.text);
    CHECK(facts["architecture"] == "gpt2");
    CHECK(facts["cannot_run"] == "the file has no weights");
    CHECK(facts["tokenizer"] == "gpt2, gpt-2");
    CHECK_FALSE(facts.contains("memory"));
    const json& tokens = facts["metadata"]["tokenizer.ggml.tokens"];
    CHECK(tokens["length"] > 500);
    CHECK(tokens["first"].size() == 8);
    CHECK(run_weft({"info", file}).text.find("\ntokenizer.ggml.tokens ") != std::string::npos);
  }

  TEST_CASE("info of a folder has what its config says") {
    const test::ScopedFolder folder;
    const std::vector<std::byte> zeros(16 * 4 * sizeof(float));
    write_safetensors(folder.path / "model.safetensors",
                      {{"model.embed_tokens.weight", {DType::f32, {16, 4}, zeros}}});
    write_text(folder.path / "config.json",
               R"({"model_type":"llama","hidden_size":4,"num_hidden_layers":1,"num_attention_heads":1,)"
               R"("rms_norm_eps":1e-05,"vocab_size":16,"ids":[1,2,3,4,5,6,7,8,9]})");
    write_text(folder.path / "tokenizer_config.json",
               R"({"tokenizer_class":"LlamaTokenizer","chat_template":"x"})");
    const json facts = json::parse(run_weft({"info", folder.path, "--json"}).text);
    CHECK(facts["metadata"]["rms_norm_eps"] == 1e-5);
    CHECK(facts["metadata"]["ids"] == json{{"length", 9}, {"first", {1, 2, 3, 4, 5, 6, 7, 8}}});
    CHECK(facts["tokenizer"] == "LlamaTokenizer");
    CHECK(facts["chat_template"] == true);
  }

  TEST_CASE("bench tells rates, bytes and shares, and draws them") {
    const test::ScopedFolder folder;
    const std::string plot = folder.path / "plot.svg";
    const std::vector<std::string> arguments = {"bench", kModel, "--device", "cpu", "-p", "8,0", "-n",    "4",
                                                "--ctx", "0,40", "--batch",  "1,3", "-r", "1",   "--json"};
    std::vector<std::string> with_plot = arguments;
    with_plot.insert(with_plot.end(), {"--svg", plot});
    const json rows = json::parse(run_weft(with_plot).text);
    std::vector<std::string> tests;
    for (const json& row : rows) {
      tests.push_back(row["test"]);
      CHECK(row["tokens_per_second"] > 0);
      CHECK(row["share_of_copy"] > 0);
    }
    CHECK(tests == std::vector<std::string>{"pp8", "tg4", "tg4 x 3", "pp8 @ d40", "tg4 @ d40"});
    // The weights once for all sequences, the keys of each.
    const double alone = rows[1]["bytes_per_token"], three = rows[2]["bytes_per_token"];
    CHECK(three < alone / 2);
    CHECK(rows[4]["bytes_per_token"] > alone);
    std::ifstream file(plot);
    const std::string svg(std::istreambuf_iterator<char>(file), {});
    CHECK(svg.starts_with("<svg "));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(svg.find("model-f32.gguf") != svg.npos);

    CHECK(run_weft({"bench", kModel, "-p", "0", "-n", "0"}).errors ==
          "weft: [bench] there is nothing to time: -p and -n are 0\n");
    CHECK(run_weft({"bench", kModel, "--batch", "0"}).status == 2);
    CHECK(run_weft({"bench", kModel, "-d", "-5"}).status == 2);
    const auto nowhere = run_weft({"bench", kModel, "--svg", folder.path / "no folder" / "plot.svg"});
    CHECK(nowhere.status == 1);
    CHECK(nowhere.text.empty());  // nothing was timed
    CHECK(nowhere.errors.find("no folder") != std::string::npos);
  }

  TEST_CASE("verify compares logits") {
    const std::string expect = WEFT_SOURCE_DIR "/tests/data/models/qwen2/expect.safetensors";
    CHECK(run_weft({"verify", kModel, "--expect", expect, "--device", "cpu"}).status == 0);
    const test::ScopedFolder cache;  // names do as well as paths
    CHECK(run_weft({"verify", "file://" + kModel, "--expect", expect, "--device", "cpu"},
                   {{"WEFT_CACHE", cache.path.string()}})
              .status == 0);
    CHECK(run_weft({"verify", kModel, "--expect", expect, "--device", "cpu", "--max", "1e-12"}).status == 1);
  }

  TEST_CASE("verify says what it does not accept") {
    const std::string expect = WEFT_SOURCE_DIR "/tests/data/models/qwen2/expect.safetensors";
    const auto errors = [&](const std::string& file, const std::vector<std::string>& more, int status) {
      std::vector<std::string> arguments = {"verify", kModel, "--expect", file, "--device", "cpu"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const test::Output out = run_weft(arguments);
      CHECK(out.status == status);
      return out.errors;
    };
    const std::string line = errors(expect, {"--max", "1e-12"}, 1);
    CHECK(line.starts_with("weft: [verify] largest difference "));
    CHECK(line.ends_with(", allowed 1e-12\n"));
    CHECK(errors(expect, {"--max", "-1"}, 2).starts_with("weft: --max: has to be 0 or more, not -1\n"));
    CHECK(errors(expect, {"--max", "nan"}, 2).starts_with("weft: --max: has to be 0 or more, not nan\n"));
    CHECK(errors(expect, {"--top1", "1.5"}, 2).starts_with("weft: --top1: has to be 0 to 1, not 1.5\n"));

    const test::ScopedFolder folder;
    const auto file = [&](std::vector<int32_t> ids, int64_t vocabulary) {
      const auto size = static_cast<size_t>(std::ssize(ids) * vocabulary) * sizeof(float);
      const auto bytes = std::as_bytes(std::span(ids));
      write_safetensors(
          folder.path / "e.safetensors",
          {{"input_ids", {DType::i32, {1, std::ssize(ids)}, {bytes.begin(), bytes.end()}}},
           {"logits", {DType::f32, {1, std::ssize(ids), vocabulary}, std::vector<std::byte>(size)}}});
      return (folder.path / "e.safetensors").string();
    };
    CHECK(errors(file({1, 2}, 10), {}, 1).find(", 10 are expected\n") != std::string::npos);
    CHECK(errors(file({-1}, 10), {}, 1).find("input_ids has a -1") != std::string::npos);
    CHECK(errors(file({}, 10), {}, 1).find("input_ids (1,0) and logits (1,0,10) do not go together") !=
          std::string::npos);
    write_safetensors(folder.path / "e.safetensors", {});
    CHECK(errors(folder.path / "e.safetensors", {}, 1).find("there are no input_ids") != std::string::npos);
  }

  TEST_CASE("numbers that a flag does not take") {
    const auto line = [](const std::vector<std::string>& arguments) {
      const test::Output out = run_weft(arguments);
      CHECK(out.status == 2);
      CHECK(out.text.empty());
      return out.errors.substr(0, out.errors.find('\n'));
    };
    CHECK(line({"run", kModel, "-p", "x", "-c", "-1"}) ==
          "weft: --ctx-size: has to be 0 to 16777216, not -1");
    CHECK(line({"run", kModel, "-p", "x", "-c", "99999999999"}).ends_with(", not 99999999999"));
    CHECK(line({"run", kModel, "-p", "x", "--draft-max", "-1", "-md", kModel}) ==
          "weft: --draft-max: has to be 0 or more, not -1");
    CHECK(line({"run", kModel, "-p", "x", "-t", "0"}).starts_with("weft: --threads: has to be 1 to "));
    CHECK(line({"run", kModel, "-p", "x", "-t", "10000"}).ends_with(", not 10000"));
    CHECK(line({"run", kModel, "-p", "x", "-t", "two"}) == "weft: --threads: 'two' is not a whole number");
    CHECK(line({"bench", kModel, "-r", "0"}) == "weft: --repetitions: has to be 1 or more, not 0");
    CHECK(line({"bench", kModel, "-d", "1,-5"}) == "weft: --n-depth: has to be 0 to 16777216, not -5");
    CHECK(line({"bench", kModel, "-t", "10000"}).ends_with(", not 10000"));

    const std::string text = WEFT_SOURCE_DIR "/README.md";
    for (const std::string few : {"1", "2"})
      CHECK(line({"perplexity", kModel, "-f", text, "--device", "cpu", "-c", few})
                .ends_with("-c has to be 3 or more"));
    CHECK(line({"perplexity", kModel, "-f", text, "--device", "cpu", "--chunks", "0"}) ==
          "weft: [perplexity] no window is to be read: --chunks is 0");
    const json least = json::parse(
        run_weft({"perplexity", kModel, "-f", text, "--device", "cpu", "-c", "3", "--chunks", "2", "--json"})
            .text);
    CHECK(least["tokens"] == 2);
    CHECK(run_weft({"perplexity", "--help"}).text.find("default: 512") != std::string::npos);
  }

  TEST_CASE("the CPU goes on when a GPU fails, with the same text") {
    const std::string want = run_greedy({"--device", "cpu"}).text;
    for (const test::TestLibrary& library : test::libraries()) {
      if (!library.supported || !std::filesystem::exists(library.path)) continue;
      CAPTURE(library.name);
      for (const std::string fault : {"device_lost:2", "device_lost:12", "oom:5", "oom:40"}) {
        CAPTURE(fault);
        const test::Output out = run_greedy(
            {}, {{"WEFT_DEVICE", "webgpu"}, {"WEFT_WEBGPU_LIB", library.path}, {"WEFT_FAULT", fault}});
        CHECK(out.status == 0);
        CHECK(out.text == want);
        CHECK(out.errors.starts_with("weft: warning: [gpu]"));
      }
      // Who names the device wants that one.
      const test::Output out = run_greedy(
          {"--device", "webgpu"}, {{"WEFT_WEBGPU_LIB", library.path}, {"WEFT_FAULT", "device_lost:12"}});
      CHECK(out.status == 1);
      return;  // one library is enough: what it does to fail is tested elsewhere
    }
  }

  TEST_CASE("a real model: perplexity, an answer, JSON") {
    const std::string model = smollm2();
    const std::filesystem::path licence = "/usr/share/common-licenses/GPL-3";
    if (model.empty() || !std::filesystem::exists(licence))
      return test::skip("no SmolLM2, or no text to read");
    const std::filesystem::path text = std::filesystem::temp_directory_path() / "weft-gpl.txt";
    write_text(text, read_text(licence)->substr(0, 30'000));
    const json got = json::parse(
        run_weft({"perplexity", model, "-f", text.string(), "-c", "512", "--device", "cpu", "--json"}).text);
    CHECK(std::abs(got["perplexity"].get<double>() / 18.557 - 1) < 0.005);  // llama.cpp's
    std::filesystem::remove(text);
    const std::string answer = run_weft({"chat", model, "-p", "What is the capital of Germany?", "--temp",
                                         "0", "-n", "24", "--device", "cpu"})
                                   .text;
    CHECK(answer.find("Berlin") != std::string::npos);
    const std::string schema =
        R"({"type":"object","properties":{"age":{"type":"integer"}},"required":["age"]})";
    const json person = json::parse(run_weft({"run", model, "-p", "A person as JSON: ", "-j", schema,
                                              "--device", "cpu", "-s", "1", "-n", "64"})
                                        .text,
                                    nullptr, false);
    CHECK(person["age"].is_number_integer());
  }
}
