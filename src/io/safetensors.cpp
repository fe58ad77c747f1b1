#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/draft_file.h"
#include "base/error.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's values are little-endian");

using nlohmann::json;
using Entry = Safetensors::Entry;
using Entries = Safetensors::Entries;

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the format's own library
constexpr int kMaxDepth = 16;  // a header has 3 levels; more only below keys that are not known
constexpr size_t kMaxRank = 64;
constexpr const char* kMetadata = "__metadata__";

struct Spelling {
  std::string_view name;
  DType dtype;
};
constexpr std::array<Spelling, 9> kSpellings = {{{"F32", DType::f32},
                                                 {"F16", DType::f16},
                                                 {"BF16", DType::bf16},
                                                 {"I32", DType::i32},
                                                 {"U32", DType::u32},
                                                 {"I64", DType::i64},
                                                 {"U8", DType::u8},
                                                 {"I8", DType::i8},
                                                 {"BOOL", DType::boolean}}};

std::optional<DType> dtype_of(std::string_view spelling) {
  const auto found = std::ranges::find(kSpellings, spelling, &Spelling::name);
  return found == kSpellings.end() ? std::nullopt : std::optional(found->dtype);
}

std::string_view spelling_of(DType dtype) {
  return std::ranges::find(kSpellings, dtype, &Spelling::dtype)->name;
}

template <typename... Args>
[[noreturn]] void fail_file(ErrorKind kind, const std::string& file, fmt::format_string<Args...> format,
                            Args&&... args) {
  fail(kind, "[safetensors] {}: {}", file, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_tensor(ErrorKind kind, const std::string& file, std::string_view tensor,
                              fmt::format_string<Args...> format, Args&&... args) {
  fail_file(kind, file, "tensor '{}': {}", one_line(tensor),
            fmt::format(format, std::forward<Args>(args)...));
}

/// Elements times bytes; nullopt when that passes int64. A 0 among the sizes does not excuse the others:
/// strides are computed from them.
std::optional<int64_t> byte_count(const Shape& shape, size_t element) {
  auto bytes = static_cast<int64_t>(element);
  for (int64_t size : shape)
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  return std::ranges::find(shape, 0) == shape.end() ? bytes : 0;
}

/// Takes the header event by event: no document in memory, no recursion, duplicates are seen.
class HeaderReader final : public json::json_sax_t {
 public:
  HeaderReader(const std::string& file, Entries& entries) : file_(file), entries_(entries) {}

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }  // the negative ones
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3 || (field_ != Field::shape && field_ != Field::offsets)) return scalar();
    if (field_ == Field::offsets) {
      if (offsets_ == 2) wrong();
      (offsets_++ == 0 ? entry_->begin : entry_->end) = value;
    } else {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) wrong();
      if (entry_->shape.size() == kMaxRank)
        fail_tensor(ErrorKind::io, file_, name_, "shape has more than {} dims", kMaxRank);
      entry_->shape.push_back(static_cast<int64_t>(value));
    }
    return true;
  }

  bool string(string_t& text) override {
    if (depth_ == 2 && field_ == Field::dtype)
      entry_->dtype = std::move(text);
    else if (depth_ != 2 || field_ != Field::metadata)
      return scalar();
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ >= 2 && field_ != Field::unknown) wrong();
    if (depth_ == 1) begin_tensor();
    return enter();
  }

  bool key(string_t& text) override {
    if (depth_ == 1) {
      name_ = std::move(text);
      in_metadata_ = name_ == kMetadata;
    } else if (depth_ == 2) {
      field_ = in_metadata_             ? Field::metadata
               : text == "dtype"        ? Field::dtype
               : text == "shape"        ? Field::shape
               : text == "data_offsets" ? Field::offsets
                                        : Field::unknown;
      if (field_ != Field::metadata && field_ != Field::unknown &&
          std::exchange(seen_[static_cast<size_t>(field_)], true))
        fail_tensor(ErrorKind::io, file_, name_, "{} is there twice", text);
    }
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && !in_metadata_)
      for (Field field : {Field::dtype, Field::shape, Field::offsets})
        if (!seen_[static_cast<size_t>(field)])
          fail_tensor(ErrorKind::io, file_, name_, "{} is missing", kFieldNames[static_cast<size_t>(field)]);
    --depth_;
    return true;
  }

  bool start_array(size_t) override {
    const bool wanted = depth_ == 2 && (field_ == Field::shape || field_ == Field::offsets);
    if (!wanted) scalar();  // below a key that is not known anything goes
    return enter();
  }

  bool end_array() override {
    --depth_;
    if (depth_ == 2 && field_ == Field::offsets && offsets_ != 2) wrong();
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail_file(ErrorKind::io, file_, "header is not valid JSON at its byte {}", position);
  }

 private:
  enum class Field { dtype, shape, offsets, metadata, unknown };
  static constexpr std::array<const char*, 3> kFieldNames = {"dtype", "shape", "data_offsets"};

  bool enter() {
    if (++depth_ > kMaxDepth)
      fail_file(ErrorKind::io, file_, "header is nested deeper than {} levels", kMaxDepth);
    return true;
  }

  void begin_tensor() {
    seen_ = {};
    offsets_ = 0;
    if (in_metadata_) {
      if (std::exchange(metadata_seen_, true))
        fail_file(ErrorKind::io, file_, "{} is there twice", kMetadata);
      return;
    }
    const auto [place, added] = entries_.try_emplace(name_);
    if (!added) fail_tensor(ErrorKind::io, file_, name_, "is there twice");
    entry_ = &place->second;
  }

  /// A value that is of no use: an error, except below a key that is not known.
  bool scalar() {
    if (depth_ < 2 || field_ != Field::unknown) wrong();
    return true;
  }

  [[noreturn]] void wrong() {
    if (depth_ == 0) fail_file(ErrorKind::io, file_, "header is not a JSON object");
    if (in_metadata_) fail_file(ErrorKind::io, file_, "{} is not a map of texts", kMetadata);
    if (depth_ == 1) fail_tensor(ErrorKind::io, file_, name_, "is not described by a JSON object");
    static constexpr std::array<const char*, 3> kWanted = {"a text", "a list of sizes", "two byte offsets"};
    fail_tensor(ErrorKind::io, file_, name_, "{} is not {}", kFieldNames[static_cast<size_t>(field_)],
                kWanted[static_cast<size_t>(field_)]);
  }

  const std::string& file_;
  Entries& entries_;
  int depth_ = 0;  // 1: among tensors, 2: inside one, 3: inside its shape or offsets
  bool in_metadata_ = false, metadata_seen_ = false;
  std::string name_;
  Entry* entry_ = nullptr;
  Field field_ = Field::unknown;
  std::array<bool, 3> seen_{};  // dtype, shape, data_offsets
  int offsets_ = 0;
};

