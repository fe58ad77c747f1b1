#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/gguf.h"
#include "quant/quant.h"
#include "weft/shape.h"

namespace weft {

/// A GGUF file, version 3, in the making. Values of tensors go straight into the file, one tensor after the
/// other: the whole of it is never in memory.
class GgufWriter {
 public:
  // Keys are written in the order they are set, the last time. Numbers keep their type: uint32_t is a u32.
  template <typename T>
  void set(std::string_view key, const T& value) {
    std::string stored;
    put_type<T>(stored);
    put(stored, value);
    set_stored(key, std::move(stored));
  }
  void set(std::string_view key, const char* text) { set(key, std::string_view(text)); }
  /// All of another file's metadata but general.alignment, which here is 32.
  void set_all(const Gguf& from);
  void remove(std::string_view key);

  /// Tensors are written in the order they are added. Throws ErrorKind::invalid for a name that is there
  /// already or longer than ggml's 63 bytes, and for a shape that the format or the type cannot have.
  void add(const std::string& name, const Shape& shape, quant::Type type);

  using Sink = std::function<void(std::span<const std::byte>)>;
  /// Writes a DraftFile. Calls `values` for each tensor, which gives all bytes of it to the sink, in pieces
  /// of any size. Throws ErrorKind::invalid when they are not as many as shape and type say, ErrorKind::io.
  void write(const std::filesystem::path& file,
             const std::function<void(const std::string& name, const Sink& sink)>& values) const;

 private:
  struct Tensor {
    std::string name;
    Shape shape;
    quant::Type type;
    uint64_t bytes;
  };

  template <typename T>
  static constexpr bool kText = std::convertible_to<T, std::string_view>;
  template <typename T>
  static constexpr bool kList = !kText<T> && requires { typename T::value_type; };

  template <typename T>
  static constexpr Gguf::Type type_of() {
    using enum Gguf::Type;
    if constexpr (std::same_as<T, bool>)
      return boolean;
    else if constexpr (std::same_as<T, float>)
      return f32;
    else if constexpr (std::same_as<T, double>)
      return f64;
    else if constexpr (kText<T>)
      return text;
    else {
      static_assert(std::integral<T>);
      constexpr Gguf::Type kUnsigned[] = {u8, u16, u32, u64}, kSigned[] = {i8, i16, i32, i64};
      constexpr int kLog = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
      return std::signed_integral<T> ? kSigned[kLog] : kUnsigned[kLog];
    }
  }
  template <typename T>
  static void put_type(std::string& out) {
    if constexpr (kList<T>) {
      put(out, static_cast<uint32_t>(Gguf::Type::list));
      put_type<typename T::value_type>(out);
    } else {
      put(out, static_cast<uint32_t>(type_of<T>()));
    }
  }
  template <typename T>
  static void put(std::string& out, const T& value) {
    if constexpr (kList<T>) {
      put(out, static_cast<uint64_t>(value.size()));
      for (const auto& element : value) put(out, static_cast<const typename T::value_type&>(element));
    } else if constexpr (kText<T>) {
      const std::string_view text = value;
      put(out, static_cast<uint64_t>(text.size()));
      out += text;
    } else {
      out.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  void set_stored(std::string_view key, std::string stored);
  std::string head() const;

  std::vector<std::pair<std::string, std::string>> values_;  // key; type and elements, as in the file
  std::vector<Tensor> tensors_;
};

}  // namespace weft
