#include "backend/webgpu/builder.h"

#include <algorithm>
#include <bit>
#include <set>

#include "backend/webgpu/small.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kLarge = 1 << 20;  // elements
constexpr int kImage = -1;           // the width of bindings that are read through textures

/// The functions of prelude.wgsl, by name, in order.
const std::vector<std::pair<std::string, std::string>>& prelude() {
  static const auto functions = [] {
    std::vector<std::pair<std::string, std::string>> all;
    const std::string text = "\n" + std::string(embedded::webgpu_kernels("prelude"));
    for (size_t at = text.find("\nfn "); at != std::string::npos;) {
      const size_t next = text.find("\nfn ", at + 1);
      const size_t open = text.find('(', at);
      all.emplace_back(text.substr(at + 4, open - at - 4),
                       text.substr(at, next == std::string::npos ? next : next - at));
      at = next;
    }
    return all;
  }();
  return functions;
}

/// The names weft_xxx in a text.
std::set<std::string> used_names(const std::string& text) {
  std::set<std::string> names;
  for (size_t at = text.find("weft_"); at != std::string::npos;) {
    size_t end = at;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
      ++end;
    names.insert(text.substr(at, end - at));
    at = text.find("weft_", end);
  }
  return names;
}

/// The prelude's functions that `text` needs, and those that they need.
std::string needed_prelude(const std::string& text) {
  std::set<std::string> names = used_names(text);
  std::string result;
  for (auto f = prelude().rbegin(); f != prelude().rend(); ++f)  // functions only use those above them
    if (names.contains(f->first)) {
      result += f->second;
      names.merge(used_names(f->second));
    }
  return result;
}

/// `params.p12` becomes `numbers[12u]`.
std::string numbers_from_buffer(const std::string& text) {
  constexpr std::string_view kName = "params.p";
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(kName); at != std::string::npos; at = text.find(kName, done)) {
    size_t end = at + kName.size();
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    result += text.substr(done, at - done);
    result += "numbers[" + text.substr(at + kName.size(), end - at - kName.size()) + "u]";
    done = end;
  }
  return result + text.substr(done);
}

/// Of a binding: words, vectors of them, or atomic ones (0).
std::string element_type(int width) {
  if (width == 0) return "atomic<u32>";
  return width == 1 ? "u32" : fmt::format("vec{}<u32>", width);
}

}  // namespace

const gpu::Buffer& buffer_of(const Operand& operand) {
  const auto* storage = dynamic_cast<const WebgpuStorage*>(operand.storage.get());
  if (!storage) fail(ErrorKind::invalid, "[webgpu] run of storage that is not a GPU's");
  return storage->buffer();
}

std::string_view lane_type(DType dtype) {
  switch (lane_of(dtype)) {
    case Lane::f32:
      return "f32";
    case Lane::i32:
      return "i32";
    case Lane::boolean:
      return "bool";
    default:
      return "u32";
  }
}

std::string decode(DType dtype, std::string_view bits) {
  switch (dtype) {
    case DType::f32:
      return fmt::format("bitcast<f32>({})", bits);
    case DType::i32:
      return fmt::format("bitcast<i32>({})", bits);
    case DType::f16:
      return fmt::format("weft_from_f16({})", bits);
    case DType::bf16:
      return fmt::format("weft_from_bf16({})", bits);
    case DType::i8:
      return fmt::format("weft_wrap_i8(bitcast<i32>({}))", bits);
    case DType::boolean:
      return fmt::format("({} != 0u)", bits);
    default:
      return std::string(bits);
  }
}

std::string encode(DType dtype, std::string_view value) {
  switch (dtype) {
    case DType::f16:
      return fmt::format("weft_to_f16({})", value);
    case DType::bf16:
      return fmt::format("weft_to_bf16({})", value);
    case DType::u8:
      return fmt::format("({} & 0xffu)", value);
    case DType::i8:
      return fmt::format("(bitcast<u32>({}) & 0xffu)", value);
    case DType::boolean:
      return fmt::format("select(0u, 1u, {})", value);
    case DType::u32:
      return std::string(value);
    default:
      return fmt::format("bitcast<u32>({})", value);
  }
}

