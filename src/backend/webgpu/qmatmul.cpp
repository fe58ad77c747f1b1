// Products with packed weights.
#include "backend/webgpu/qmatmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "backend/webgpu/interleaved.h"
#include "backend/webgpu/join.h"
#include "backend/webgpu/matmul.h"
#include "backend/webgpu/rows.h"
#include "backend/webgpu/webgpu_backend.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

constexpr int64_t kMostVectors = 8;  // rows of x that multiply_vectors takes at once
// The same on software adapters. 64 tokens of SmolLM2 on llvmpipe, per second: 142, 167, 170 and 163 with
// 1, 2, 4 and 8.
constexpr int64_t kLaneVectors = 4;
constexpr int64_t kFewRows = 24;  // up to which weights are read again rather than tiles left half empty
constexpr int64_t kEarly = 6;     // vectors of x that an invocation loads before its weights

/// So many rows of x at once.
int64_t vectors_for(int64_t m, int64_t most = kMostVectors) {
  return std::min(most, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(m))));
}

std::string number_function(std::string_view name, const std::string& value) {
  return fmt::format("fn {}() -> u32 {{ return {}; }}\n", name, value);
}

/// Codes, the words of a unit of 32 of them; load_codes, and levels_of: a byte for each.
std::string codes_functions(const quant::Packing& packing, bool table) {
  const auto type = [](const quant::Section& section) {
    return section.words == 8   ? "Bytes"
           : section.words == 4 ? "vec4<u32>"
           : section.words == 2 ? "vec2<u32>"
                                : "u32";
  };
  const quant::Section &first = packing.codes.front(), &last = packing.codes.back();
  const bool two = packing.codes.size() > 1;
  const auto word_of = [&](uint32_t word) {
    const bool in_first = word < first.words;
    const quant::Section& section = in_first ? first : last;
    const size_t i = in_first ? word : word - static_cast<size_t>(first.words);
    return fmt::format("codes.{}{}{}", in_first ? "first" : "last",
                       section.words == 8 ? (i < 4 ? ".low" : ".high") : "",
                       section.words == 1 ? "" : fmt::format(".{}", "xyzw"[i % 4]));
  };
  const auto bytes = code_bytes(quant::coding(packing.type).bits, word_of, "u32");
  const auto load = [](const quant::Section& section, std::string_view which) {
    return fmt::format("load_{}({}_codes(), unit)", section.words, which);
  };
  std::string text = fmt::format("struct Codes {{ first: {}", type(first)), loaded = load(first, "first");
  if (two) {
    text += fmt::format(", last: {}", type(last));
    loaded += ", " + load(last, "last");
  }
  return text +
         fmt::format(
             " }}\n"
             "fn load_codes(row: u32, block: u32) -> Codes {{\n  let unit = unit_at(row, block, blocks());\n "
             " return Codes({});\n}}\n"
             "fn bytes_of_codes(codes: Codes) -> array<u32, 8> {{\n  return array<u32, 8>(\n    {});\n}}\n"
             "fn levels_of(codes: Codes) -> Bytes {{\n  let b = bytes_of_codes(codes);\n"
             "  let bytes = Bytes(vec4<u32>(b[0], b[1], b[2], b[3]), vec4<u32>(b[4], b[5], b[6], b[7]));\n"
             "  return {};\n}}\n"
             "fn levels(row: u32, block: u32) -> Bytes {{ return levels_of(load_codes(row, block)); }}\n",
             loaded, fmt::join(bytes, ",\n    "), table ? "from_table(bytes)" : "bytes");
}

/// ScaleWords of some blocks; load_scales, and scales_of.
std::string scales_functions(quant::Scales scales) {
  using enum quant::Scales;
  const std::string_view type = scales == sixes                        ? "vec4<u32>"
                                : scales == nibbles || scales == bytes ? "vec2<u32>"
                                                                       : "u32";
  // The offset of the codes is part of the minimum.
  return fmt::format(
      "alias ScaleWords = {0};\n"
      "fn load_scales(row: u32, block: u32) -> ScaleWords {{ return load_{1}(row, block); }}\n"
      "fn scales_of(words: ScaleWords, block: u32) -> vec4<f32> {{\n  let s = scales_{1}(words, block);\n"
      "  return s - f32(offset()) * vec4<f32>(0.0, s.x, 0.0, s.z);\n}}\n"
      "fn scales(row: u32, block: u32) -> vec4<f32> {{ return scales_of(load_scales(row, block), block); "
      "}}\n",
      type, name_of_scales(scales));
}
/// That have their ScaleWords in common.
int64_t blocks_of_scales(quant::Scales scales) {
  using enum quant::Scales;
  return scales == sixes ? 8 : scales == halves || scales == parts ? 1 : 2;
}