void check_sizes(const std::string& file, const Entries& entries, uint64_t data_size) {
  for (const auto& [name, entry] : entries) {
    if (entry.begin > entry.end)
      fail_tensor(ErrorKind::io, file, name, "begins at byte {}, after its end at {}", entry.begin,
                  entry.end);
    if (entry.end > data_size)
      fail_tensor(ErrorKind::io, file, name, "ends at byte {} of {}; the file is cut off or damaged",
                  entry.end, data_size);
    const std::optional<DType> dtype = dtype_of(entry.dtype);
    const std::optional<int64_t> bytes = byte_count(entry.shape, dtype ? size_of(*dtype) : 1);
    if (!bytes) fail_tensor(ErrorKind::io, file, name, "shape {} is too large", to_string(entry.shape));
    if (dtype && static_cast<uint64_t>(*bytes) != entry.end - entry.begin)
      fail_tensor(ErrorKind::io, file, name, "shape {} of {} takes {} bytes, the file has {}",
                  to_string(entry.shape), entry.dtype, *bytes, entry.end - entry.begin);
  }
}

/// Every byte behind the header belongs to one tensor: the format's own rule, so that nothing hides in a
/// file.
void check_cover(const std::string& file, const Entries& entries, uint64_t data_size) {
  std::vector<const Entries::value_type*> order;
  order.reserve(entries.size());
  for (const auto& item : entries) order.push_back(&item);
  std::ranges::sort(order, {},
                    [](const auto* item) { return std::pair(item->second.begin, item->second.end); });
  uint64_t covered = 0;
  const std::string* previous = nullptr;
  for (const auto* item : order) {
    const auto& [name, entry] = *item;
    if (entry.begin < covered)
      fail_tensor(ErrorKind::io, file, name, "bytes {}..{} overlap those of '{}'", entry.begin, entry.end,
                  one_line(*previous));
    if (entry.begin > covered)
      fail_tensor(ErrorKind::io, file, name, "the {} bytes before it belong to no tensor",
                  entry.begin - covered);
    covered = entry.end;
    previous = &name;
  }
  if (covered != data_size)
    fail_file(ErrorKind::io, file, "the last {} bytes belong to no tensor", data_size - covered);
}

}  // namespace

std::string one_line(std::string_view text) {
  constexpr size_t kMost = 100;
  std::string line(text.substr(0, kMost));
  for (char& c : line)
    if (c < ' ' || c > '~') c = '?';
  if (text.size() > kMost) line.replace(kMost - 3, 3, "...");
  return line;
}

