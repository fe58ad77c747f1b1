#include "gpu/wgsl.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"

namespace weft::gpu {
namespace {

struct Banned {
  std::string_view text, instead;
};
constexpr Banned kBanned[] = {
    {"ptr<storage", "index the buffer by its name"},
    {"subgroupElect", "compare subgroup_invocation_id with 0"},
    {"bitcast<vec2<f16>>", "use unpack2x16float"},
    {"enable ", "features are enabled by the device"},
};

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::string_view without_comment(std::string_view line) {
  return line.substr(0, line.find("//"));
}

bool truth(const Constant& constant) {
  return std::visit([](auto value) { return value != decltype(value){}; }, constant.value);
}

std::string declaration(const Constant& c) {
  if (const bool* value = std::get_if<bool>(&c.value)) return fmt::format("const {} = {};\n", c.name, *value);
  if (const int32_t* value = std::get_if<int32_t>(&c.value))
    return fmt::format("const {}: i32 = {};\n", c.name, *value);
  if (const uint32_t* value = std::get_if<uint32_t>(&c.value))
    return fmt::format("const {}: u32 = {}u;\n", c.name, *value);
  const float value = std::get<float>(c.value);
  if (!std::isfinite(value)) fail(ErrorKind::invalid, "[wgsl] constant {} is not finite", c.name);
  return fmt::format("const {}: f32 = {:.9e}f;\n", c.name, value);
}

std::map<std::string, bool, std::less<>> conditions(const std::vector<Constant>& constants,
                                                    const Features& features) {
  std::map<std::string, bool, std::less<>> truths = {
      {"F16", features.f16},
      {"SUBGROUPS", features.subgroups},
      {"SUBGROUP_MATRIX", !features.matrices.empty()},
      {"DOT4", features.dot4},
      {"UNPACK_F16", features.unpack_f16},
      {"PACK_F16", features.pack_f16},
  };
  for (const Constant& c : constants) truths[c.name] = truth(c);
  return truths;
}

/// Resolves #if ... #endif. Lines that fall away stay as empty lines, so that line numbers remain true.
std::string select_lines(std::string_view kernel, std::string_view source,
                         const std::map<std::string, bool, std::less<>>& truths) {
  struct Level {
    bool taken, active;
  };
  std::vector<Level> levels;
  const auto active = [&] { return std::ranges::all_of(levels, &Level::active); };
  std::string text;
  int number = 0;
  for (std::string_view line : lines_of(source)) {
    ++number;
    const std::string_view word = trim(without_comment(line));
    if (word.starts_with("#if ")) {
      std::string_view name = trim(word.substr(4));
      const bool negated = name.starts_with('!');
      if (negated) name.remove_prefix(1);
      const auto found = truths.find(name);
      if (found == truths.end())
        fail(ErrorKind::invalid, "[wgsl] kernel '{}' line {}: {} is neither a constant nor a feature", kernel,
             number, name);
      levels.push_back({found->second != negated, found->second != negated});
    } else if (word == "#else" && !levels.empty()) {
      levels.back().active = !levels.back().taken;
    } else if (word == "#endif" && !levels.empty()) {
      levels.pop_back();
    } else if (word.starts_with('#') && !word.starts_with("#for ") && word != "#endfor") {
      fail(ErrorKind::invalid, "[wgsl] kernel '{}' line {}: '{}' has no place here", kernel, number, word);
    } else if (active()) {
      for (const Banned& banned : kBanned)
        if (without_comment(line).find(banned.text) != std::string_view::npos)
          fail(ErrorKind::invalid, "[wgsl] kernel '{}' line {}: '{}' does not work on every library; {}",
               kernel, number, trim(banned.text), banned.instead);
      text += line;
    }
    text += '\n';
  }
  if (!levels.empty()) fail(ErrorKind::invalid, "[wgsl] kernel '{}': #if without #endif", kernel);
  return text;
}

/// A number, or a constant that is one.
uint32_t count_of(std::string_view text, const std::vector<Constant>& constants) {
  uint32_t count = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), count).ec == std::errc()) return count;
  for (const Constant& c : constants)
    if (const uint32_t* value = std::get_if<uint32_t>(&c.value); value && c.name == text) return *value;
  return 0;
}