/// On llvmpipe a load from a buffer tests the mask and the bounds of each lane, 80 instructions for a word of
/// 8 lanes; one from a texture loads 16 bytes for each of 8 lanes in 48.
bool through_image(const Context& context, const gpu::Buffer& words) {
  return context.software && context.device.features().images && words.size() <= gpu::kMostImageBytes;
}

/// lut(byte): levels of the low and of the high nibble, the second in the upper half of the word.
std::string table_functions(Builder& builder, const quant::Coding& coding, bool shared) {
  if (coding.table.empty()) return "fn lut(byte: u32) -> u32 { return 0u; }\n";
  const std::string text = fmt::format(
      "fn table(code: u32) -> u32 {{ return (vec4<u32>({})[code / 4u] >> (code % 4u * 8u)) & 255u; }}\n"
      "fn pair_of(byte: u32) -> u32 {{ return table(byte & 15u) | (table(byte >> 4u) << 16u); }}\n",
      table_words(builder, coding));
  if (!shared) return text + "fn lut(byte: u32) -> u32 { return pair_of(byte); }\n";
  return text + "var<workgroup> pairs: array<u32, 256>;\nfn lut(byte: u32) -> u32 { return pairs[byte]; }\n";
}

/// Whether there is room for x in the workgroup's memory, which a workgroup needs all of, if there are not
/// more than `most` vectors of it.
bool stages(const gpu::Device& device, const QuantForm& form, int64_t x_vectors, int64_t most) {
  return form.beside && form.lanes > 1 && x_vectors <= most &&
         16 * x_vectors + shared_bytes(form) <= device.limits().max_workgroup_memory;
}

/// encode_four(i, own): what code_words says, of vector i of all, behind the last of which nothing is put.
std::string encode_function(const std::string& put, const std::string& blocks, int64_t bits,
                            const std::string& x4 = "") {
  return fmt::format(
      "fn encode_four(i: u32, own: vec4<f32>) {{\n  let at = min(i / 8u, {0} - 1u);\n  let part = i % 8u;\n"
      "  let live = i < 8u * {0};\n{1}}}\n",
      blocks, code_words("own", x4, put, blocks, bits));
}

/// stage_x: x is made of what splits of attention left. `kept`: where vector i of it goes, for whoever reads
/// it later.
void declare_parts(Builder& builder, const Context::Parts& parts, const std::string& kept, int64_t bits) {
  const std::pair<const char*, int64_t> numbers[] = {
      {"LEFT_HEADS", parts.heads}, {"LEFT_FOURS", parts.columns / 4}, {"LEFT_LANES", parts.lanes}};
  for (const auto& [name, value] : numbers) builder.settings.push_back({name, static_cast<uint32_t>(value)});
  builder.settings.push_back({"SINKS", parts.sinks.storage != nullptr});
  builder.code += number_function("left_splits", builder.changing(parts.splits));
  builder.code += fmt::format("fn left4(i: u32) -> vec4<f32> {{ return bitcast<vec4<f32>>({}[i]); }}\n",
                              builder.read(parts.left, 4));
  if (parts.sinks.storage)
    builder.code +=
        fmt::format("fn sink(head: u32) -> f32 {{ return {}; }}\n", builder.load(parts.sinks, "head"));
  builder.code += embedded::webgpu_kernels("codes");
  builder.code += fmt::format("fn keep(i: u32) {{ {} = staged[i]; }}\n", kept);
  builder.code += "fn put(i: u32, word: u32) { staged[i / 4u][i % 4u] = word; }\n";
  builder.code += fmt::format(
      "fn most(x: f32) -> f32 {{\n  var all = x;\n{}  return all;\n}}\n"
      "fn total(x: f32) -> f32 {{\n  var all = x;\n{}  return all;\n}}\n",
      shuffled(Fold::max, "all", parts.lanes), shuffled(Fold::sum, "all", parts.lanes));
  builder.code += embedded::webgpu_kernels("qmatmul_parts");
  builder.code += encode_function("put", fmt::format("{}u", parts.heads * parts.columns / 32), bits);
}

