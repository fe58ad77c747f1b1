// Folders of Hugging Face's as models: config.json, safetensors in one file or several, MLX's groups,
// gpt-oss's MXFP4 blocks, PEFT's adapters.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "array/half.h"
#include "base/error.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "llm/hf_config.h"
#include "llm/hf_names.h"
#include "llm/model_file.h"

namespace weft::llm {
namespace {

using nlohmann::json;
using Bytes = std::vector<std::byte>;

json read_object(const std::filesystem::path& file) {
  json value = read_json(file, "[model]");
  if (!value.is_object()) fail(ErrorKind::io, "[model] {}: this is no JSON object", file.string());
  return value;
}

/// What an object has under a key; the fallback where that is nothing, or nothing of the kind.
double number_or(const json& object, const char* key, double fallback) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : fallback;
}
bool is_set(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && *found == true;
}

/// The tensors of all files of a folder.
class Shards {
 public:
  Shards(const std::filesystem::path& folder, const std::string& stem) : folder_(folder) {
    const std::filesystem::path whole = folder / (stem + ".safetensors"),
                                index = folder / (stem + ".safetensors.index.json");
    if (std::filesystem::exists(index)) {
      const json map = read_object(index);
      if (!map.contains("weight_map") || !map["weight_map"].is_object())
        fail(ErrorKind::io, "[model] {}: 'weight_map' is missing", index.string());
      std::set<std::string> files;
      for (const auto& [tensor, file] : map["weight_map"].items()) {
        if (!file.is_string() || !file.get<std::string>().ends_with(".safetensors") ||
            file.get<std::string>().find('/') != std::string::npos)
          fail(ErrorKind::io, "[model] {}: '{}' is in no file", index.string(), one_line(tensor));
        files.insert(file.get<std::string>());
      }
      for (const std::string& file : files) add(folder / file);
    } else if (std::filesystem::exists(whole)) {
      add(whole);
    } else {
      fail(ErrorKind::io, "[model] {}: there is no {}.safetensors", folder.string(), stem);
    }
  }

  struct Entry {
    std::shared_ptr<const Safetensors> file;
    std::string path, name;

    Safetensors::Info info() const { return file->info(name); }
    std::string where() const { return fmt::format("{}: tensor '{}'", path, one_line(name)); }
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  const Entry* find(std::string_view name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
  }

 private:
  void add(const std::filesystem::path& path) {
    const auto file = std::make_shared<const Safetensors>(Safetensors::open(path));
    for (const std::string& name : file->names())
      if (const auto [place, added] = entries_.try_emplace(name, Entry{file, path.string(), name}); !added)
        fail(ErrorKind::io, "[model] tensor '{}' is in two files: {} and {}", one_line(name),
             place->second.path, path.string());
  }