std::string narrow(DType dtype, std::string value) {
  switch (dtype) {
    case DType::f16:
      return "weft_round_f16(" + value + ")";
    case DType::bf16:
      return "weft_round_bf16(" + value + ")";
    case DType::u8:
      return "(" + value + " & 0xffu)";
    case DType::i8:
      return "weft_wrap_i8(" + value + ")";
    default:
      return value;
  }
}

std::string result_struct(size_t outputs) {
  std::string fields;
  for (size_t k = 0; k < outputs; ++k) fields += fmt::format(" r{}: u32,", k);
  return "struct Result {" + fields + " }\n";
}

std::string convert(DType from, DType to, std::string_view value) {
  const std::string_view a = lane_type(from), b = lane_type(to);
  if (a == b) return std::string(value);
  if (b == "bool") {
    if (a == "f32") return fmt::format("weft_truth({})", value);
    return fmt::format("({} != {}(0))", value, a);
  }
  if (a == "bool") return fmt::format("select({}(0), {}(1), {})", b, b, value);
  if (a == "f32") return fmt::format("weft_to_{}({})", b, value);
  if (b == "f32") return fmt::format("f32({})", value);
  return fmt::format("bitcast<{}>({})", b, value);
}

Builder::Builder(std::string_view name) : name_(name) {
  numbers_.push_back(0x7f800000);  // params.p0, for the prelude
}

std::string Builder::number(int64_t value) {
  return literal ? fmt::format("{}u", static_cast<uint32_t>(value)) : changing(value);
}

std::string Builder::changing(int64_t value) {
  numbers_.push_back(static_cast<uint32_t>(value));
  return fmt::format("params.p{}", numbers_.size() - 1);
}

std::string Builder::real(float value) {
  return "bitcast<f32>(" + number(std::bit_cast<int32_t>(value)) + ")";
}

std::string Builder::constant(DType dtype, double value, int id) {
  numbers_.push_back(constant_word(dtype, value));
  std::string word = fmt::format("params.p{}", numbers_.size() - 1);
  if (id >= 0) constants_.push_back({numbers_.size() - 1, id, dtype});
  switch (lane_of(dtype)) {
    case Lane::boolean:
      return "(" + word + " != 0u)";
    case Lane::u32:
      return word;
    default:
      return fmt::format("bitcast<{}>({})", lane_type(dtype), word);
  }
}

std::string Builder::read(const gpu::Binding& part, int width) {
  // The size is part of what a bind group is known by.
  const uint64_t size = part.size ? part.size : part.buffer.size() - part.offset;
  for (size_t i = 0; i < bindings_.size(); ++i) {
    const gpu::Binding& b = bindings_[i];
    if (b.buffer.state() == part.buffer.state() && b.offset == part.offset && b.size == size &&
        widths_[i] == width)
      return fmt::format("b{}", i);
  }
  bindings_.emplace_back(part.buffer, part.offset, size);
  widths_.push_back(width);
  writes_.push_back(false);
  return fmt::format("b{}", bindings_.size() - 1);
}

std::string Builder::write(const gpu::Binding& part, int width) {
  const std::string name = read(part, width);
  writes_[static_cast<size_t>(std::stoi(name.substr(1)))] = true;
  return name;
}

std::string Builder::image(const gpu::Buffer& buffer) {
  return read(buffer, kImage);
}

std::string Builder::share(const gpu::Binding& part) {
  return write(part, 0);
}

std::string Builder::bits(const Operand& operand, std::string_view at) {
  if (operand.tile >= 0) return fmt::format("in_tile{}({})", operand.tile, at);
  const std::string buffer = read(buffer_of(operand));
  const size_t bytes = size_of(operand.dtype);
  if (bytes == 4) return fmt::format("{}[{}]", buffer, at);
  const std::string name = fmt::format("bits{}_{}", bytes, buffer);
  if (loaders_.find("fn " + name + "(") == std::string::npos) {
    if (bytes == 2)
      loaders_ += fmt::format(
          "fn {}(i: u32) -> u32 {{ return ({}[i >> 1u] >> ((i & 1u) * 16u)) & 0xffffu; }}\n", name, buffer);
    else
      loaders_ += fmt::format("fn {}(i: u32) -> u32 {{ return ({}[i >> 2u] >> ((i & 3u) * 8u)) & 0xffu; }}\n",
                              name, buffer);
  }
  return fmt::format("{}({})", name, at);
}

