#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "io/safetensors.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's values are little-endian");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::array<uint8_t, 13> kSizes = {1, 1, 2, 2, 4, 4, 4,
                                            1, 0, 0, 8, 8, 8};  // by Type; texts, lists: 0

constexpr uint32_t kMaxDims = 4;

/// Bytes of an element of ggml's types that are not quant::Type: i8, i16, i32, i64, f64.
std::optional<uint64_t> plain_size(uint32_t ggml_type) {
  constexpr std::array<uint64_t, 5> kPlain = {1, 2, 4, 8, 8};
  if (ggml_type < 24 || ggml_type > 28) return std::nullopt;
  return kPlain[ggml_type - 24];
}

template <typename T>
T load(std::string_view data, size_t index) {
  T value;
  std::memcpy(&value, data.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

/// A tensor of the directory, whose values are not found yet.
struct Gguf::Entry {
  std::string name;
  Tensor tensor;
  uint64_t offset, bytes;
};

/// Reads values one after the other; a length that passes the end of the file is an error.
class Gguf::Reader {
 public:
  Reader(std::string_view bytes, const std::string& file) : rest_(bytes), file_(file) {}

  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string place = key_.empty() ? "" : fmt::format("{} '{}': ", what_, one_line(key_));
    fail(ErrorKind::io, "[gguf] {}: {}{}", file_, place, fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view take(uint64_t size) {
    if (size > rest_.size()) wrong("{} bytes are announced where the file has {}", size, rest_.size());
    const std::string_view result = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return result;
  }

  template <typename T>
  T number() {
    return load<T>(take(sizeof(T)), 0);
  }

  std::string_view text() { return take(number<uint64_t>()); }

  size_t left() const { return rest_.size(); }

  std::pair<std::string, Value> key_value() {
    name_next("key");
    Value value;
    const std::string_view stored = rest_;
    value.type = type();
    if (value.type == Type::list) {
      value.list = true;
      value.type = type();
      if (value.type == Type::list) wrong("lists in lists are not known");
      value.count = number<uint64_t>();
    }
    const std::string_view begin = rest_;
    const uint64_t size = kSizes[static_cast<size_t>(value.type)];
    if (value.type == Type::text)
      for (uint64_t i = 0; i < value.count; ++i) text();
    else if (value.count > rest_.size() / size)
      wrong("{} elements are announced where the file has {} bytes", value.count, rest_.size());
    else
      take(value.count * size);
    value.data = begin.substr(0, begin.size() - rest_.size());
    value.stored = stored.substr(0, stored.size() - rest_.size());
    return {key_, value};
  }

  Entry tensor() {
    name_next("tensor");
    const auto dims = number<uint32_t>();
    if (dims > kMaxDims) wrong("{} dims; up to {} are known", dims, kMaxDims);
    Entry entry{.name = key_, .tensor = {}, .offset = 0, .bytes = 0};
    uint64_t elements = 1;
    for (uint32_t i = 0; i < dims; ++i) {
      const auto size = number<uint64_t>();
      constexpr uint64_t kMost = uint64_t{1} << 60;  // elements, so that bytes fit into 64 bits in every type
      if (size > kMost || (size > 0 && elements > kMost / size)) wrong("dim {} is {}", i, size);
      elements *= size;
      entry.tensor.shape.insert(entry.tensor.shape.begin(), static_cast<int64_t>(size));
    }
    const auto type = number<uint32_t>();
    if (const std::optional<uint64_t> size = plain_size(type)) {
      entry.bytes = elements * *size;
    } else {
      entry.tensor.type = quant::type_from_ggml(static_cast<int>(type));
      if (!entry.tensor.type) wrong("type {} is not known", type);
      const quant::Traits& traits = quant::traits(*entry.tensor.type);
      const auto row = static_cast<uint64_t>(dims == 0 ? 1 : entry.tensor.shape.back());
      if (row % traits.block_elements != 0)
        wrong("rows of {} elements are not whole {} blocks of {}", row, traits.name, traits.block_elements);
      entry.bytes = quant::row_bytes(*entry.tensor.type, elements);
    }
    entry.offset = number<uint64_t>();
    return entry;
  }

 private:
  void name_next(std::string_view what) {
    what_ = what;
    key_.clear();
    key_ = text();
  }

  Type type() {
    const auto number_of = number<uint32_t>();
    if (number_of >= kSizes.size()) wrong("type {} is not known", number_of);
    return static_cast<Type>(number_of);
  }

  std::string_view rest_;
  const std::string& file_;
  std::string_view what_;  // is read: a key or a tensor
  std::string key_;
};

Gguf Gguf::open(const std::filesystem::path& file) {
  MappedFile mapping(file);
  Gguf result = parse(mapping.bytes(), file.string());
  result.mapping_ = std::move(mapping);
  return result;
}

Gguf Gguf::parse(std::span<const std::byte> bytes, const std::string& name) {
  Gguf result;
  result.file_ = name;
  Reader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
  if (bytes.size() < sizeof kMagic || reader.number<uint32_t>() != kMagic)
    reader.wrong("this is no GGUF file");
  const auto version = reader.number<uint32_t>();
  if (version != 2 && version != 3) reader.wrong("version {} is not known; 2 and 3 are", version);
  const auto tensors = reader.number<uint64_t>(), keys = reader.number<uint64_t>();
  for (uint64_t i = 0; i < keys; ++i) {
    const auto [place, added] = result.values_.insert(reader.key_value());
    if (!added) reader.wrong("is there twice");
  }
  std::vector<Entry> entries;
  for (uint64_t i = 0; i < tensors; ++i) entries.push_back(reader.tensor());
  result.place_tensors(entries, bytes, bytes.size() - reader.left());
  return result;
}

/// Values start at the first multiple of the alignment behind the directory, which ends at `end`.
void Gguf::place_tensors(std::vector<Entry>& entries, std::span<const std::byte> bytes, uint64_t end) {
  const int64_t alignment = integer("general.alignment").value_or(32);
  if (alignment <= 0 || !std::has_single_bit(static_cast<uint64_t>(alignment)) || alignment > (1 << 20))
    fail(ErrorKind::io, "[gguf] {}: general.alignment is {}", file_, alignment);
  const uint64_t step = static_cast<uint64_t>(alignment), start = (end + step - 1) / step * step,
                 size = bytes.size() > start ? bytes.size() - start : 0;
  std::ranges::sort(entries, {}, &Entry::offset);
  uint64_t used = 0;
  for (Entry& entry : entries) {
    const auto wrong = [&](const std::string& what) {
      fail(ErrorKind::io, "[gguf] {}: tensor '{}': {}", file_, one_line(entry.name), what);
    };
    if (entry.offset % step != 0) wrong(fmt::format("offset {} is not a multiple of {}", entry.offset, step));
    if (entry.offset > size || entry.bytes > size - entry.offset)
      wrong(fmt::format("{} bytes from {} on are announced where the file has {}", entry.bytes, entry.offset,
                        size));
    if (entry.offset < used) wrong("overlaps the tensor before it");
    used = entry.offset + entry.bytes;
    entry.tensor.data = bytes.subspan(start + entry.offset, entry.bytes);
    if (!tensors_.emplace(std::move(entry.name), std::move(entry.tensor)).second) wrong("is there twice");
  }
}

std::vector<std::pair<std::string_view, std::string_view>> Gguf::stored() const {
  std::vector<std::pair<std::string_view, std::string_view>> result;
  for (const auto& [key, value] : values_) result.emplace_back(key, value.stored);
  std::ranges::sort(result, {}, [](const auto& item) { return item.second.data(); });
  return result;
}

const Gguf::Value& Gguf::kind(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end())
    fail(ErrorKind::invalid, "[gguf] {}: there is no key '{}'", file_, one_line(key));
  return found->second;
}

const Gguf::Value* Gguf::find(std::string_view key, bool list) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  if (found->second.list != list) wrong_kind(key, list ? "a list" : "one value");
  return &found->second;
}

void Gguf::wrong_kind(std::string_view key, std::string_view wanted) const {
  fail(ErrorKind::io, "[gguf] {}: key '{}' is not {}", file_, one_line(key), wanted);
}

bool Gguf::is_list(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->second.list;
}

std::optional<std::string_view> Gguf::text(std::string_view key) const {
  const Value* value = find(key, false);
  if (!value) return std::nullopt;
  if (value->type != Type::text) wrong_kind(key, "a text");
  return value->data.substr(sizeof(uint64_t));
}

std::optional<int64_t> Gguf::integer(std::string_view key) const {
  const Value* value = find(key, false);
  if (!value) return std::nullopt;
  switch (value->type) {
    case Type::u8:
      return load<uint8_t>(value->data, 0);
    case Type::i8:
      return load<int8_t>(value->data, 0);
    case Type::u16:
      return load<uint16_t>(value->data, 0);
    case Type::i16:
      return load<int16_t>(value->data, 0);
    case Type::u32:
      return load<uint32_t>(value->data, 0);
    case Type::i32:
      return load<int32_t>(value->data, 0);
    case Type::u64:
    case Type::i64:
      return load<int64_t>(value->data, 0);
    default:
      wrong_kind(key, "an integer");
  }
}

std::optional<bool> Gguf::flag(std::string_view key) const {
  const Value* value = find(key, false);
  if (!value) return std::nullopt;
  if (value->type != Type::boolean) wrong_kind(key, "a bool");
  return value->data[0] != 0;
}

std::vector<std::string_view> Gguf::texts(std::string_view key) const {
  std::vector<std::string_view> result;
  const Value* value = find(key, true);
  if (!value) return result;
  if (value->type != Type::text) wrong_kind(key, "a list of texts");
  for (std::string_view rest = value->data; !rest.empty();) {
    const auto size = load<uint64_t>(rest, 0);
    result.push_back(rest.substr(sizeof size, size));
    rest.remove_prefix(sizeof size + size);
  }
  return result;
}

std::optional<double> Gguf::number(std::string_view key) const {
  const Value* value = find(key, false);
  if (!value) return std::nullopt;
  if (value->type == Type::boolean || value->type == Type::text) wrong_kind(key, "a number");
  return number_at(key, *value, 0);
}

std::vector<double> Gguf::numbers(std::string_view key) const {
  std::vector<double> result;
  const Value* value = find(key, true);
  if (!value) return result;
  for (size_t i = 0; i < value->count; ++i) result.push_back(number_at(key, *value, i));
  return result;
}

double Gguf::number_at(std::string_view key, const Value& value, size_t index) const {
  switch (value.type) {
    case Type::u8:
    case Type::boolean:
      return load<uint8_t>(value.data, index);
    case Type::i8:
      return load<int8_t>(value.data, index);
    case Type::u16:
      return load<uint16_t>(value.data, index);
    case Type::i16:
      return load<int16_t>(value.data, index);
    case Type::u32:
      return load<uint32_t>(value.data, index);
    case Type::i32:
      return load<int32_t>(value.data, index);
    case Type::u64:
      return static_cast<double>(load<uint64_t>(value.data, index));
    case Type::i64:
      return static_cast<double>(load<int64_t>(value.data, index));
    case Type::f32:
      return load<float>(value.data, index);
    case Type::f64:
      return load<double>(value.data, index);
    default:
      wrong_kind(key, "a list of numbers");
  }
}

std::string_view Gguf::bytes(std::string_view key) const {
  const Value* value = find(key, true);
  if (!value) return {};
  if (value->type != Type::u8 && value->type != Type::i8) wrong_kind(key, "a list of bytes");
  return value->data;
}

}  // namespace weft