/// fetch_x, stage_x: x is made of `floats`.
void declare_encoded(Builder& builder, const Operand& floats, int64_t bits, int64_t threads) {
  const int64_t fours = element_count(floats.layout.shape) / 4;
  builder.settings.push_back({"X_FOURS", static_cast<uint32_t>(fours)});
  builder.settings.push_back(
      {"EARLY", static_cast<uint32_t>(std::min(kEarly, (fours + threads - 1) / threads))});
  builder.code += fmt::format("fn x_four(i: u32) -> vec4<f32> {{ return bitcast<vec4<f32>>({}[i + {}]); }}\n",
                              builder.read(buffer_of(floats), 4), builder.number(floats.layout.offset / 4));
  builder.code += embedded::webgpu_kernels("codes");
  builder.code += "fn put(i: u32, word: u32) { staged[i / 4u][i % 4u] = word; }\n";
  builder.code += encode_function("put", fmt::format("{}u", fours / 8), bits);
  builder.code += embedded::webgpu_kernels("qmatmul_encoded");
}

/// total(x, thread): the sum over `lanes` neighbours, for the first of them.
std::string total_function(const QuantForm& form) {
  std::string text = "fn total(x: f32, thread: u32) -> f32 {\n";
  if (form.lanes == 1) return text + "  return x;\n}\n";
  if (form.subgroups)
    return text + "  var sum = x;\n" + shuffled(Fold::sum, "sum", form.lanes) + "  return sum;\n}\n";
  return "var<workgroup> terms: array<f32, THREADS>;\n" + text +
         "  terms[thread] = x;\n  workgroupBarrier();\n"
         "  for (var step = LANES / 2u; step > 0u; step /= 2u) {\n"
         "    if (thread % LANES < step) { terms[thread] += terms[thread + step]; }\n    "
         "workgroupBarrier();\n  }\n"
         "  let sum = terms[thread];\n  workgroupBarrier();\n  return sum;\n}\n";
}

}  // namespace

std::string code_words(const std::string& own, const std::string& x4, const std::string& put,
                       const std::string& blocks, int64_t bits) {
  const bool rests = bits == 16, shuffles = x4.empty();
  std::string text = fmt::format("  let four = {};\n  var most = largest_bits(four);\n", own);
  if (shuffles)
    for (const int step : {4, 2, 1})
      text += fmt::format("  most = max(most, subgroupShuffleXor(most, {}u));\n", step);
  else
    text += fmt::format(
        "  for (var j = 0u; j < 8u; j++) {{ most = max(most, largest_bits({}(at * 8u + j))); }}\n", x4);
  text += fmt::format(
      "  let largest = bitcast<f32>(most);\n  let inverse = inverse_of(largest);\n"
      "  let words = coded(four * inverse, {});\n",
      rests);
  if (shuffles)
    text += "  var low = words.sum;\n" + shuffled(Fold::sum, "low", 4) +
            "  let high = subgroupShuffleXor(low, 4u);\n";
  text += fmt::format(
      "  if (!live) {{ return; }}\n  let word = (at + part / 4u * {1}) * 4u + part % 4u;\n"
      "  {0}(word, words.codes);\n",
      put, blocks);
  if (rests) text += fmt::format("  {}(word + 8u * {}, words.rests);\n", put, blocks);
  text += "  if (part >= 4u) { return; }\n";
  if (!shuffles)
    text += fmt::format(
        "  var low = 0;\n  var high = 0;\n"
        "  for (var j = 0u; j < 4u; j++) {{\n"
        "    low += coded({0}(at * 8u + j) * inverse, {1}).sum;\n"
        "    high += coded({0}(at * 8u + 4u + j) * inverse, {1}).sum;\n  }}\n",
        x4, rests);
  return text + fmt::format("  {}((at + {}u * {}) * 4u + part, fact_of(part, largest, low, high, {}));\n",
                            put, bits / 4, blocks, rests);
}

int64_t bytes_of_codes(int64_t elements) {
  return elements / 32 * 80;
}

const Step* encoder_of(const Step& product) {
  const auto found = std::ranges::find(product.before, "activation_codes", &Step::kernel);
  return found == product.before.end() ? nullptr : &*found;
}

