#include "backend/webgpu/vectors.h"

#include <algorithm>
#include <set>

namespace weft::webgpu {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kLarge = 1 << 20;  // elements

int64_t words_of(DType dtype, int64_t count) {
  return count * static_cast<int64_t>(size_of(dtype)) / 4;
}

int width_of(DType dtype, int64_t count) {
  return static_cast<int>(std::min<int64_t>(words_of(dtype, count), 4));
}

bool is_narrow(const Operand& operand) {
  return size_of(operand.dtype) < 4;
}

/// Neighbours that one invocation takes at a time; 0 when they are no vectors.
int64_t neighbours(const Context& context, const Walk& walk, std::span<const Operand> inputs,
                   std::span<const Operand> outputs) {
  if (context.software || walk.dims.empty()) return 0;
  const bool narrow = std::ranges::any_of(inputs, is_narrow) || std::ranges::any_of(outputs, is_narrow);
  const Walk::Dim& inner = walk.dims.back();
  for (const int64_t count : {8, 4}) {
    if ((count == 8 && !narrow) || inner.size % count != 0) continue;
    bool aligned = true;
    std::set<std::pair<const void*, int>> bindings;
    for (size_t k = 0; k < inputs.size(); ++k) {
      const bool vector = inner.strides[k] == 1;
      aligned = aligned && (!vector || is_aligned(walk, k, inputs[k].dtype, count));
      bindings.emplace(buffer_of(inputs[k]).state().get(), vector ? width_of(inputs[k].dtype, count) : 1);
    }
    // One binding may be needed for numbers.
    if (aligned && bindings.size() + outputs.size() < context.device.limits().max_storage_buffers)
      return count;
  }
  return 0;
}

void map_vectors(Context& context, Builder& builder, const Walk& walk, int64_t count,
                 std::span<const Operand> inputs, std::span<const Operand> outputs) {
  std::string loads, calls, fields, results;
  for (size_t k = 0; k < inputs.size(); ++k)
    if (walk.dims.back().strides[k] == 1)
      loads += load_vectors(builder, inputs[k], count, fmt::format("at{}", k), fmt::format("w{}", k));
    else if (walk.dims.back().strides[k] == 0)
      loads += fmt::format("  let w{} = {};\n", k, builder.bits(inputs[k], fmt::format("at{}", k)));
  const std::string unravel = builder.unravel(walk, "i");
  std::vector<std::string> strides;
  for (size_t k = 0; k < inputs.size(); ++k) strides.push_back(builder.number(walk.dims.back().strides[k]));
  for (int64_t e = 0; e < count; ++e) {
    std::string arguments;
    for (size_t k = 0; k < inputs.size(); ++k) {
      const int64_t stride = walk.dims.back().strides[k];
      arguments += k ? ", " : "";
      if (stride == 1)
        arguments += bits_in_vectors(fmt::format("w{}", k), inputs[k].dtype, count, e);
      else if (stride == 0)
        arguments += fmt::format("w{}", k);
      else
        arguments += builder.bits(inputs[k], fmt::format("at{} + {}u * {}", k, e, strides[k]));
    }
    calls += fmt::format("  let e{} = of_bits({});\n", e, arguments);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const DType dtype = outputs[k].dtype;
    const std::vector<std::string> vectors =
        packed_vectors(dtype, count, [&](int64_t e) { return fmt::format("e{}.r{}", e, k); });
    for (size_t v = 0; v < vectors.size(); ++v) {
      fields += fmt::format(" o{}_{}: {},", k, v, vector_type(dtype, count));
      results += (results.empty() ? "" : ", ") + vectors[v];
    }
  }
  builder.code += fmt::format(
      "struct Vectors {{{} }}\nfn vectors_at(i: u32) -> Vectors {{\n{}{}{}  return Vectors({});\n}}\n",
      fields, unravel, loads, calls, results);

  const int64_t total = walk.count() / count;
  const int64_t places = walk.count() >= kLarge ? 2 : 1;  // loads of both before any store
  const std::string n = builder.number(total);
  std::string body, stores;
  for (int64_t p = 0; p < places; ++p) {
    body += fmt::format("  let place{0} = (index * {1}u + {0}u) * {2}u + thread;\n", p, places, kThreads);
    body += p == 0 ? fmt::format("  if (place0 >= {}) {{ return; }}\n", n) : "";
    body += fmt::format("  let v{0} = vectors_at({1} * {2}u);\n", p,
                        p == 0 ? "place0" : fmt::format("min(place{}, {} - 1u)", p, n), count);
    stores += fmt::format("  if (place{} < {}) {{\n", p, n);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const DType dtype = outputs[k].dtype;
      const std::string to = builder.write(buffer_of(outputs[k]), width_of(dtype, count));
      const int64_t vectors = count / vector_unit(dtype, count);
      for (int64_t v = 0; v < vectors; ++v)
        stores += fmt::format("    {0}[place{1} * {2}u + {3}u] = v{1}.o{4}_{3};\n", to, p, vectors, v, k);
    }
    stores += "  }\n";
  }
  const int64_t in_group = kThreads * places;
  builder.groups(context, (total + in_group - 1) / in_group, kThreads, body + stores);
}

}  // namespace

