#include "quantize/quantize.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "base/paths.h"
#include "io/gguf_writer.h"
#include "quant/importance.h"
#include "quantize/importance.h"
#include "quantize/recipe.h"
#include "support/gpus.h"
#include "support/program.h"
#include "support/scoped.h"

using namespace weft;
using nlohmann::json;
using quant::Type;
using test::error_of;
using test::run_weft;

namespace {

constexpr int64_t kColumns = 256;

std::vector<float> values_of(const std::string& name, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name)));
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

const std::vector<std::pair<std::string, Shape>> kTensors = {
    {"blk.0.attn_v.weight", {4, kColumns}},       {"blk.0.attn_norm.weight", {kColumns}},
    {"blk.0.ffn_gate_inp.weight", {4, kColumns}}, {"blk.0.ffn_up_exps.weight", {3, 5, kColumns}},
    {"blk.0.ffn_down.weight", {4, 96}},           {"token_embd.weight", {7, kColumns}},
};

/// A small model in f32; `first` replaces the first value of each tensor.
void write_model(const std::filesystem::path& file, std::optional<float> first = {}) {
  GgufWriter writer;
  writer.set("general.architecture", "llama");
  writer.set("llama.block_count", uint32_t{1});
  writer.set("llama.attention.head_count", std::vector<int32_t>{8});
  writer.set("split.count", uint16_t{1});
  writer.set("general.file_type", uint32_t{0});
  for (const auto& [name, shape] : kTensors) writer.add(name, shape, Type::f32);
  size_t next = 0;
  writer.write(file, [&](const std::string& name, const GgufWriter::Sink& sink) {
    std::vector<float> values = values_of(name, element_count(kTensors[next++].second));
    values[0] = first.value_or(values[0]);
    sink(std::as_bytes(std::span(values)));
  });
}

std::vector<std::byte> encoded(const std::string& name, const Shape& shape, Type type) {
  const std::vector<float> values = values_of(name, element_count(shape));
  std::vector<std::byte> bytes(quant::row_bytes(type, values.size()));
  quant::encode(type, values, bytes);
  return bytes;
}

}  // namespace