std::vector<gpu::Constant> constants_of(const QuantForm& form) {
  const std::pair<const char*, int64_t> numbers[] = {{"THREADS", form.threads},
                                                     {"LANES", form.lanes},
                                                     {"ROWS", form.rows},
                                                     {"VECTORS", form.vectors},
                                                     {"AHEAD", form.ahead}};
  std::vector<gpu::Constant> constants;
  for (const auto& [name, value] : numbers) constants.push_back({name, static_cast<uint32_t>(value)});
  return constants;
}

std::string vectors_text(const QuantForm& form) {
  if (form.interleaved) return std::string(embedded::webgpu_kernels("qmatmul_lanes"));
  if (form.beside) return std::string(embedded::webgpu_kernels("qmatmul_rows"));
  return total_function(form).append(embedded::webgpu_kernels("qmatmul_vectors"));
}

int64_t shared_bytes(const QuantForm& form) {
  constexpr int64_t kTable = 1024;
  return 4 * form.threads * form.rows * form.vectors + kTable + form.memory;
}

int64_t divisor(int64_t x, int64_t most) {
  int64_t d = std::clamp<int64_t>(most, 1, std::max<int64_t>(x, 1));
  while (x % d != 0) --d;
  return d;
}

Operand without_gaps(Context& context, const Operand& operand, int64_t align) {
  Layout layout = operand.layout;
  layout.offset = 0;
  if (layout.is_contiguous() && operand.layout.offset % align == 0) return operand;
  const int64_t bytes = element_count(layout.shape) * static_cast<int64_t>(size_of(operand.dtype));
  const Operand copied{std::make_shared<WebgpuStorage>(context.scratch((bytes + 3) / 4, "without gaps")),
                       operand.dtype, Layout::contiguous(layout.shape)};
  copy(context, {.kernel = "copy", .inputs = {operand}, .outputs = {copied}});
  return copied;
}

std::array<std::string, 8> code_bytes(uint32_t bits, const std::function<std::string(uint32_t)>& word,
                                      std::string_view type) {
  std::array<std::string, 8> bytes;
  quant::visit_pieces(bits, [&](const quant::Piece& piece) {
    std::string text = word(piece.word);
    if (piece.from != piece.to)
      text = fmt::format("({} {} {}({}u))", text, piece.from > piece.to ? ">>" : "<<", type,
                         std::max(piece.from, piece.to) - std::min(piece.from, piece.to));
    if (piece.bits < 8)
      text = fmt::format("({} & {}({:#010x}u))", text, type,
                         (((1u << piece.bits) - 1) << piece.to) * 0x01010101u);
    std::string& of = bytes[piece.j];
    of = of.empty() ? text : fmt::format("({} | {})", of, text);
  });
  return bytes;
}

std::string table_words(Builder& builder, const quant::Coding& coding) {
  std::string words;
  for (size_t i = 0; i < 16; i += 4) {
    uint32_t word = 0;
    for (size_t c = 0; c < 4 && !coding.table.empty(); ++c)
      word |= static_cast<uint32_t>(static_cast<uint8_t>(coding.table[(i + c) % coding.table.size()]))
              << 8 * c;
    words += (i > 0 ? ", " : "") + builder.number(word);
  }
  return words;
}

void declare_sections(Context& context, Builder& builder, const Operand& packed,
                      const quant::Packing& packing) {
  const Operand words = without_gaps(context, packed, 4);
  const std::string start = builder.number(words.layout.offset / 4);
  const gpu::Buffer& buffer = buffer_of(words);
  if (through_image(context, buffer))
    builder.code += fmt::format(
        "fn packed4(i: u32) -> vec4<u32> {{\n  let at = i + {0};\n"
        "  return textureLoad({1}, vec2<u32>(at % {2}u, at / {2}u));\n}}\n"
        "fn packed(i: u32) -> u32 {{ return packed4(i >> 2u)[i & 3u]; }}\n",
        start, builder.image(buffer), gpu::kImageWidth);
  else  // a component of what lies there is one word to load, one of what packed4() returns four
    builder.code += fmt::format(
        "fn packed4(i: u32) -> vec4<u32> {{ return {0}[i + {1}]; }}\n"
        "fn packed(i: u32) -> u32 {{ return {0}[(i >> 2u) + {1}][i & 3u]; }}\n",
        builder.read(buffer, 4), start);
  builder.code += number_function("blocks", builder.number(packing.k / 32));
  builder.code += number_function("first_codes", builder.number(packing.codes.front().start));
  builder.code += number_function("last_codes", builder.number(packing.codes.back().start));
  builder.code += number_function("scales_start", builder.number(packing.scales.start));
  builder.code += number_function("scales_units", builder.number(packing.scales.units));
  builder.code += fmt::format("fn offset() -> i32 {{ return bitcast<i32>({}); }}\n",
                              builder.number(quant::coding(packing.type).offset));
  builder.code += fmt::format("fn halves(word: u32) -> vec2<f32> {{ return {}; }}\n",
                              context.device.features().unpack_f16
                                  ? "unpack2x16float(word)"
                                  : "vec2<f32>(weft_from_f16(word & 0xffffu), weft_from_f16(word >> 16u))");
}

