// Language models on the CPU beside llama.cpp: the same file, the same number of threads, in the same run.
// The two take turns and the best of the rounds counts: other work on the machine slows both alike.
//
//   bench-llama-cpp [MODEL or SHAPE:TYPE]...
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/wide.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/threads.h"
#include "io/gguf_writer.h"
#include "llm/model.h"
#include "llm/random_model.h"
#include "pull/pull.h"
#include "term.h"

namespace {

using namespace weft;
namespace fs = std::filesystem;

double seconds(const std::function<void()>& step) {
  const auto begin = std::chrono::steady_clock::now();
  step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// ---- The peer.

/// llama.cpp's own libraries, as npm's node-llama-cpp ships them, called through their C interface: from Node
/// a new token takes 1.4 times as long. They choose their form for the processor themselves.
class LlamaCpp {
 public:
  /// Throws ErrorKind::io with what the loader says.
  LlamaCpp(const fs::path& folder, const fs::path& file, int threads) {
    const auto open = [&](const char* name) {
      void* library = dlopen((folder / name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!library) fail(ErrorKind::io, "{}", dlerror());
      return library;
    };
    ggml_ = open("libggml.v0.5.0.so");
    llama_ = open("libllama.v0.5.0.so");
    call<void(void (*)(int, const char*, void*), void*)>(llama_, "llama_log_set")(
        [](int, const char*, void*) {}, nullptr);
    call<void(const char*)>(ggml_, "ggml_backend_load_all_from_path")(folder.c_str());
    call<void()>(llama_, "llama_backend_init")();
    model_ = call<void*(const char*, Params)>(llama_, "llama_model_load_from_file")(
        file.c_str(), call<Params()>(llama_, "llama_model_default_params")());
    if (!model_) fail(ErrorKind::io, "llama.cpp cannot load {}", file.string());
    // Of 512 tokens, which is enough; keys are f16, flash attention is on where it helps.
    context_ = call<void*(void*, Params)>(llama_, "llama_init_from_model")(
        model_, call<Params()>(llama_, "llama_context_default_params")());
    call<void(void*, int, int)>(llama_, "llama_set_n_threads")(context_, threads, threads);
  }
  ~LlamaCpp() {
    call<void(void*)>(llama_, "llama_free")(context_);
    call<void(void*)>(llama_, "llama_model_free")(model_);
  }
  LlamaCpp(const LlamaCpp&) = delete;
  LlamaCpp& operator=(const LlamaCpp&) = delete;

  void clear() const {
    void* memory = call<void*(void*)>(llama_, "llama_get_memory")(context_);
    call<void(void*, bool)>(llama_, "llama_memory_clear")(memory, true);
  }
  void run(std::span<TokenId> tokens) const {
    const Params batch = call<Params(TokenId*, int)>(llama_, "llama_batch_get_one")(
        tokens.data(), static_cast<int>(tokens.size()));
    if (call<int(void*, Params)>(llama_, "llama_decode")(context_, batch) != 0)
      fail(ErrorKind::invalid, "llama.cpp cannot compute {} tokens", tokens.size());
  }

 private:
  /// Stands for any of its structs, which are only handed from one function to the next: those above 16 bytes
  /// are passed in memory, so this one may be larger than they are.
  struct Params {
    std::byte bytes[1024];
  };

  template <typename Function>
  static Function* call(void* library, const char* name) {
    void* found = dlsym(library, name);
    if (!found) fail(ErrorKind::io, "llama.cpp has no {}", name);
    return reinterpret_cast<Function*>(found);
  }

  void *ggml_, *llama_, *model_, *context_;
};

// ---- What is measured.

struct Case {
  explicit Case(std::string name)
      : model(std::move(name)), is_shape(model.find(':') != std::string::npos && !fs::exists(model)) {}

  std::string model;
  bool is_shape;  // of random weights; these models are large
  size_t prompt = is_shape ? 128 : 512, tokens = is_shape ? 32 : 128;
};

/// A file of random weights, kept for the next time. llama.cpp takes a model without a vocabulary.
fs::path random_file(const std::string& shape, const fs::path& folder) {
  std::string name = shape + ".gguf";
  std::ranges::replace(name, ':', '-');
  const fs::path file = folder / name;
  if (fs::exists(file)) return file;
  const llm::ModelFile model = llm::random_model(shape);
  GgufWriter writer;
  writer.set("general.architecture", model.architecture);
  writer.set("tokenizer.ggml.model", "no_vocab");
  writer.set("llama.vocab_size", static_cast<uint32_t>(model.tensor("token_embd.weight").shape[0]));
  for (const auto& [key, value] : model.values) {
    const double number = std::get<double>(value);
    if (number < 1)
      writer.set("llama." + key, static_cast<float>(number));
    else
      writer.set("llama." + key, static_cast<uint32_t>(number));
  }
  for (const auto& [tensor_name, tensor] : model.tensors) writer.add(tensor_name, tensor.shape, tensor.type);
  fs::create_directories(folder);
  writer.write(file, [&](const std::string& tensor_name, const GgufWriter::Sink& sink) {
    std::vector<std::byte> scratch;
    sink(model.tensor(tensor_name).read(scratch));
  });
  return file;
}

/// Bytes of weights that a new token reads: all, but of a table of its own only a row.
uint64_t bytes_read(const llm::ModelFile& file) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : file.tensors) bytes += tensor.bytes();
  return file.has("output.weight") ? bytes - file.tensor("token_embd.weight").bytes() : bytes;
}

void sum_words(const uint32_t* words, size_t count, uint32_t* sum) {
  uint32_t total = 0;
  for (size_t i = 0; i < count; ++i) total += words[i];
  *sum = total;
}

/// As much memory as a token reads, and the most bytes per second that all threads together read of it.
class Memory {
 public:
  explicit Memory(uint64_t bytes)
      : storage_(bytes, "bench", std::make_shared<cpu::Memory>()),
        count_(static_cast<size_t>(bytes / 4)),
        sums_((count_ + kPiece - 1) / kPiece) {
    std::fill_n(words(), count_, 1u);
  }