/// Writes out #for ... #endfor. What is repeated stands on the line of the outermost #for, so that line
/// numbers remain true.
std::string repeat_lines(std::string_view kernel, const std::string& source,
                         const std::vector<Constant>& constants) {
  struct Block {
    std::string variable, body;
    uint32_t count;
  };
  std::vector<Block> blocks;
  std::string text, skipped;  // newlines of lines that moved up
  int number = 0;
  for (std::string_view line : lines_of(std::string_view(source).substr(0, source.size() - 1))) {
    ++number;
    const std::string_view word = trim(without_comment(line));
    if (word.starts_with("#for ")) {
      const std::string_view name = word.substr(5, 1),
                             count = trim(word.substr(std::min<size_t>(6, word.size())));
      blocks.push_back({"$" + std::string(name), "", count_of(count, constants)});
      if (blocks.back().count == 0)
        fail(ErrorKind::invalid, "[wgsl] kernel '{}' line {}: '{}' is not '#for i COUNT'", kernel, number,
             word);
    } else if (word == "#endfor") {
      if (blocks.empty())
        fail(ErrorKind::invalid, "[wgsl] kernel '{}' line {}: #endfor without #for", kernel, number);
      const Block done = blocks.back();
      blocks.pop_back();
      std::string& to = blocks.empty() ? text : blocks.back().body;
      for (uint32_t i = 0; i < done.count; ++i)
        to += replace_all(done.body, done.variable, fmt::format("{}u", i));
    } else {
      (blocks.empty() ? text : blocks.back().body) += blocks.empty() ? line : without_comment(line);
    }
    if (blocks.empty())
      text += std::exchange(skipped, "") + '\n';
    else
      skipped += '\n', blocks.back().body += ' ';
  }
  if (!blocks.empty()) fail(ErrorKind::invalid, "[wgsl] kernel '{}': #for without #endfor", kernel);
  return text;
}

std::string without_comments(const std::string& text) {
  std::string result;
  for (std::string_view line : lines_of(text)) (result += without_comment(line)) += '\n';
  return result;
}

/// Reads a text word by word; white space between words does not count.
class Scanner {
 public:
  Scanner(std::string_view text, size_t at) : text_(text), at_(at) {}

  bool accept(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  /// The longest run of letters, digits and the given extra characters; may be empty.
  std::string_view word(std::string_view extra = "_") {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  extra.find(text_[at_]) != std::string_view::npos))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  std::string_view text_;
  size_t at_;
};

/// `@group(0) @binding(0) var<storage, read_write>`: how each is used, in order. Other variables are passed
/// over.
std::vector<Access> find_bindings(std::string_view kernel, std::string_view code) {
  std::vector<Access> accesses;
  for (size_t at = code.find("@group"); at != std::string_view::npos; at = code.find("@group", at + 1)) {
    Scanner scan(code, at + 6);
    scan.accept("(");
    const std::string_view group = scan.word();
    const bool binding_follows = scan.accept(")") && scan.accept("@binding") && scan.accept("(");
    const std::string_view binding = scan.word();
    if (!binding_follows || !scan.accept(")") || !scan.accept("var")) continue;
    const bool in_storage = scan.accept("<") && scan.accept("storage");
    const bool is_image = !in_storage && !scan.word().empty() && scan.accept(":") &&
                          scan.accept("texture_storage_2d<rgba32uint, read>");
    if (!in_storage && !is_image) continue;
    if (group != "0" || binding != std::to_string(accesses.size()))
      fail(ErrorKind::invalid,
           "[wgsl] kernel '{}': buffers must be @group(0) with bindings 0, 1, 2 ... in order; found "
           "@group({}) @binding({})",
           kernel, group, binding);
    const bool written = in_storage && scan.accept(",") && scan.word() == "read_write";
    accesses.push_back(is_image ? Access::image : written ? Access::write : Access::read);
  }
  return accesses;
}