int64_t vector_unit(DType dtype, int64_t count) {
  return std::min<int64_t>(count, 16 / static_cast<int64_t>(size_of(dtype)));
}

std::string vector_type(DType dtype, int64_t count) {
  const int width = width_of(dtype, count);
  return width == 1 ? "u32" : fmt::format("vec{}<u32>", width);
}

std::string load_vectors(Builder& builder, const Operand& operand, int64_t count, std::string_view at,
                         std::string_view name) {
  const int64_t unit = vector_unit(operand.dtype, count);
  const std::string from = builder.read(buffer_of(operand), width_of(operand.dtype, count));
  std::string text;
  for (int64_t v = 0; v < count / unit; ++v)
    text += fmt::format("  let {}_{} = {}[({}) / {}u + {}u];\n", name, v, from, at, unit, v);
  return text;
}

std::string bits_in_vectors(std::string_view name, DType dtype, int64_t count, int64_t e) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  const int64_t word = e * size / 4, shift = e * size % 4 * 8;
  std::string bits = fmt::format("{}_{}", name, word / 4);
  if (words_of(dtype, count) > 1) bits += fmt::format(".{}", "xyzw"[word % 4]);
  if (size == 4) return bits;
  if (shift > 0) bits = fmt::format("({} >> {}u)", bits, shift);
  return fmt::format("({} & {}u)", bits, size == 2 ? 0xffff : 0xff);
}

std::vector<std::string> packed_vectors(DType dtype, int64_t count,
                                        const std::function<std::string(int64_t e)>& bits) {
  const int64_t in_word = 4 / static_cast<int64_t>(size_of(dtype)), unit = vector_unit(dtype, count);
  std::vector<std::string> vectors;
  for (int64_t first = 0; first < count; first += unit) {
    std::string words;
    for (int64_t e = first; e < first + unit; ++e) {
      words += e == first ? "" : e % in_word == 0 ? ", " : " | ";
      words += e % in_word == 0 ? bits(e) : fmt::format("({} << {}u)", bits(e), e % in_word * 32 / in_word);
    }
    vectors.push_back(fmt::format("{}({})", vector_type(dtype, count), words));
  }
  return vectors;
}

bool is_aligned(const Walk& walk, size_t k, DType dtype, int64_t count) {
  const int64_t unit = vector_unit(dtype, count);
  return walk.offsets[k] % unit == 0 &&
         std::all_of(walk.dims.begin(), walk.dims.end() - 1,
                     [&](const Walk::Dim& dim) { return dim.strides[k] % unit == 0; });
}

void map_bits(Context& context, Builder& builder, std::span<const Operand> inputs,
              std::span<const Operand> outputs) {
  std::vector<const Layout*> layouts;
  for (const Operand& input : inputs) layouts.push_back(&input.layout);
  // Outputs are contiguous: their order is that of the index.
  const Walk all = walk(outputs[0].layout.shape, layouts);
  builder.code = result_struct(outputs.size()) + builder.code;
  builder.elements = all.count();
  const bool small = context.is_small(all.count());
  if (const int64_t count = small ? 0 : neighbours(context, all, inputs, outputs))
    return map_vectors(context, builder, all, count, inputs, outputs);

  std::string arguments;
  const std::string unravel = builder.unravel(all, "i");
  for (size_t k = 0; k < inputs.size(); ++k)
    arguments += (k ? ", " : "") + builder.bits(inputs[k], fmt::format("at{}", k));
  builder.code += "fn element(i: u32) -> Result {\n" + unravel + "  return of_bits(" + arguments + ");\n}\n";
  builder.map(context, outputs);
}

}  // namespace weft::webgpu
