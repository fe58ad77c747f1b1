#include "io/gguf.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "io/safetensors.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's values are little-endian");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::array<uint8_t, 13> kSizes = {1, 1, 2, 2, 4, 4, 4,
                                            1, 0, 0, 8, 8, 8};  // by Type; texts, lists: 0

template <typename T>
T load(std::string_view data, size_t index) {
  T value;
  std::memcpy(&value, data.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

/// Reads values one after the other; a length that passes the end of the file is an error.
class Gguf::Reader {
 public:
  Reader(std::string_view bytes, const std::string& file) : rest_(bytes), file_(file) {}

  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string place = key_.empty() ? "" : fmt::format("key '{}': ", one_line(key_));
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

  std::pair<std::string, Value> key_value() {
    key_.clear();
    key_ = text();
    Value value;
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
    return {key_, value};
  }

 private:
  Type type() {
    const auto number_of = number<uint32_t>();
    if (number_of >= kSizes.size()) wrong("type {} is not known", number_of);
    return static_cast<Type>(number_of);
  }

  std::string_view rest_;
  const std::string& file_;
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
  reader.number<uint64_t>();  // tensors
  const auto count = reader.number<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    const auto [place, added] = result.values_.insert(reader.key_value());
    if (!added) reader.wrong("is there twice");
  }
  return result;
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

std::vector<double> Gguf::numbers(std::string_view key) const {
  std::vector<double> result;
  const Value* value = find(key, true);
  if (!value) return result;
  for (size_t i = 0; i < value->count; ++i) switch (value->type) {
      case Type::f32:
        result.push_back(load<float>(value->data, i));
        break;
      case Type::f64:
        result.push_back(load<double>(value->data, i));
        break;
      case Type::i32:
        result.push_back(load<int32_t>(value->data, i));
        break;
      case Type::u32:
        result.push_back(load<uint32_t>(value->data, i));
        break;
      default:
        wrong_kind(key, "a list of numbers");
    }
  return result;
}

std::string_view Gguf::bytes(std::string_view key) const {
  const Value* value = find(key, true);
  if (!value) return {};
  if (value->type != Type::u8 && value->type != Type::i8) wrong_kind(key, "a list of bytes");
  return value->data;
}

}  // namespace weft
