#include "quantize/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/draft_file.h"
#include "base/error.h"
#include "base/threads.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "io/safetensors.h"
#include "llm/model_file.h"
#include "pull/pull.h"
#include "quant/importance.h"
#include "quantize/hf_metadata.h"
#include "quantize/importance.h"
#include "quantize/recipe.h"
#include "term.h"

namespace weft::quantize {
namespace {

using quant::Type;

constexpr uint32_t kQuantizationVersion = 2;   // of ggml's block formats
constexpr uint64_t kSlabElements = 4u << 20;   // encoded before they are written
constexpr uint64_t kGrainElements = 1u << 14;  // for one thread, at least

/// The first, where layers differ.
int64_t first_of(const llm::ModelFile& file, std::string_view key) {
  const std::vector<double> numbers = file.numbers(key);
  return numbers.empty() ? 0 : static_cast<int64_t>(numbers[0]);
}

Model model_of(const llm::ModelFile& file) {
  return {.architecture = file.architecture,
          .layers = first_of(file, "block_count"),
          .experts = first_of(file, "expert_count"),
          .heads = first_of(file, "attention.head_count"),
          .kv_heads = first_of(file, "attention.head_count_kv")};
}

std::vector<Tensor> tensors_of(const llm::ModelFile& file) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : file.tensors) tensors.push_back({name, tensor.shape, tensor.type});
  sort_tensors(tensors);
  return tensors;
}

/// All of the input's metadata, with what changes.
void set_metadata(GgufWriter& writer, const llm::ModelFile& model, const std::filesystem::path& path,
                  const Recipe& recipe) {
  if (std::filesystem::is_directory(path)) {
    set_hf_metadata(writer, model, path);
  } else {
    const Gguf file = Gguf::open(path);
    for (const auto& [name, tensor] : file.tensors())
      if (!tensor.type)
        fail(ErrorKind::unsupported, "[quantize] tensor '{}' has elements that are no weights",
             one_line(name));
    writer.set_all(file);
  }
  writer.set("general.quantization_version", kQuantizationVersion);
  writer.set("general.file_type", recipe.file_type);
  for (const char* key : {"split.no", "split.count", "split.tensors.count"}) writer.remove(key);
}

/// Codes of `type` are codes of codes, and lose twice.
void check_requantize(std::span<const Tensor> tensors, std::span<const Type> types) {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].type != types[i] && quant::traits(tensors[i].type).block_elements > 1)
      fail(ErrorKind::invalid,
           "[quantize] tensor '{}' is {} already: begin with an f32, f16 or bf16 file, or use "
           "--allow-requantize",
           one_line(tensors[i].name), quant::traits(tensors[i].type).name);
}

void set_metadata(GgufWriter& writer, const Importance& importance, const std::string& file) {
  if (importance.empty()) return;
  writer.set("quantize.imatrix.file", file);
  if (!importance.dataset.empty()) writer.set("quantize.imatrix.dataset", importance.dataset);
  writer.set("quantize.imatrix.entries_count", static_cast<uint32_t>(importance.size()));
  if (importance.chunks > 0) writer.set("quantize.imatrix.chunks_count", importance.chunks);
}

/// What is known about the columns of a tensor that becomes `type`.
std::span<const float> importance_of(const Importance& importance, const Tensor& tensor, Type type) {
  const std::span<const float> known = importance.find(tensor.name);
  if (known.empty() && needs_importance(tensor, type))
    fail(ErrorKind::invalid,
         "[quantize] tensor '{}' becomes {}, which needs an importance matrix: --imatrix FILE {}",
         one_line(tensor.name), quant::traits(type).name,
         importance.empty() ? "names one" : "has nothing about it");
  int64_t columns = tensor.shape.empty() ? 0 : tensor.shape.back();
  for (size_t i = 0; i + 2 < tensor.shape.size(); ++i) columns *= tensor.shape[i];
  if (!known.empty() && std::ssize(known) != columns)
    fail(ErrorKind::invalid, "[quantize] tensor '{}' has {} columns, and {} in the importance matrix",
         one_line(tensor.name), columns, known.size());
  return known;
}