std::string Builder::load(const Operand& operand, std::string_view at) {
  return decode(operand.dtype, bits(operand, at));
}

std::string Builder::unravel(const Walk& walk, std::string_view i, std::string_view prefix) {
  // Views of one array that are shifted against each other walk alike: a place is found once for all of them.
  std::vector<size_t> like(walk.offsets.size());
  for (size_t k = 0; k < like.size(); ++k)
    while (!std::ranges::all_of(walk.dims,
                                [&](const Walk::Dim& dim) { return dim.strides[like[k]] == dim.strides[k]; }))
      ++like[k];

  std::string text;
  for (size_t k = 0; k < walk.offsets.size(); ++k)
    if (like[k] == k) text += fmt::format("  var {}at{} = {};\n", prefix, k, number(walk.offsets[k]));
  std::string rest(i);
  for (size_t d = walk.dims.size(); d-- > 0;) {
    const Walk::Dim& dim = walk.dims[d];
    if (d == 0) {
      text += fmt::format("  let {}c0 = {};\n", prefix, rest);
    } else {
      const std::string size = number(dim.size);
      text +=
          fmt::format("  let {0}c{1} = {2} % {3};\n  let {0}rest{1} = {2} / {3};\n", prefix, d, rest, size);
      rest = fmt::format("{}rest{}", prefix, d);
    }
    for (size_t k = 0; k < dim.strides.size(); ++k)
      if (like[k] == k)
        text += fmt::format("  {0}at{1} += {0}c{2} * {3};\n", prefix, k, d, number(dim.strides[k]));
  }
  for (size_t k = 0; k < like.size(); ++k)
    if (like[k] != k)
      text += fmt::format("  let {0}at{1} = {0}at{2} + {3};\n", prefix, k, like[k],
                          number(walk.offsets[k] - walk.offsets[like[k]]));
  return text;
}

void Builder::map(Context& context, std::span<const Operand> outputs) {
  const int64_t count = element_count(outputs[0].layout.shape);
  if (count == 0) return;
  size_t narrowest = 4;
  for (const Operand& o : outputs) narrowest = std::min(narrowest, size_of(o.dtype));
  const auto per = static_cast<int64_t>(4 / narrowest);  // neighbours that share a word
  const std::string n = number(count);

  // words_of(first): the words that hold elements first .. first + per - 1 of each output.
  std::string fields, variables, packing, returned;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const auto in_word = static_cast<int64_t>(4 / size_of(outputs[k].dtype));
    variables += fmt::format("  var words{}: array<u32, {}>;\n", k, per / in_word);
    packing +=
        fmt::format("    words{0}[k / {1}u] |= e.r{0} << ((k % {1}u) * {2}u);\n", k, in_word, 32 / in_word);
    for (int64_t w = 0; w < per / in_word; ++w) {
      fields += fmt::format(" w{}_{}: u32,", k, w);
      returned += fmt::format("{}words{}[{}]", returned.empty() ? "" : ", ", k, w);
    }
  }
  if (code.find("struct Result {") == std::string::npos) code = result_struct(outputs.size()) + code;
  code += "struct Words {" + fields + " }\n";
  code += fmt::format(
      "fn words_of(first: u32) -> Words {{\n{}  for (var k = 0u; k < {}u && first + k < {}; k++) {{\n"
      "    let e = element(first + k);\n{}  }}\n  return Words({});\n}}\n",
      variables, per, n, packing, returned);

  // Large arrays: loads of several places before any store, to keep the memory busy.
  const int64_t places = count >= kLarge && !context.software ? 4 : 1;
  std::string body, stores;
  for (int64_t p = 0; p < places; ++p) {
    body += fmt::format("  let first{0} = ((index * {1}u + {0}u) * {2}u + thread) * {3}u;\n", p, places,
                        kThreads, per);
    body += p == 0 ? fmt::format("  if (first0 >= {}) {{ return; }}\n  let words0 = words_of(first0);\n", n)
                   : fmt::format("  let words{0} = words_of(min(first{0}, {1} - 1u));\n", p, n);
    std::string place;
    for (size_t k = 0; k < outputs.size(); ++k) {
      const auto in_word = static_cast<int64_t>(4 / size_of(outputs[k].dtype));
      const std::string to = write(buffer_of(outputs[k]));
      for (int64_t w = 0; w < per / in_word; ++w) {
        const std::string store =
            fmt::format("{0}[first{1} / {2}u + {3}u] = words{1}.w{4}_{3};", to, p, in_word, w, k);
        place += w == 0 ? "    " + store + "\n"
                        : fmt::format("    if (first{} + {}u < {}) {{ {} }}\n", p, w * in_word, n, store);
      }
    }
    stores += p == 0 ? place : fmt::format("  if (first{} < {}) {{\n{}  }}\n", p, n, place);
  }
  const int64_t in_group = per * kThreads * places;
  groups(context, (count + in_group - 1) / in_group, kThreads, body + stores);
}