  std::filesystem::path folder_;
  std::map<std::string, Entry, std::less<>> entries_;
};

quant::Type float_type(const Shards::Entry& entry, DType dtype) {
  if (dtype == DType::f32) return quant::Type::f32;
  if (dtype == DType::f16) return quant::Type::f16;
  if (dtype == DType::bf16) return quant::Type::bf16;
  fail(ErrorKind::unsupported, "[model] {} is {}; weights are floats", entry.where(), name_of(dtype));
}

StoredTensor plain(const Shards::Entry& entry) {
  const Safetensors::Info info = entry.info();
  StoredTensor tensor{.shape = info.shape, .type = float_type(entry, info.dtype), .read = {}};
  // Values in the file lie at any byte.
  tensor.read = [file = entry.file, data = info.data](Bytes& scratch) -> std::span<const std::byte> {
    scratch.assign(data.begin(), data.end());
    return scratch;
  };
  return tensor;
}

/// Rows in another order: row r is row `from(r)` of the tensor. A vector has rows of one element.
StoredTensor with_rows(StoredTensor tensor, std::function<int64_t(int64_t)> from) {
  const int64_t rows = tensor.shape[0];
  tensor.read = [inner = tensor.read, rows,
                 from = std::move(from)](Bytes& scratch) -> std::span<const std::byte> {
    Bytes all;
    const std::span<const std::byte> source = inner(all);
    const size_t size = source.size() / static_cast<size_t>(rows);
    scratch.resize(source.size());
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(source.data() + static_cast<size_t>(from(row)) * size, size,
                  scratch.data() + static_cast<size_t>(row) * size);
    return scratch;
  };
  return tensor;
}

/// The last two dims swapped; then only every `step`-th row from `first` on.
StoredTensor transposed(StoredTensor tensor, int64_t first = 0, int64_t step = 1) {
  const int64_t rank = std::ssize(tensor.shape);
  if (rank < 2) return tensor;
  const int64_t k = tensor.shape[static_cast<size_t>(rank - 2)], columns = tensor.shape.back(),
                n = columns / step;
  int64_t count = 1;
  for (int64_t i = 0; i < rank - 2; ++i) count *= tensor.shape[static_cast<size_t>(i)];
  tensor.shape[static_cast<size_t>(rank - 2)] = n;
  tensor.shape.back() = k;
  const auto size = static_cast<int64_t>(quant::traits(tensor.type).block_bytes);
  tensor.read = [=, inner = tensor.read](Bytes& scratch) -> std::span<const std::byte> {
    Bytes all;
    const std::span<const std::byte> source = inner(all);
    scratch.resize(static_cast<size_t>(count * n * k * size));
    std::byte* to = scratch.data();
    for (int64_t i = 0; i < count; ++i)
      for (int64_t row = 0; row < n; ++row)
        for (int64_t j = 0; j < k; ++j, to += size)
          std::copy_n(source.data() + ((i * k + j) * columns + first + row * step) * size, size, to);
    return scratch;
  };
  return tensor;
}

/// One behind the other along a new first dim.
StoredTensor stacked(std::vector<StoredTensor> parts) {
  StoredTensor whole{.shape = parts[0].shape, .type = parts[0].type, .read = {}};
  whole.shape.insert(whole.shape.begin(), std::ssize(parts));
  whole.read = [parts = std::move(parts)](Bytes& scratch) -> std::span<const std::byte> {
    scratch.clear();
    for (const StoredTensor& part : parts) {
      Bytes own;
      const std::span<const std::byte> bytes = part.read(own);
      scratch.insert(scratch.end(), bytes.begin(), bytes.end());
    }
    return scratch;
  };
  return whole;
}

/// MLX's quantisation of a tensor.
struct MlxGroups {
  int64_t size = 64, bits = 4;
};
constexpr int64_t kMostOfRow = int64_t{1} << 24;  // groups

/// The config's, or the tensor's own where it has one.
MlxGroups mlx_groups(const json& config, const std::string& stem) {
  const auto found = config.find("quantization");
  if (found == config.end() || !found->is_object()) return {};
  const json& own = found->contains(stem) && (*found)[stem].is_object() ? (*found)[stem] : *found;
  const auto integer = [&](const char* key, double fallback) {
    return static_cast<int64_t>(std::clamp(number_or(own, key, fallback), 0.0, 65'536.0));
  };
  return {integer("group_size", 64), integer("bits", 4)};
}

/// Each group has a scale and a bias, its codes are packed into words from the lowest bits on.
StoredTensor mlx(const Shards::Entry& entry, const Shards::Entry& scales, const Shards::Entry& biases,
                 const MlxGroups& groups) {
  const Safetensors::Info codes = entry.info(), scale = scales.info(), bias = biases.info();
  const auto [size, bits] = groups;
  Shape shape = scale.shape, words = scale.shape;
  // A row is whole words. Sizes that are larger than any model's would not fit into 64 bits as elements.
  const bool whole = !shape.empty() && shape.back() <= kMostOfRow && size >= 1 && bits >= 1 && bits <= 8 &&
                     shape.back() * size * bits % 32 == 0;
  if (whole) {
    shape.back() *= size;
    words.back() = shape.back() * bits / 32;
  }
  if (!whole || codes.dtype != DType::u32 || codes.shape != words || bias.shape != scale.shape)
    fail(ErrorKind::io, "[model] {}: codes {}, scales {} and biases {} are no groups of {} in {} bits",
         entry.where(), to_string(codes.shape), to_string(scale.shape), to_string(bias.shape), size, bits);
  return StoredTensor::computed(
      shape, [=, scale_values = plain(scales), bias_values = plain(biases), file = entry.file] {
        const std::vector<float> s = scale_values.values(), b = bias_values.values();
        std::vector<float> out(static_cast<size_t>(element_count(shape)));
        const auto row = static_cast<size_t>(shape.back()), row_bytes = static_cast<size_t>(words.back()) * 4,
                   width = static_cast<size_t>(groups.bits);
        for (size_t i = 0; i < out.size(); ++i) {
          const size_t bit = i % row * width, at = i / row * row_bytes + bit / 8;
          auto word = static_cast<uint32_t>(codes.data[at]);
          if (bit % 8 + width > 8) word |= static_cast<uint32_t>(codes.data[at + 1]) << 8;
          const uint32_t code = word >> bit % 8 & ((1u << width) - 1);
          const size_t group = i / static_cast<size_t>(groups.size);
          out[i] = static_cast<float>(code) * s[group] + b[group];
        }
        return out;
      });
}

/// gpt-oss's blocks (experts, rows, blocks, 16) of codes, low nibble first, and (experts, rows, blocks) of
/// exponents: every `step`-th row from `first` on, as ggml's mxfp4.
StoredTensor mxfp4(const Shards::Entry& blocks, const Shards::Entry& scales, int64_t first, int64_t step) {
  const Safetensors::Info codes = blocks.info(), scale = scales.info();
  const Shape& s = codes.shape;
  if (codes.dtype != DType::u8 || scale.dtype != DType::u8 || s.size() != 4 || s[3] != 16 ||
      scale.shape != Shape{s[0], s[1], s[2]} || s[1] % step != 0)
    fail(ErrorKind::io, "[model] {}: blocks {} and scales {} do not go together", blocks.where(),
         to_string(s), to_string(scale.shape));
  StoredTensor tensor{.shape = {s[0], s[1] / step, s[2] * 32}, .type = quant::Type::mxfp4, .read = {}};
  tensor.read = [=, file = blocks.file, other = scales.file](Bytes& scratch) -> std::span<const std::byte> {
    scratch.clear();
    for (int64_t row = first; row < s[0] * s[1]; row += step)
      for (int64_t block = 0; block < s[2]; ++block) {
        const auto at = static_cast<size_t>(row * s[2] + block);
        scratch.push_back(scale.data[at]);
        // Byte j holds elements 2j and 2j + 1 there, j and j + 16 here.
        const auto code = [&](size_t element) {
          const auto byte = static_cast<uint32_t>(codes.data[at * 16 + element / 2]);
          return element % 2 == 0 ? byte & 15 : byte >> 4;
        };
        for (size_t j = 0; j < 16; ++j)
          scratch.push_back(static_cast<std::byte>(code(j) | code(j + 16) << 4));
      }
    return scratch;
  };
  return tensor;
}

/// The sizes that changes of rows need.
struct HeadSizes {
  int64_t heads = 1, kv_heads = 1, dim = 1;
};

HeadSizes head_sizes(const ModelFile& model) {
  const int64_t heads = model.required("attention.head_count");
  const std::vector<double> list = model.numbers("attention.head_count_kv");
  const double kv_heads = list.empty() ? static_cast<double>(heads) : std::ranges::max(list);
  if (!(kv_heads >= 1 && kv_heads <= static_cast<double>(heads) && std::floor(kv_heads) == kv_heads &&
        heads % static_cast<int64_t>(kv_heads) == 0))
    fail(ErrorKind::io, "[model] {}: {} query heads do not share {} key heads", model.name, heads, kv_heads);
  const int64_t dim = model.required("attention.key_length");
  constexpr int64_t kMost = int64_t{1} << 24;
  if (heads > kMost || dim > kMost)
    fail(ErrorKind::io, "[model] {}: {} heads of {} elements", model.name, heads, dim);
  return {heads, static_cast<int64_t>(kv_heads), dim};
}

StoredTensor changed(const std::string& where, StoredTensor tensor, Change change, const HeadSizes& sizes) {
  const auto [heads, kv_heads, dim] = sizes;
  const auto check_rows = [&](int64_t rows) {
    if (tensor.shape.empty() || tensor.shape[0] != rows)
      fail(ErrorKind::io, "[model] {} is {}, expected {} rows", where, to_string(tensor.shape), rows);
  };
  switch (change) {
    case Change::none:
      return tensor;
    case Change::plus_one:
      return StoredTensor::computed(tensor.shape, [tensor] {
        std::vector<float> values = tensor.values();
        for (float& x : values) x += 1;
        return values;
      });
    case Change::transposed:
      return transposed(std::move(tensor));
    case Change::turned_q:
    case Change::turned_k:
      check_rows((change == Change::turned_q ? heads : kv_heads) * dim);
      return with_rows(std::move(tensor),
                       [d = dim](int64_t row) { return row / d * d + row % 2 * (d / 2) + row % d / 2; });
    case Change::qkv_by_head:
      check_rows(3 * heads * dim);
      return with_rows(std::move(tensor), [h = heads, d = dim](int64_t row) {
        const int64_t part = row / (h * d), head = row / d % h;
        return (head * 3 + part) * d + row % d;
      });
    case Change::qkv_by_group: {
      check_rows((heads + 2 * kv_heads) * dim);
      return with_rows(std::move(tensor), [h = heads, g = kv_heads, d = dim](int64_t row) {
        const int64_t q = h / g, head = row / d;  // queries of a group
        const int64_t group = head < h ? head / q : (head - h) % g;
        const int64_t place = head < h ? head % q : head < h + g ? q : q + 1;
        return (group * (q + 2) + place) * d + row % d;
      });
    }
    case Change::squeezed:
      std::erase(tensor.shape, 1);
      return tensor;
    case Change::minus_exp:
      return StoredTensor::computed(tensor.shape, [tensor] {
        std::vector<float> values = tensor.values();
        for (float& x : values) x = -std::exp(x);
        return values;
      });
  }
  return tensor;
}

/// "model.norm.weight" -> "model.norm", ".weight". Some tensors have no ending.
std::pair<std::string, std::string> stem_and_end(const std::string& name) {
  for (const auto& [end, now] : {std::pair<std::string, std::string>{".weight", ".weight"},
                                 {".bias", ".bias"},
                                 {".gamma", ".weight"},  // BERT's oldest files
                                 {".beta", ".bias"}})
    if (name.ends_with(end)) return {name.substr(0, name.size() - end.size()), now};
  return {name, ""};
}

/// Whether a weight or bias belongs to one of the layers that are run.
bool is_in_layer(std::string_view stem, int64_t layers) {
  for (const std::string_view prefix :
       {"model.layers.", "gpt_neox.layers.", "transformer.h.", "encoder.layer.", "layers.", "h."}) {
    if (!stem.starts_with(prefix)) continue;
    int64_t layer = -1;
    std::from_chars(stem.data() + prefix.size(), stem.data() + stem.size(), layer);
    // Old files have masks, as if they were biases of attention.
    return layer >= 0 && layer < layers && !stem.ends_with(".attn") && !stem.ends_with(".attention");
  }
  return false;
}

/// gpt-oss has all experts in one tensor, gates and the rest interleaved.
void add_gptoss_experts(ModelFile& model, const Shards& shards) {
  for (int64_t layer = 0; layer < model.required("block_count"); ++layer) {
    const std::string from = fmt::format("model.layers.{}.mlp.experts.", layer),
                      to = fmt::format("blk.{}.ffn_", layer);
    const auto part = [&](const std::string& name, const std::string& target, int64_t first, int64_t step) {
      if (const Shards::Entry* blocks = shards.find(from + name + "_blocks")) {
        const Shards::Entry* scales = shards.find(from + name + "_scales");
        if (!scales) fail(ErrorKind::io, "[model] {}: '{}{}_scales' is missing", model.name, from, name);
        model.tensors[to + target + ".weight"] = mxfp4(*blocks, *scales, first, step);
      } else if (const Shards::Entry* whole = shards.find(from + name)) {
        model.tensors[to + target + ".weight"] = transposed(plain(*whole), first, step);
      }
      if (const Shards::Entry* bias = shards.find(from + name + "_bias")) {
        StoredTensor values = plain(*bias);  // (experts, rows): as a column, so that rows can be picked
        if (values.shape.size() != 2)
          fail(ErrorKind::io, "[model] {} is {}, expected 2 dims", bias->where(), to_string(values.shape));
        const Shape shape = {values.shape[0], values.shape[1] / step};
        values.shape.insert(values.shape.begin() + 1, 1);
        StoredTensor picked = transposed(std::move(values), first, step);
        picked.shape = shape;
        model.tensors[to + target + ".bias"] = std::move(picked);
      }
    };
    part("gate_up_proj", "gate_exps", 0, 2);
    part("gate_up_proj", "up_exps", 1, 2);
    part("down_proj", "down_exps", 0, 1);
  }
}

void add_tensors(ModelFile& model, const Shards& shards, const HfFamily& family, const json& config) {
  const HeadSizes sizes = head_sizes(model);
  std::map<std::string, std::map<int64_t, StoredTensor>> stacks;
  for (const auto& [full, entry] : shards.entries()) {
    std::string name = full;
    // Text models of pictures and text.
    for (const std::string_view prefix : {"language_model.", "model.language_model.", "bert."})
      if (name.starts_with(prefix)) {
        name = (prefix.starts_with("model.") ? "model." : "") + name.substr(prefix.size());
        break;
      }
    const auto [stem, end] = stem_and_end(name);
    std::optional<NewName> target = gguf_name(family, stem);
    for (const std::string_view prefix : {"transformer.", "model."})  // of models saved without their head
      if (!target) target = gguf_name(family, std::string(prefix) + stem);
    if (!target && !end.empty() && is_in_layer(stem, model.required("block_count")))
      fail(ErrorKind::unsupported, "[model] {}: '{}' has no place in {}", model.name, one_line(full),
           model.architecture);
    if (!target) continue;
    const std::string base = full.substr(0, full.size() - (full.ends_with(end) ? end.size() : 0));
    const Shards::Entry *scales = shards.find(base + ".scales"), *biases = shards.find(base + ".biases");
    StoredTensor tensor = scales && biases && end == ".weight"
                              ? mlx(entry, *scales, *biases, mlx_groups(config, base))
                              : plain(entry);
    if (target->change != Change::plus_one || end == ".weight")  // biases of norms are stored as they are
      tensor = changed(entry.where(), std::move(tensor), target->change, sizes);
    if (target->expert >= 0)
      stacks[target->name + end].emplace(target->expert, std::move(tensor));
    else
      model.tensors[target->name + end] = std::move(tensor);
  }
  for (auto& [name, parts] : stacks) {
    std::vector<StoredTensor> list;
    for (auto& [expert, part] : parts) {
      if (expert != std::ssize(list) ||
          (!list.empty() && (part.shape != list[0].shape || part.type != list[0].type)))
        fail(ErrorKind::io, "[model] {}: the parts of '{}' do not go together", model.name, name);
      list.push_back(std::move(part));
    }
    model.tensors[name] = stacked(std::move(list));
  }
}

}  // namespace

ModelFile open_hf_model(const std::filesystem::path& folder) {
  const std::filesystem::path config_file = folder / "config.json";
  json config = read_object(config_file);
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) {
    const json inner = std::move(*text);  // of a model that also sees pictures
    const json outer_type = config.value("model_type", json());
    config.update(inner);
    if (!inner.contains("model_type")) config["model_type"] = outer_type;
  }
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string())
    fail(ErrorKind::io, "[model] {}: 'model_type' is missing", config_file.string());
  const HfFamily& family = find_hf_family(type->get<std::string>(), config_file.string());

