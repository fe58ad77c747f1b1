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
#include "quant/quant.h"
#include "weft/shape.h"

namespace weft {

/// A GGUF file, version 2 or 3: metadata, then tensors. Nothing in the file is trusted: every length is
/// checked when it is opened. Errors read `[gguf] FILE: key 'x': ...`, ErrorKind::io where the file is
/// damaged.
class Gguf {
 public:
  struct Tensor {
    Shape shape;                      ///< row-major: the elements of a row are the last dim
    std::optional<quant::Type> type;  ///< none: integers or doubles, which no model computes with
    std::span<const std::byte> data;
  };
  using Tensors = std::map<std::string, Tensor, std::less<>>;

  static Gguf open(const std::filesystem::path& file);
  /// Over memory that outlives the result; `name` stands for the file in messages.
  static Gguf parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& name() const { return file_; }
  bool contains(std::string_view key) const { return values_.contains(key); }
  bool is_list(std::string_view key) const;
  bool is_text(std::string_view key) const { return !is_list(key) && kind(key).type == Type::text; }
  bool is_text_list(std::string_view key) const { return is_list(key) && kind(key).type == Type::text; }
  bool is_flag(std::string_view key) const { return !is_list(key) && kind(key).type == Type::boolean; }

  // nullopt, or an empty list, when the key is not there; ErrorKind::io when it has a value of another kind.
  // Texts are as stored, maybe no UTF-8, and live as long as the file.
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  ///< an integer too
  std::optional<bool> flag(std::string_view key) const;
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;  ///< integers too
  std::string_view bytes(std::string_view key) const;       ///< a list of 8-bit integers

  /// Every key, in the file's order, and its value as it is there: type, for a list the type and number of
  /// its elements, data.
  std::vector<std::pair<std::string_view, std::string_view>> stored() const;

  const Tensors& tensors() const { return tensors_; }

  enum class Type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, list, u64, i64, f64 };

 private:
  struct Value {
    Type type;  // of the elements of a list
    bool list = false;
    uint64_t count = 1;
    std::string_view data;    // the elements, one behind the other; texts with their lengths
    std::string_view stored;  // with the type before them
  };
  struct Entry;
  class Reader;

  Gguf() = default;
  const Value& kind(std::string_view key) const;
  void place_tensors(std::vector<Entry>& entries, std::span<const std::byte> bytes, uint64_t end);
  const Value* find(std::string_view key, bool list) const;
  double number_at(std::string_view key, const Value& value, size_t index) const;
  [[noreturn]] void wrong_kind(std::string_view key, std::string_view wanted) const;

  std::string file_;
  std::optional<MappedFile> mapping_;
  std::map<std::string, Value, std::less<>> values_;
  Tensors tensors_;
};

}  // namespace weft