Safetensors Safetensors::open(const std::filesystem::path& file) {
  MappedFile mapping(file);
  Safetensors result = parse(mapping.bytes(), file.string());
  result.mapping_.emplace(std::move(mapping));
  return result;
}

Safetensors Safetensors::parse(std::span<const std::byte> bytes, const std::string& name) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length)
    fail_file(ErrorKind::io, name, "{} bytes are too few for a safetensors file", bytes.size());
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::span<const std::byte> rest = bytes.subspan(sizeof length);
  if (length > kMaxHeader)
    fail_file(ErrorKind::io, name, "header of {} bytes; at most {} are allowed: not a safetensors file?",
              length, kMaxHeader);
  if (length > rest.size())
    fail_file(ErrorKind::io, name, "header of {} bytes, {} are there: the file is cut off", length,
              rest.size());
  if (length == 0 || rest[0] != std::byte{'{'}) fail_file(ErrorKind::io, name, "header is not a JSON object");

  Safetensors result;
  result.file_ = name;
  result.data_ = rest.subspan(length);
  HeaderReader reader(result.file_, result.entries_);
  const char* header = reinterpret_cast<const char*>(rest.data());
  if (const void* zero = std::memchr(header, 0, length))  // the JSON parser would take it for the end
    fail_file(ErrorKind::io, name, "header is not valid JSON at its byte {}",
              static_cast<const char*>(zero) - header + 1);
  json::sax_parse(header, header + length, &reader);
  check_sizes(name, result.entries_, result.data_.size());
  check_cover(name, result.entries_, result.data_.size());
  return result;
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

Safetensors::Info Safetensors::info(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail_tensor(ErrorKind::invalid, file_, name, "is not in the file");
  const Entry& entry = found->second;
  const std::optional<DType> dtype = dtype_of(entry.dtype);
  if (!dtype)
    fail_tensor(ErrorKind::unsupported, file_, name,
                "dtype {} is not supported; F32, F16, BF16, I32, U32, I64, U8, I8 and BOOL are",
                one_line(entry.dtype));
  return {.dtype = *dtype, .shape = entry.shape, .data = data_.subspan(entry.begin, entry.end - entry.begin)};
}

HostTensor Safetensors::load(std::string_view name) const {
  const Info tensor = info(name);
  if (tensor.dtype == DType::boolean) {
    const auto odd = std::ranges::find_if(tensor.data, [](std::byte b) { return b > std::byte{1}; });
    if (odd != tensor.data.end())
      fail_tensor(ErrorKind::io, file_, name, "element {} is {}, not a bool", odd - tensor.data.begin(),
                  std::to_integer<int>(*odd));
  }
  return {.dtype = tensor.dtype, .shape = tensor.shape, .bytes = {tensor.data.begin(), tensor.data.end()}};
}

void write_safetensors(const std::filesystem::path& file, const std::map<std::string, HostTensor>& tensors) {
  const std::string path = file.string();
  std::vector<const std::pair<const std::string, HostTensor>*> order;
  for (const auto& item : tensors) order.push_back(&item);
  std::ranges::stable_sort(order, std::greater<>(),
                           [](const auto* item) { return size_of(item->second.dtype); });

  std::string header = "{";
  uint64_t offset = 0;
  for (const auto* item : order) {
    const auto& [name, tensor] = *item;
    const bool negative = std::ranges::any_of(tensor.shape, [](int64_t size) { return size < 0; });
    const std::optional<int64_t> bytes = byte_count(tensor.shape, size_of(tensor.dtype));
    if (negative || !bytes || static_cast<uint64_t>(*bytes) != tensor.bytes.size())
      fail_tensor(ErrorKind::invalid, path, name, "{} bytes do not fit shape {} of {}", tensor.bytes.size(),
                  to_string(tensor.shape), name_of(tensor.dtype));
    if (name == kMetadata)
      fail_tensor(ErrorKind::invalid, path, name, "the format keeps this name for itself");
    std::string quoted;
    try {
      quoted = json(name).dump();
    } catch (const json::exception&) {
      fail_tensor(ErrorKind::invalid, path, name, "the name is not UTF-8");
    }
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() == 1 ? "" : ",", quoted, spelling_of(tensor.dtype),
                          fmt::join(tensor.shape, ","), offset, offset + tensor.bytes.size());
    offset += tensor.bytes.size();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // values begin at a multiple of 8
  if (header.size() > kMaxHeader)
    fail_file(ErrorKind::invalid, path, "{} tensors are too many", tensors.size());

  DraftFile draft(file);
  const uint64_t length = header.size();
  draft.write(std::as_bytes(std::span(&length, 1)));
  draft.write(header);
  for (const auto* item : order) draft.write(item->second.bytes);
  draft.finish();
}

}  // namespace weft