TEST_SUITE("base: quantize") {
  TEST_CASE("every tensor gets the type that llama-quantize gives it") {
    const json golden = json::parse(*read_text(WEFT_SOURCE_DIR "/tests/data/quant/recipes.json"));
    std::map<char, Type> letters;
    for (const auto& [name, letter] : golden["letters"].items())
      letters[letter.get<std::string>()[0]] = quant::type_from_name(name);
    size_t checked = 0;
    for (const json& entry : golden["models"]) {
      const quantize::Model model{.architecture = entry["architecture"],
                                  .layers = entry["layers"],
                                  .experts = entry["experts"],
                                  .heads = entry["heads"],
                                  .kv_heads = entry["kv_heads"]};
      std::vector<quantize::Tensor> tensors;
      std::map<std::string, size_t> place;
      for (const json& tensor : entry["tensors"]) {
        place[tensor[0]] = tensors.size();
        tensors.push_back({tensor[0], tensor[1].get<std::vector<int64_t>>(), Type::f32});
      }
      quantize::sort_tensors(tensors);
      for (const char* which : {"types", "important"})
        for (const auto& [recipe, expected] : entry[which].items()) {
          const std::vector<Type> types =
              quantize::choose_types(quantize::recipe_from_name(recipe), model, tensors, false, {},
                                     which == std::string("important"));
          for (size_t i = 0; i < tensors.size(); ++i) {
            const Type right = letters.at(expected.get<std::string>()[place.at(tensors[i].name)]);
            CAPTURE(fmt::format("{} x {} {} {}", model.architecture, model.layers, recipe, tensors[i].name));
            CHECK(quant::traits(types[i]).name == quant::traits(right).name);
            ++checked;
          }
        }
    }
    CHECK(checked > 10'000);
  }

  TEST_CASE("a file is converted tensor by tensor") {
    const test::ScopedFolder folder;
    const auto in = folder.path / "in.gguf", out = folder.path / "out.gguf";
    write_model(in);
    const test::Output run = run_weft({"quantize", in.string(), out.string(), "Q4_K_M"});
    CHECK(run.status == 0);
    CHECK(run.errors.empty());
    CHECK(run.text.starts_with("type"));

    const Gguf file = Gguf::open(out);
    CHECK(file.integer("general.file_type") == 15);
    CHECK(file.integer("general.quantization_version") == 2);
    CHECK(file.text("general.architecture") == "llama");
    CHECK_FALSE(file.contains("split.count"));
    const std::map<std::string, Type> types = {
        {"blk.0.attn_v.weight", Type::q6_k},      {"blk.0.attn_norm.weight", Type::f32},
        {"blk.0.ffn_gate_inp.weight", Type::f32}, {"blk.0.ffn_up_exps.weight", Type::q4_k},
        {"blk.0.ffn_down.weight", Type::q8_0},    {"token_embd.weight", Type::q6_k},
    };
    for (const auto& [name, shape] : kTensors) {
      CAPTURE(name);
      const Gguf::Tensor& tensor = file.tensors().at(name);
      CHECK(tensor.shape == shape);
      CHECK(tensor.type == types.at(name));
      const std::vector<std::byte> expected = encoded(name, shape, types.at(name));
      CHECK(std::vector<std::byte>(tensor.data.begin(), tensor.data.end()) == expected);
    }

    SUBCASE("twice only on request") {
      const auto again = folder.path / "again.gguf";
      const test::Output refused = run_weft({"quantize", out.string(), again.string(), "q8_0"});
      CHECK(refused.status == 2);
      CHECK(
          refused.errors ==
          "weft: [quantize] tensor 'token_embd.weight' is q6_k already: begin with an f32, f16 or bf16 file, "
          "or use --allow-requantize\n");
      CHECK_FALSE(std::filesystem::exists(again));
      CHECK(run_weft({"quantize", out.string(), again.string(), "q8_0", "--allow-requantize"}).status == 0);
      CHECK(Gguf::open(again).tensors().at("token_embd.weight").type == Type::q8_0);
    }
    SUBCASE("pure") {
      REQUIRE(run_weft({"quantize", in.string(), out.string(), "q4_k_m", "--pure"}).status == 0);
      const Gguf pure = Gguf::open(out);
      CHECK(pure.tensors().at("token_embd.weight").type == Type::q4_k);
      CHECK(pure.tensors().at("blk.0.attn_v.weight").type == Type::q4_k);
      CHECK(pure.tensors().at("blk.0.ffn_down.weight").type == Type::q5_0);
      CHECK(pure.tensors().at("blk.0.attn_norm.weight").type == Type::f32);
    }
  }

  TEST_CASE("importance matrices, in GGUF and as they were before") {
    const test::ScopedFolder folder;
    const std::string in = folder.path / "in.gguf", out = folder.path / "out.gguf",
                      matrix = folder.path / "matrix.gguf", older = folder.path / "matrix.dat";
    write_model(in);
    // The second of the three experts was never used: all of its columns count the same.
    const std::string name = "blk.0.ffn_up_exps.weight";
    const std::vector<float> counts = {4, 0, 8};
    std::vector<float> sums(3 * kColumns), means(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = static_cast<float>(1 + i * i % 97);
      means[i] = counts[i / kColumns] > 0 ? sums[i] / counts[i / kColumns] : 1;
    }
    GgufWriter writer;
    writer.set("general.type", "imatrix");
    writer.set("imatrix.datasets", std::vector<std::string>{"words.txt"});
    writer.set("imatrix.chunk_count", uint32_t{12});
    writer.add(name + ".in_sum2", {3, kColumns}, Type::f32);
    writer.add(name + ".counts", {3, 1}, Type::f32);
    writer.write(matrix, [&](const std::string& tensor, const GgufWriter::Sink& sink) {
      sink(std::as_bytes(std::span(tensor.ends_with("counts") ? counts : sums)));
    });
    std::string text;
    const auto put = [&](int32_t value) { text.append(reinterpret_cast<const char*>(&value), 4); };
    put(1), put(static_cast<int32_t>(name.size())), text += name;
    put(2), put(static_cast<int32_t>(means.size()));
    for (const float mean : means) {
      const float twice = 2 * mean;
      text.append(reinterpret_cast<const char*>(&twice), 4);
    }
    put(12), put(9), text += "words.txt";
    write_text(older, text);

    std::vector<std::byte> expected;
    const std::vector<float> values = values_of(name, 3 * 5 * kColumns);
    for (size_t row = 0; row < 15; ++row) {
      std::vector<std::byte> bytes(quant::row_bytes(Type::iq2_xs, kColumns));
      quant::encode(Type::iq2_xs, std::span(values).subspan(row * kColumns, kColumns), bytes,
                    std::span(means).subspan(row / 5 * kColumns, kColumns));
      expected.insert(expected.end(), bytes.begin(), bytes.end());
    }
    for (const std::string& file : {matrix, older}) {
      const test::Output run = run_weft({"quantize", in, out, "iq2_xs", "--imatrix", file});
      CAPTURE(run.errors);
      REQUIRE(run.status == 0);
      const Gguf made = Gguf::open(out);
      CHECK(made.text("quantize.imatrix.file") == file);
      CHECK(made.text("quantize.imatrix.dataset") == "words.txt");
      CHECK(made.integer("quantize.imatrix.entries_count") == 1);
      CHECK(made.integer("quantize.imatrix.chunks_count") == 12);
      const Gguf::Tensor& tensor = made.tensors().at(name);
      CHECK(tensor.type == Type::iq2_xs);
      CHECK(std::vector<std::byte>(tensor.data.begin(), tensor.data.end()) == expected);
    }

    const auto error = [](const std::string& bytes) {
      return error_of([&] { quantize::Importance::parse(std::as_bytes(std::span(bytes)), "x"); }).kind;
    };
    for (size_t cut = 0; cut + 21 < text.size(); cut += cut < 50 ? 1 : 97)
      CHECK(error(text.substr(0, cut)) == "io");
    for (const int32_t count : {0, -1, 2, 1 << 30}) {
      std::string bad = text;
      bad.replace(0, 4, reinterpret_cast<const char*>(&count), 4);
      CHECK(error(bad) == "io");
    }
    text.replace(text.size() - 30, 4, "\xff\xff\xff\x7f");  // not a number
    CHECK(error(text) == "io");
  }

  TEST_CASE("what goes wrong is one line, and leaves no file") {
    const test::ScopedFolder folder;
    const std::string in = folder.path / "in.gguf", out = folder.path / "out.gguf";
    write_model(in);
    const auto message = [&](const std::vector<std::string>& arguments, int status) {
      const test::Output run = run_weft(arguments);
      CAPTURE(run.errors);
      CHECK(run.status == status);
      CHECK(run.text.empty());
      CHECK(std::ranges::count(run.errors, '\n') == 1);
      CHECK_FALSE(std::filesystem::exists(out));
      return run.errors;
    };
    CHECK(message({"quantize", in, out, "q9_k"}, 2)
              .starts_with("weft: [quantize] no type is called 'q9_k': use one of f32 f16 bf16 q8_0 "));
    CHECK(message({"quantize", in, out, "iq2_xs"}, 2) ==
          "weft: [quantize] tensor 'blk.0.ffn_up_exps.weight' becomes iq2_xs, which needs an importance "
          "matrix: --imatrix FILE names one\n");
    CHECK(message({"quantize", in, out, "iq2_xs", "--imatrix", in}, 1) ==
          fmt::format("weft: [imatrix] {}: this is no importance matrix\n", in));
    CHECK(message({"quantize", in, in, "q8_0"}, 2) ==
          fmt::format("weft: [quantize] {} is the input; write to another file\n", in));
    message({"quantize", in + ".none", out, "q8_0"}, 1);
    write_text(folder.path / "text", "no model");
    message({"quantize", (folder.path / "text").string(), out, "q8_0"}, 1);
    write_model(in, std::numeric_limits<float>::infinity());
    CHECK(message({"quantize", in, out, "q8_0"}, 1) ==
          fmt::format(
              "weft: [quantize] {}: tensor 'token_embd.weight': [quant] element 0 of a row is inf: only "
              "finite values can be encoded\n",
              in));
    write_model(in, 1e9f);
    CHECK(message({"quantize", in, out, "q8_0"}, 1).find("too large") != std::string::npos);
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 2);
  }
}
