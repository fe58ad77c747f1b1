#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/mapped_file.h"

namespace weft {

/// The metadata of a GGUF file, version 2 or 3. Nothing in the file is trusted: every length is checked when
/// it is opened. Errors read `[gguf] FILE: key 'x': ...`, ErrorKind::io where the file is damaged.
class Gguf {
 public:
  static Gguf open(const std::filesystem::path& file);
  /// Over memory that outlives the result; `name` stands for the file in messages.
  static Gguf parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& name() const { return file_; }
  bool contains(std::string_view key) const { return values_.contains(key); }

  // nullopt, or an empty list, when the key is not there; ErrorKind::io when it has a value of another kind.
  // Texts are as stored, maybe no UTF-8, and live as long as the file.
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;  ///< integers too
  std::string_view bytes(std::string_view key) const;       ///< a list of 8-bit integers

 private:
  enum class Type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, list, u64, i64, f64 };
  struct Value {
    Type type;  // of the elements of a list
    bool list = false;
    uint64_t count = 1;
    std::string_view data;  // the elements, one behind the other; texts with their lengths
  };
  class Reader;

  Gguf() = default;
  const Value* find(std::string_view key, bool list) const;
  [[noreturn]] void wrong_kind(std::string_view key, std::string_view wanted) const;

  std::string file_;
  std::optional<MappedFile> mapping_;
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace weft