void declare_packed(Context& context, Builder& builder, const Operand& packed, const quant::Packing& packing,
                    bool shared) {
  const quant::Coding& coding = quant::coding(packing.type);
  declare_sections(context, builder, packed, packing);
  builder.code += table_functions(builder, coding, shared);
  builder.code += fmt::format("const BESIDE_ROWS = {}u;\n", packing.together);
  builder.code += embedded::webgpu_kernels("qmatmul");
  builder.code += codes_functions(packing, !coding.table.empty());
  builder.code += scales_functions(coding.scales);
}

QuantForm packed_form(const gpu::Device& device, int64_t m, int64_t blocks) {
  const int64_t vectors = vectors_for(m);
  // Invocations are SIMD lanes of a CPU: each takes its rows alone.
  if (device.type() == gpu::AdapterType::cpu) return {.threads = 64, .barriers = false, .beside = true};
  if (m > kFewRows) return {.tiles = true, .threads = 256};
  constexpr int64_t kRows = 32, kThreads = 256;
  const int64_t lanes = divisor(blocks, kThreads / kRows);
  return {.threads = kRows * lanes,
          .lanes = lanes,
          .vectors = vectors,
          .ahead = std::gcd(blocks / lanes, 8 / vectors),
          .beside = true};
}

QuantForm floats_form(const gpu::Device& device, int64_t m, int64_t n, int64_t units) {
  const gpu::Features& features = device.features();
  const int64_t vectors = vectors_for(m);
  if (device.type() == gpu::AdapterType::cpu) return {.threads = 64, .barriers = false};
  if (m > kFewRows) return {.tiles = true, .threads = 256};
  QuantForm form{.threads = 256, .lanes = 32, .rows = 1, .vectors = vectors};
  form.subgroups = features.subgroups && features.subgroup_min >= 8;
  if (form.subgroups) form.lanes = std::min<int64_t>(form.lanes, features.subgroup_min);
  while (form.lanes > 1 && form.lanes > units) form.lanes /= 2;  // short rows
  if (n >= 8192 && vectors <= 2) form.rows = 2;
  return form;
}

QuantForm lanes_form(const gpu::Features& features, int64_t tile, int64_t m) {
  const int64_t threads = features.subgroups ? features.subgroup_min : 8;
  // A block of x is loaded once for all of a lane's rows.
  return {.threads = threads,
          .rows = features.images && tile % (8 * threads) == 0 ? 8 : 4,
          .vectors = vectors_for(m, kLaneVectors),
          .barriers = false,
          .interleaved = true};
}

