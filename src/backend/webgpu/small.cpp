#include "backend/webgpu/small.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace weft::webgpu {
namespace {

constexpr int kThreads = 256;  // of kernels whose threads share memory
constexpr int kMostThreads = 1024;
constexpr int64_t kMostSharing = 4;  // such kernels: each has 2 KiB of 16

bool has_shared(const std::string& code) {
  return code.find("var<workgroup>") != std::string::npos;
}

/// Calls `word(at, size)` for each name and number of a text, in order.
template <typename F>
void each_word(const std::string& text, F word) {
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && in_word(text[end])) ++end;
    if (end > at) word(at, end - at);
    at = std::max(end, at + 1);
  }
}

/// The names that a text declares outside of functions.
std::set<std::string> declared(const std::string& text) {
  static const std::set<std::string> kKinds = {"fn", "struct", "alias", "const", "var"};
  std::set<std::string> names;
  bool is_next = false;
  int64_t depth = 0;
  size_t done = 0;
  each_word(text, [&](size_t at, size_t size) {
    for (; done < at; ++done) depth += text[done] == '{' ? 1 : text[done] == '}' ? -1 : 0;
    const std::string word = text.substr(at, size);
    if (is_next && text[at - 1] != '<') {  // var<workgroup> name
      names.insert(word);
      is_next = false;
    }
    is_next = is_next || (depth == 0 && kKinds.contains(word));
  });
  return names;
}

/// A text with other names, and with its numbers `later` places behind where they were. Number 0 is the same
/// for all kernels.
std::string renamed(const std::string& text, const std::map<std::string, std::string>& names, size_t later) {
  constexpr std::string_view kParams = "params.";
  std::string result;
  size_t done = 0;
  each_word(text, [&](size_t at, size_t size) {
    std::string word = text.substr(at, size);
    const auto found = names.find(word);
    if (at >= kParams.size() && text.compare(at - kParams.size(), kParams.size(), kParams) == 0) {
      const size_t number = std::stoul(word.substr(1));
      word = fmt::format("p{}", number == 0 ? 0 : number + later);
    } else if (found != names.end() && (at == 0 || text[at - 1] != '.')) {
      word = found->second;
    }
    result += text.substr(done, at - done) + word;
    done = at + size;
  });
  return result + text.substr(done);
}

}  // namespace

bool SmallKernels::is_small(const Builder& kernel) const {
  return kernel.elements > 0 && context_.is_small(kernel.elements) && kernel.settings.empty() &&
         !kernel.lockstep && kThreads % kernel.threads_ == 0 &&
         (kernel.threads_ == kThreads || !has_shared(kernel.code)) &&
         std::ranges::all_of(kernel.widths_, [](int width) { return width == 1; });
}

bool SmallKernels::fits(const Builder& kernel) const {
  std::map<std::pair<int, const void*>, const gpu::Binding*> bound;
  int64_t sharing = 0;
  bool once = true;  // no buffer is bound in two ways: one of them may be written
  const auto take = [&](const Builder& part) {
    for (const gpu::Binding& b : part.bindings_) {
      const int place = context_.place_of(b.buffer);
      const gpu::Binding& first =
          *bound.insert({{place, place < 0 ? b.buffer.state().get() : nullptr}, &b}).first->second;
      once = once && first.buffer.state() == b.buffer.state() && first.offset == b.offset &&
             first.size == b.size;
    }
    sharing += has_shared(part.code) ? 1 : 0;
  };
  for (const Builder& part : parts_) take(part);
  take(kernel);
  // One more binding has the numbers.
  return once && sharing <= kMostSharing && bound.size() < context_.device.limits().max_storage_buffers;
}

void SmallKernels::add(const Builder& kernel) {
  const bool small = is_small(kernel);
  if (!small || !fits(kernel)) finish();
  parts_.push_back(kernel);
  if (!small) finish();
}

/// The part's text and numbers behind those of others; it runs when they are through with its buffers.
void SmallKernels::append(Builder& all, const Builder& part, size_t index, Touched& touched) {
  std::map<std::string, std::string> names;
  Touched own;
  for (size_t i = 0; i < part.bindings_.size(); ++i) {
    const bool writes = part.writes_[i];
    const std::string name = writes ? all.write(part.bindings_[i]) : all.read(part.bindings_[i]);
    names[fmt::format("b{}", i)] = name;
    (writes ? own.written : own.read).insert(name);
    own.waits = own.waits || touched.written.contains(name) || (writes && touched.read.contains(name));
  }
  if (own.waits) {
    all.body_ += "  storageBarrier();\n";
    touched = {};
  }
  touched.read.merge(own.read);
  touched.written.merge(own.written);

  const std::string code = part.loaders_ + part.code;
  for (const std::string& name : declared(code)) names[name] = fmt::format("{}_in{}", name, index);
  const size_t later = all.numbers_.size() - 1;
  all.numbers_.insert(all.numbers_.end(), part.numbers_.begin() + 1, part.numbers_.end());
  for (const ConstantWord& c : part.constants_)
    all.constants_.push_back({c.word + later, c.constant, c.dtype});
  all.code += renamed(code, names, later);
  all.code += fmt::format("fn main_in{}(index: u32, thread: u32) {{\n{}}}\n", index,
                          renamed(part.body_, names, later));
  const std::string groups = all.number(part.groups_);
  all.body_ += has_shared(part.code) ? fmt::format(
                                           "  for (var g = 0u; g < {}; g++) {{\n    main_in{}(g, thread);\n"
                                           "    workgroupBarrier();\n  }}\n",
                                           groups, index)
                                     : fmt::format(
                                           "  for (var at = thread; at < {0} * {1}u; at += {2}u) {{\n"
                                           "    main_in{3}(at / {1}u, at % {1}u);\n  }}\n",
                                           groups, part.threads_, all.threads_, index);
}

void SmallKernels::finish() {
  std::vector<Builder> parts;
  std::swap(parts, parts_);
  if (parts.empty()) return;
  if (parts.size() == 1) return parts[0].dispatch(context_);
  std::string name;
  for (const Builder& part : parts) name += (name.empty() ? "" : "+") + part.name_;
  Builder all(name);
  const bool shared = std::ranges::any_of(parts, [](const Builder& part) { return has_shared(part.code); });
  const auto most = static_cast<int>(context_.device.limits().max_workgroup_threads);
  all.threads_ = shared || context_.software ? kThreads : std::min(kMostThreads, most);
  all.groups_ = 1;
  Touched touched;
  for (size_t i = 0; i < parts.size(); ++i) append(all, parts[i], i, touched);
  all.dispatch(context_);
}

}  // namespace weft::webgpu