/// Bytes of `struct Params`; 0 when there is none.
uint32_t find_params(std::string_view kernel, std::string_view code) {
  uint32_t count = 0;
  for (size_t at = code.find("struct"); at != std::string_view::npos; at = code.find("struct", at + 1)) {
    Scanner scan(code, at + 6);
    if (scan.word() != "Params" || !scan.accept("{")) continue;
    while (!scan.accept("}")) {
      const std::string_view name = scan.word();
      if (name.empty() || !scan.accept(":"))
        fail(ErrorKind::invalid, "[wgsl] kernel '{}': struct Params cannot be read", kernel);
      const std::string_view type = scan.word("_<>");
      if (type != "u32" && type != "i32" && type != "f32")
        fail(ErrorKind::invalid, "[wgsl] kernel '{}': Params may hold u32, i32 and f32 only, not {}", kernel,
             type);
      scan.accept(",");
      ++count;
    }
    if (count == 0 || count > 64)
      fail(ErrorKind::invalid, "[wgsl] kernel '{}': Params has {} members; 1 to 64 are possible", kernel,
           count);
    break;
  }
  return 4 * count;
}

constexpr std::string_view kDot4 = "fn dot4_i8(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }\n";
constexpr std::string_view kDot4Plain =
    "fn dot4_i8(a: u32, b: u32) -> i32 { let s = vec4<u32>(24u, 16u, 8u, 0u); "
    "let p = (bitcast<vec4<i32>>(vec4<u32>(a) << s) >> vec4<u32>(24u)) * (bitcast<vec4<i32>>(vec4<u32>(b) << "
    "s) >> "
    "vec4<u32>(24u)); return p.x + p.y + p.z + p.w; }\n";

}  // namespace

std::string replace_all(std::string text, std::string_view word, std::string_view by) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
  return text;
}

Wgsl translate(std::string_view kernel, std::string_view source, const std::vector<Constant>& constants,
               const WgslTarget& target) {
  const std::string body =
      repeat_lines(kernel, select_lines(kernel, source, conditions(constants, target.features)), constants);
  const std::string code = without_comments(body);
  const auto uses = [&](std::string_view word) { return code.find(word) != std::string::npos; };

  Wgsl result;
  result.accesses = find_bindings(kernel, code);
  result.params_size = find_params(kernel, code);

  std::string& text = result.text;
  if (target.features.f16 && uses("f16")) text += "enable f16;\n";
  if (target.abi.is_dawn() && target.features.subgroups && uses("subgroup")) {
    text += "enable subgroups;\n";
    text += "diagnostic(off, subgroup_uniformity);\n";
  }
  if (target.abi.is_dawn() && uses("subgroup_matrix")) {
    text += "enable chromium_experimental_subgroup_matrix;\n";
    text += "diagnostic(off, chromium.subgroup_matrix_uniformity);\n";
  }
  for (const Constant& c : constants) text += declaration(c);
  if (uses("dot4_i8")) text += target.features.dot4 ? kDot4 : kDot4Plain;
  if (result.params_size > 0) {
    const bool fits = target.features.immediates && result.params_size <= target.max_immediates;
    result.params = fits ? ParamsPath::immediate : ParamsPath::uniform;
    text +=
        fits ? "var<immediate> params: Params;\n" : "@group(1) @binding(0) var<uniform> params: Params;\n";
  }
  result.prelude_lines = static_cast<int>(std::ranges::count(text, '\n'));
  text += body;
  return result;
}

std::string relate_to_source(const std::string& message, int prelude_lines) {
  std::string result;
  size_t done = 0;
  for (size_t colon = message.find(':'); colon != std::string::npos; colon = message.find(':', colon + 1)) {
    int line = 0, column = 0;
    const char* end = message.data() + message.size();
    const auto [after_line, bad_line] = std::from_chars(message.data() + colon + 1, end, line);
    if (bad_line != std::errc() || after_line == end || *after_line != ':') continue;
    const auto [after_column, bad_column] = std::from_chars(after_line + 1, end, column);
    if (bad_column != std::errc()) continue;
    const size_t begin = message.substr(done, colon - done).ends_with("wgsl") ? colon - 4 : colon;
    result.append(message, done, begin - done);
    result += fmt::format("line {} column {}", std::max(line - prelude_lines, 0), column);
    done = static_cast<size_t>(after_column - message.data());
    colon = done - 1;
  }
  return result + message.substr(done);
}

}  // namespace weft::gpu