std::string declare_product(Context& context, Builder& builder, const Operand& x, const Operand& packed,
                            const quant::Packing& packing, int64_t bits, const QuantForm& form,
                            const Operand* floats) {
  const quant::Coding& coding = quant::coding(packing.type);
  const bool codes = bits > 0;
  builder.code +=
      fmt::format("const ONE_SCALE = {};\nconst MINIMUM = {};\n", quant::group_elements(coding.scales) == 32,
                  quant::has_minimum(coding.scales) || coding.offset != 0);
  if (form.interleaved) {
    builder.settings.push_back({"SETS", static_cast<uint32_t>(form.rows / 4)});
    declare_interleaved(context, builder, packed, packing);
  } else {
    declare_packed(context, builder, packed, packing, form.barriers);
  }
  // The size of x is part of the kernel's text then: several rows only where all sizes are.
  const int64_t x_vectors = element_count(x.layout.shape) / 4,
                row_vectors = packing.k / 32 * (codes ? bits / 4 + 1 : 8);
  const Context::Parts* parts = context.parts_of(x.storage);
  const bool staged =
      parts || floats ||
      stages(context.device, form, x_vectors, (builder.literal ? form.vectors : 1) * row_vectors);
  std::string x_words, x_first;
  if (!floats) {
    x_words = parts ? builder.write(buffer_of(x), 4) : builder.read(buffer_of(x), 4);
    x_first = builder.number(x.layout.offset / 4);
  }
  if (!parts && !floats)
    builder.code +=
        fmt::format("fn x_vector(i: u32) -> vec4<u32> {{ return {}[i + {}]; }}\n", x_words, x_first);
  builder.code += fmt::format("fn x4(i: u32) -> {} {{ return {}({}); }}\n", codes ? "vec4<u32>" : "vec4<f32>",
                              codes ? "" : "bitcast<vec4<f32>>", staged ? "staged[i]" : "x_vector(i)");
  if (form.beside) {
    const int64_t together = blocks_of_scales(coding.scales), common = std::gcd(form.ahead, together);
    builder.settings.push_back({"SHARED", form.lanes > 1});
    builder.settings.push_back({"STAGED", staged});
    builder.settings.push_back({"X_VECTORS", static_cast<uint32_t>(staged ? x_vectors : 0)});
    if (!floats)
      builder.settings.push_back(
          {"EARLY", static_cast<uint32_t>(std::min(kEarly, (x_vectors + form.threads - 1) / form.threads))});
    builder.settings.push_back({"UNITS", static_cast<uint32_t>(form.ahead / common)});
    builder.settings.push_back({"LOOSE", static_cast<uint32_t>(together - common)});  // powers of two
    if (staged) builder.code += "var<workgroup> staged: array<vec4<u32>, X_VECTORS>;\n";
    if (floats)
      declare_encoded(builder, *floats, bits, form.threads);
    else if (parts)
      declare_parts(builder, *parts, fmt::format("{}[i + {}]", x_words, x_first), bits);
    else if (staged)
      builder.code += embedded::webgpu_kernels("qmatmul_staged");
  }
  if (codes) builder.code += fmt::format("const RESTS = {};\nconst FACTS = {}u;\n", bits == 16, bits / 4);
  if (!form.interleaved)
    builder.code += embedded::webgpu_kernels(codes ? "qmatmul_x_codes" : "qmatmul_x");
  else if (codes)
    builder.code += embedded::webgpu_kernels("qmatmul_lanes_codes");
  else
    builder.code += "fn x_at(i: u32) -> vec4<f32> { return x4(i); }\n";
  if (coding.table.empty() || !form.barriers) return "";
  return fmt::format(
      "  for (var i = thread; i < 256u; i += {}u) {{ pairs[i] = pair_of(i); }}\n  workgroupBarrier();\n",
      form.threads);
}

void declare_product(Context& context, Builder& builder, const Operand& x, const Operand& w, int64_t k) {
  const int64_t unit = w.dtype == DType::f32 ? 4 : 8;
  const DType narrow = w.dtype == DType::f16 ? DType::f16 : DType::bf16;
  const std::string pair = narrow == DType::f16 && context.device.features().unpack_f16
                               ? "unpack2x16float(word)"
                               : fmt::format("vec2<f32>({}, {})", decode(narrow, "(word & 0xffffu)"),
                                             decode(narrow, "(word >> 16u)"));
  builder.code += number_function("blocks", builder.number(k / unit));
  builder.code += fmt::format(
      "const FULL = {};\n"
      "fn x4(i: u32) -> vec4<f32> {{ return bitcast<vec4<f32>>({}[i + {}]); }}\n"
      "fn w4(i: u32) -> vec4<u32> {{ return {}[i + {}]; }}\n"
      "fn pair_of(word: u32) -> vec2<f32> {{ return {}; }}\n",
      unit == 4, builder.read(buffer_of(x), 4), builder.number(x.layout.offset / 4),
      builder.read(buffer_of(w), 4), builder.number(w.layout.offset / unit), pair);
  builder.code += embedded::webgpu_kernels("matmul_x");
}