  double bandwidth() const { return bandwidth_; }
  void measure(ThreadPool& pool) {
    const double time = seconds([&] {
      pool.for_each(count_, kPiece, [&](size_t begin, size_t end) {
        cpu::wide<sum_words>(words() + begin, end - begin, &sums_[begin / kPiece]);
      });
    });
    if (std::accumulate(sums_.begin(), sums_.end(), size_t{0}) != count_)
      fail(ErrorKind::invalid, "memory does not hold what was written");
    bandwidth_ = std::max(bandwidth_, static_cast<double>(4 * count_) / time);
  }

 private:
  static constexpr size_t kPiece = 1 << 19;  // words
  uint32_t* words() { return reinterpret_cast<uint32_t*>(storage_.data()); }

  CpuStorage storage_;
  size_t count_;
  std::vector<uint32_t> sums_;
  double bandwidth_ = 0;
};

/// Tokens per second.
struct Rates {
  double prompt = 0, tokens = 0;

  template <typename Clear, typename Run>
  void measure(const Case& c, int64_t vocabulary, const Clear& clear, const Run& run) {
    std::vector<TokenId> ids(std::max(c.prompt, c.tokens));
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<TokenId>((i * 7919 + 1) % static_cast<size_t>(vocabulary));
    clear();
    const double at_once = seconds([&] { run(std::span(ids).first(c.prompt)); });
    clear();
    const double one_by_one = seconds([&] {
      for (size_t i = 0; i < c.tokens; ++i) run(std::span(ids).subspan(i, 1));
    });
    prompt = std::max(prompt, static_cast<double>(c.prompt) / at_once);
    tokens = std::max(tokens, static_cast<double>(c.tokens) / one_by_one);
  }
};

void measure(const Case& c, const fs::path& folder, term::Table& table) {
  const fs::path file =
      c.is_shape ? random_file(c.model, folder / "bench-models") : pull::resolve_model(c.model);
  ThreadPool pool;
  llm::Model model(file, {.context = 512});
  Memory memory(bytes_read(model.file()));
  std::optional<LlamaCpp> peer;
  try {
    peer.emplace(folder / "llama.cpp", file, pool.threads());
  } catch (const Error& e) {
    fmt::print("{}: no llama.cpp beside it: {}\n", c.model, e.what());
  }
  Rates here, there;
  llm::Sequence sequence = model.new_sequence();
  constexpr double kSeconds = 15;
  double spent = 0;
  for (int round = 0; round < 2 || (round < 20 && spent < kSeconds); ++round)
    spent += seconds([&] {
      here.measure(
          c, model.config().vocabulary, [&] { llm::truncate(sequence, 0, model.pages()); },
          [&](std::span<TokenId> ids) { model.run(sequence, ids); });
      if (peer)
        there.measure(
            c, model.config().vocabulary, [&] { peer->clear(); },
            [&](std::span<TokenId> ids) { peer->run(ids); });
      for (int i = 0; i < 5; ++i) memory.measure(pool);
    });

  const auto add = [&](std::string_view test, size_t count, double rate, double peer_rate,
                       const std::string& share) {
    table.add({c.model, fmt::format("{}{}", test, count), fmt::format("{:.1f}", rate),
               peer ? fmt::format("{:.1f}", peer_rate) : "-",
               peer ? fmt::format("{:.2f}", rate / peer_rate) : "-", share});
  };
  const double read = static_cast<double>(bytes_read(model.file())) * here.tokens;
  add("pp", c.prompt, here.prompt, there.prompt, "");
  add("tg", c.tokens, here.tokens, there.tokens,
      fmt::format("{:.0f} % of {:.1f} GB/s", 100 * read / memory.bandwidth(), memory.bandwidth() * 1e-9));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> models(argv + 1, argv + argc);
  if (models.empty()) models = {"smollm2", "llama-1b:q4_k", "llama-1b:q8_0"};
  term::Table table({"model", "test", "weft t/s", "llama.cpp t/s", "ratio", "of what memory gives"});
  for (const std::string& model : models) {
    try {
      measure(Case(model), executable_dir(), table);
    } catch (const std::exception& e) {
      fmt::print("{}: {}\n", model, e.what());
    }
  }
  fmt::print("{}", table.text(term::colours(stdout)));
}