/// Decodes and encodes the rows of one tensor in slabs of limited size.
class Converter {
 public:
  /// `importance`: as importance_of() gives it. Calls `progress` with the bytes of the source that are done.
  void convert(const Tensor& tensor, std::span<const std::byte> data, Type to,
               std::span<const float> importance, const GgufWriter::Sink& sink,
               const std::function<void(uint64_t)>& progress) {
    const auto columns = static_cast<uint64_t>(tensor.shape.empty() ? 1 : tensor.shape.back());
    const uint64_t from_bytes = quant::row_bytes(tensor.type, columns),
                   to_bytes = quant::row_bytes(to, columns);
    const uint64_t rows_of_matrix =
        tensor.shape.size() < 2 ? 1 : static_cast<uint64_t>(tensor.shape[tensor.shape.size() - 2]);
    uint64_t done = 0;
    const uint64_t slab = std::max<uint64_t>(1, kSlabElements / std::max<uint64_t>(1, columns));
    for (uint64_t left = from_bytes == 0 ? 0 : data.size() / from_bytes; left > 0;) {
      const uint64_t rows = std::min(left, slab);
      encoded_.resize(rows * to_bytes);
      pool_.for_each(rows, std::max<uint64_t>(1, kGrainElements / columns), [&](size_t begin, size_t end) {
        std::vector<float> row(columns);
        for (size_t r = begin; r < end; ++r) {
          quant::dequantize(tensor.type, data.data() + r * from_bytes, row.data(), columns);
          const uint64_t matrix = (done + r) / rows_of_matrix;
          quant::encode(to, row, std::span(encoded_).subspan(r * to_bytes, to_bytes),
                        importance.empty() ? importance : importance.subspan(matrix * columns, columns));
        }
      });
      sink(encoded_);
      data = data.subspan(rows * from_bytes);
      left -= rows;
      done += rows;
      progress(rows * from_bytes);
    }
  }

 private:
  ThreadPool pool_;
  std::vector<std::byte> encoded_;
};

struct Size {
  uint64_t tensors = 0, elements = 0, bytes = 0;

  void add(const Tensor& tensor, Type type) {
    const auto elements_here = static_cast<uint64_t>(element_count(tensor.shape));
    ++tensors;
    elements += elements_here;
    bytes += quant::row_bytes(type, elements_here);
  }
  std::vector<std::string> row(std::string_view title) const {
    const double bits = elements == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
    return {std::string(title), fmt::format("{}", tensors), term::bytes(bytes), fmt::format("{:.2f}", bits)};
  }
};

void print_table(std::span<const Tensor> tensors, std::span<const Type> types) {
  std::map<Type, Size> sizes;
  Size before, after;
  for (size_t i = 0; i < tensors.size(); ++i) {
    sizes[types[i]].add(tensors[i], types[i]);
    before.add(tensors[i], tensors[i].type);
    after.add(tensors[i], types[i]);
  }
  term::Table table({"type", "tensors", "size", "bits per weight"});
  for (const auto& [type, size] : sizes) table.add(size.row(quant::traits(type).name));
  table.add(after.row("all"));
  table.add(before.row("before"));
  fmt::print("{}", table.text(term::colours(stdout)));
}

}  // namespace

int run(const Options& options) {
  const Recipe& recipe = recipe_from_name(options.type);
  std::error_code ignored;
  if (std::filesystem::equivalent(options.in, options.out, ignored))
    fail(ErrorKind::invalid, "[quantize] {} is the input; write to another file", options.out);
  writable_target(options.out);  // before a model is downloaded or read
  const std::filesystem::path path = pull::resolve_model(options.in);
  const llm::ModelFile model = llm::ModelFile::open(path);
  const std::vector<Tensor> tensors = tensors_of(model);
  // Folders of Hugging Face's have small tensors in halves; GGUF files have them in f32.
  const std::optional<Type> kept =
      std::filesystem::is_directory(path) ? std::optional(Type::f32) : std::nullopt;
  const Importance importance =
      options.importance.empty() ? Importance() : Importance::open(options.importance);
  const std::vector<Type> types =
      choose_types(recipe, model_of(model), tensors, options.pure, kept, !importance.empty());
  if (!options.requantize) check_requantize(tensors, types);
  for (size_t i = 0; i < tensors.size(); ++i) importance_of(importance, tensors[i], types[i]);

  GgufWriter writer;
  set_metadata(writer, model, path, recipe);
  set_metadata(writer, importance, options.importance);
  uint64_t total = 0, done = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    writer.add(tensors[i].name, tensors[i].shape, types[i]);
    total += model.tensor(tensors[i].name).bytes();
  }

  Converter converter;
  {
    term::Progress progress(total);
    size_t next = 0;
    std::vector<std::byte> scratch;
    writer.write(options.out, [&](const std::string& name, const GgufWriter::Sink& sink) {
      const Tensor& tensor = tensors[next];
      const Type type = types[next++];
      const std::span<const std::byte> data = model.tensor(name).read(scratch);
      const auto advance = [&](uint64_t bytes) { progress.show(done += bytes, name); };
      if (type == tensor.type) {
        sink(data);
        return advance(data.size());
      }
      try {
        converter.convert(tensor, data, type, importance_of(importance, tensor, type), sink, advance);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::invalid) throw;
        fail(ErrorKind::io, "[quantize] {}: tensor '{}': {}", options.in, one_line(name), error.what());
      }
    });
  }
  print_table(tensors, types);
  return 0;
}

}  // namespace weft::quantize