void multiply_packed(Context& context, const Step& step, const QuantForm& form) {
  const bool codes = step.kernel == "qmatmul_codes";
  const quant::Packing packing = packing_of(step);
  const Operand& out = step.outputs[0];
  const int64_t count = element_count(out.layout.shape);
  if (count == 0) return;
  const int64_t m = count / packing.n;

  Builder builder(step.kernel);
  const bool joined = !step.tiles.empty();
  builder.literal = joined;
  const Step* encoder = encoder_of(step);
  const Operand x = encoder ? step.inputs[0] : without_gaps(context, step.inputs[0], 4),
                floats = encoder ? without_gaps(context, encoder->inputs[0], 4) : Operand{};
  builder.settings = constants_of(form);
  builder.code += number_function("size_m", builder.number(m));
  builder.code += number_function("size_n", builder.number(packing.n));
  const std::string body =
      declare_product(context, builder, x, step.inputs[1], packing, codes ? step.attrs->integer("bits") : 0,
                      form, encoder ? &floats : nullptr);
  if (context.parts_of(x.storage)) context.parts.reset();
  if (joined) return multiply_joined(context, builder, step, form, body);
  builder.code += "alias T = f32;\n" + result_function(builder, {buffer_of(out), out.dtype, count,
                                                                 step.program ? &step : nullptr});
  builder.code +=
      fmt::format("fn store(at: u32, x: f32) {{ {}[at] = result(at, x); }}\n", builder.write(buffer_of(out)));
  const auto pieces = [](int64_t size, int64_t piece) { return (size + piece - 1) / piece; };
  builder.code += embedded::webgpu_kernels("qmatmul_places");
  if (form.tiles) {
    builder.code += embedded::webgpu_kernels(codes ? "qmatmul_tiles_codes" : "qmatmul_tiles");
    builder.groups(context, pieces(m, 64) * pieces(packing.n, codes ? 128 : 64),
                   static_cast<int>(form.threads), body + "  multiply_tile(index, thread);\n");
  } else {
    builder.code += vectors_text(form);
    builder.groups(context,
                   pieces(m, form.vectors) * pieces(packing.n, form.threads / form.lanes * form.rows),
                   static_cast<int>(form.threads), body + "  multiply_vectors(index, thread);\n");
  }
}

void qmatmul(Context& context, const Step& step) {
  const int64_t n = step.attrs->integer("n"), k = step.attrs->integer("k");
  const int64_t m = n > 0 ? element_count(step.outputs[0].layout.shape) / n : 0;
  if (context.software)
    return multiply_packed(
        context, step,
        lanes_form(context.device.features(), step.tiles.empty() ? n : step.tiles[0].width, m));
  if (step.tiles.empty()) return multiply_packed(context, step, packed_form(context.device, m, k / 32));
  const auto [product, form] = joined_packed(context, step, m, k / 32);
  multiply_packed(context, product, form);
}

void activation_codes(Context& context, const Step& step) {
  constexpr int64_t kThreads = 256;
  const int64_t blocks = element_count(step.inputs[0].layout.shape) / 32;
  if (blocks == 0) return;
  Builder builder("activation_codes");
  builder.elements = 32 * blocks;
  const Operand x = without_gaps(context, step.inputs[0], 4);
  const int width = context.is_small(builder.elements) ? 1 : 4;
  const std::string from = builder.read(buffer_of(x), width),
                    words = width == 4 ? from + "[at]"
                                       : fmt::format(
                                             "vec4<u32>({0}[4u * at], {0}[4u * at + 1u], "
                                             "{0}[4u * at + 2u], {0}[4u * at + 3u])",
                                             from),
                    count = builder.number(blocks);
  builder.code =
      fmt::format("fn x4(i: u32) -> vec4<f32> {{\n  let at = i + {};\n  return bitcast<vec4<f32>>({});\n}}\n",
                  builder.number(x.layout.offset / 4), words);
  builder.code += embedded::webgpu_kernels("codes");
  builder.code += fmt::format("fn put(i: u32, word: u32) {{ {}[i] = word; }}\n",
                              builder.write(buffer_of(step.outputs[0])));
  const gpu::Features& features = context.device.features();
  const bool shuffles = features.subgroups && features.subgroup_min >= 8;
  builder.code += encode_function("put", count, step.attrs->integer("bits"), shuffles ? "" : "x4");
  builder.groups(context, (8 * blocks + kThreads - 1) / kThreads, kThreads,
                 fmt::format("  let i = index * {}u + thread;\n  encode_four(i, x4(min(i, 8u * {} - 1u)));\n",
                             kThreads, count));
}

}  // namespace weft::webgpu