  ModelFile model;
  model.name = folder.string();
  model.architecture = family.architecture;
  model.exact = true;
  HfValues read = hf_values(config, config_file.string());
  model.values = std::move(read.values);
  const Shards shards(folder, "model");
  add_tensors(model, shards, family, config);
  if (model.architecture == "gpt-oss") add_gptoss_experts(model, shards);
  for (auto& [name, values] : read.divisors)
    model.tensors[name] = StoredTensor::computed({std::ssize(values)}, [values] { return values; });
  if (is_set(config, "tie_word_embeddings")) model.tensors.erase("output.weight");
  return model;
}

ModelFile open_hf_adapter(const std::filesystem::path& folder, const ModelFile& base) {
  const json config = read_object(folder / "adapter_config.json");
  ModelFile adapter;
  adapter.name = folder.string();
  adapter.architecture = base.architecture;
  const Shards shards(folder, "adapter_model");
  const HfFamily& family = find_hf_family_of(base.architecture);
  for (const auto& [full, entry] : shards.entries()) {
    constexpr std::string_view kPrefix = "base_model.model.";
    std::string stem = full.starts_with(kPrefix) ? full.substr(kPrefix.size()) : full;
    if (stem.ends_with(".base_layer.weight"))
      continue;  // a copy of the base model's, beside a head's adapter
    const bool is_b = stem.ends_with(".lora_B.weight");
    if (!is_b && !stem.ends_with(".lora_A.weight"))
      fail(ErrorKind::unsupported, "[model] {}: '{}' is no part of a LoRA adapter", adapter.name,
           one_line(full));
    stem.resize(stem.size() - std::string_view(".lora_A.weight").size());
    const std::optional<NewName> target = gguf_name(family, stem);
    if (!target || target->expert >= 0)
      fail(ErrorKind::unsupported, "[model] {}: there is no '{}' in {}", adapter.name, one_line(stem),
           base.architecture);
    StoredTensor tensor = plain(entry);
    // Rows of the product are rows of B.
    if (is_b && target->change != Change::transposed)
      tensor = changed(entry.where(), std::move(tensor), target->change, head_sizes(base));
    adapter.tensors[target->name + (is_b ? ".weight.lora_b" : ".weight.lora_a")] = std::move(tensor);
  }
  for (const char* key : {"alpha_pattern", "rank_pattern"})
    if (const auto found = config.find(key); found != config.end() && found->is_object() && !found->empty() &&
                                             (key[0] == 'a' || is_set(config, "use_rslora")))
      fail(ErrorKind::unsupported, "[model] {}: '{}' is not known", adapter.name, key);
  const double alpha = number_or(config, "lora_alpha", 0), rank = number_or(config, "r", 0);
  adapter.values["adapter.lora.alpha"] = is_set(config, "use_rslora") ? alpha * std::sqrt(rank) : alpha;
  return adapter;
}

}  // namespace weft::llm