void Builder::map(Context& context, DType dtype, int64_t count, const gpu::Buffer& to) {
  const Operand output{std::make_shared<WebgpuStorage>(to), dtype, Layout::contiguous({count})};
  map(context, std::span(&output, 1));
}

void Builder::groups(Context& context, int64_t groups, int threads, std::string_view body) {
  if (groups == 0) return;
  groups_ = groups, threads_ = threads, body_ = body;
  if (context.small)
    context.small->add(*this);
  else
    dispatch(context);
}

void Builder::dispatch(Context& context) {
  code += fmt::format(
      "@compute @workgroup_size({})\nfn main(@builtin(workgroup_id) group: vec3<u32>, "
      "@builtin(num_workgroups) grid: vec3<u32>,\n"
      "        @builtin(local_invocation_index) thread: u32) {{\n"
      "  let index = group.y * grid.x + group.x;\n  if (index >= {}) {{ return; }}\n{}}}\n",
      threads_, number(groups_), body_);
  std::string text = loaders_ + code;
  if (lockstep) text = gpu::replace_all(text, "workgroupBarrier();", "");
  text += needed_prelude(text);
  Tape::Dispatch numbers{.numbers = numbers_, .constants = constants_};
  if (constants_.empty() && text.find("params.") == text.npos) numbers.numbers.clear();
  if (numbers.numbers.size() > 64) {  // more than Params holds
    text = numbers_from_buffer(text);
    numbers.table = context.device.alloc(numbers_.size() * 4, "numbers");
    context.device.write(numbers.table, 0, std::as_bytes(std::span(numbers_)));
    bindings_.emplace_back(numbers.table, 0, numbers.table.size());
    widths_.push_back(1);
    writes_.push_back(false);
  }
  std::string head;
  for (size_t i = 0; i < bindings_.size(); ++i)
    head += widths_[i] == kImage
                ? fmt::format("@group(0) @binding({0}) var b{0}: texture_storage_2d<rgba32uint, read>;\n", i)
                : fmt::format("@group(0) @binding({}) var<storage, {}> {}: array<{}>;\n", i,
                              writes_[i] ? "read_write" : "read",
                              numbers.table && i + 1 == bindings_.size() ? "numbers" : fmt::format("b{}", i),
                              element_type(widths_[i]));
  if (!numbers.table && !numbers.numbers.empty()) {
    head += "struct Params {\n";
    for (size_t i = 0; i < numbers_.size(); ++i) head += fmt::format("  p{}: u32,\n", i);
    head += "}\n";
  }
  const uint32_t limit = 65535;
  const auto rows = static_cast<uint32_t>((groups_ + limit - 1) / limit);
  const auto columns = static_cast<uint32_t>((groups_ + rows - 1) / rows);
  const gpu::Kernel kernel =
      context.device.kernel_later({.name = name_, .wgsl = head + text, .constants = settings});
  context.dispatch(kernel, bindings_, {columns, rows, 1}, std::move(numbers));
}

}  // namespace weft::webgpu
