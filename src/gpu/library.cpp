#include "gpu/library.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "gpu/elf.h"

namespace weft::gpu {
namespace {

namespace fs = std::filesystem;
constexpr const char* kAdvice =
    "install wgpu-native 24 or newer, or Dawn of April 2025 or newer (`make build` fetches both)";

/// Where the functions of a library are found: its dynamic symbols, or the symbol table of a Node addon.
class Symbols {
 public:
  explicit Symbols(const fs::path& file) {
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle_) {
      const std::string why = dlerror();
      if (why.find("napi_") == std::string::npos)
        fail(ErrorKind::io, "[webgpu] cannot load {}: {}", file.string(), why);
      open_addon(file);
    }
  }

  void* find(const std::string& name) const {
    if (void* symbol = dlsym(handle_, name.c_str())) return symbol;
    const auto local = local_.find(name);
    return local == local_.end() ? nullptr : local->second;
  }
  bool has(const char* name) const { return find(name) != nullptr; }

 private:
  /// npm's `webgpu` package carries a current Dawn as a Node addon: a complete library whose wgpu* functions
  /// are not exported, and go through a table of procedures that Node's part of the addon would fill in.
  void open_addon(const fs::path& file) {
    const LoadableAddon copy(file);
    handle_ = dlopen(copy.path().c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle_) fail(ErrorKind::io, "[webgpu] cannot load the Node addon {}: {}", file.string(), dlerror());
    link_map* map = nullptr;
    dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map));
    const ElfFile elf(file);
    const auto address = [&](uint64_t value) {
      return reinterpret_cast<void*>(map->l_addr + value);  // NOLINT(performance-no-int-to-ptr)
    };
    for (const auto& [name, value] : elf.functions("wgpu")) local_[name] = address(value);
    const auto set = elf.functions("dawnProcSetProcs"), get = elf.functions("_ZN4dawn6native8GetProcsEv");
    if (local_.empty() || set.size() != 1 || get.size() != 1)
      fail(ErrorKind::unsupported, "[webgpu] {} is a Node addon without Dawn's functions in its symbol table",
           file.string());
    const auto get_procs = reinterpret_cast<const void* (*)()>(address(get.begin()->second));
    const auto set_procs = reinterpret_cast<void (*)(const void*)>(address(set.begin()->second));
    set_procs(get_procs());
  }

  void* handle_ = nullptr;
  std::map<std::string, void*> local_;
};

/// Implementation and class by symbols, as docs/webgpu-abi.md derives it.
abi::AbiTraits classify(const Symbols& symbols) {
  abi::AbiTraits traits;
  traits.implementation = symbols.has("wgpuDevicePoll")   ? abi::Implementation::wgpu
                          : symbols.has("wgpuDeviceTick") ? abi::Implementation::dawn
                                                          : abi::Implementation::generic;
  const bool two_forms =
      symbols.has("wgpuInstanceRequestAdapterF") || symbols.has("wgpuInstanceRequestAdapter2");
  const bool old_instance =
      symbols.has("wgpuGetInstanceCapabilities") && !symbols.has("wgpuGetInstanceLimits");
  if (!symbols.has("wgpuInstanceAddRef") || two_forms)
    traits.abi = abi::Class::legacy;
  else if (old_instance)
    traits.abi = traits.is_wgpu() ? abi::Class::a : abi::Class::b;
  return traits;
}

std::string implementation_name(abi::Implementation implementation) {
  switch (implementation) {
    case abi::Implementation::wgpu:
      return "wgpu-native";
    case abi::Implementation::dawn:
      return "Dawn";
    case abi::Implementation::generic:
      break;
  }
  return "WebGPU";
}

/// wgpu-native tells a.b.c.d, one byte each; builds from source tell 0.
std::string version_of(const abi::Api& api) {
  const uint32_t v = api.GetVersion ? api.GetVersion() : 0;
  if (v == 0) return "";
  return fmt::format("{}.{}.{}.{}", v >> 24, v >> 16 & 255, v >> 8 & 255, v & 255);
}

void resolve(const Symbols& symbols, const fs::path& file, abi::Api& api){
#define WEFT_RESOLVE(name, ...) api.name = reinterpret_cast<decltype(api.name)>(symbols.find("wgpu" #name));
    WEFT_WEBGPU_FUNCTIONS(WEFT_RESOLVE) WEFT_WEBGPU_OPTIONAL(WEFT_RESOLVE)
#undef WEFT_RESOLVE
#define WEFT_REQUIRE(name, ...) \
  if (!api.name) fail(ErrorKind::unsupported, "[webgpu] {} has no wgpu" #name "; {}", file.string(), kAdvice);
        WEFT_WEBGPU_FUNCTIONS(WEFT_REQUIRE)
#undef WEFT_REQUIRE
}

abi::Instance create_wgpu_instance(const abi::Api& api) {
  // Flags of class C: the library's defaults, what WGPU_* variables ask for, and drivers that are not fully
  // conformant (Mesa's Dozen on WSL2 is one). Class A has no such switch: 0 are its defaults.
  constexpr uint64_t kDefault = 1u << 24, kWithEnvironment = 1u << 27, kAllowNoncompliant = 1u << 3;
  abi::WgpuInstanceExtras extras{};
  extras.chain.type = api.abi == abi::Class::c ? 0x30004 : 0x30006;
  extras.backends = abi::kWgpuBackendsNative;
  extras.flags = api.abi == abi::Class::c ? kDefault | kWithEnvironment | kAllowNoncompliant : 0;
  const abi::InstanceDescriptor descriptor{
      .next = &extras.chain, .feature_count = 0, .features = nullptr, .limits = nullptr};
  return api.CreateInstance(&descriptor);
}

/// `timed` asks for waits with a time limit; a library that cannot refuses to make the instance.
abi::Instance create_dawn_instance(const abi::Api& api, bool timed) {
  constexpr uint32_t kTimedWaitAny = 1;
  const char* const enabled[] = {"allow_unsafe_apis"};
  abi::DawnToggles toggles{};
  toggles.chain.type = abi::kSTypeDawnToggles;
  toggles.enabled_count = std::size(enabled);
  toggles.enabled = enabled;
  const abi::Chained* next = api.implementation == abi::Implementation::dawn ? &toggles.chain : nullptr;
  if (api.abi == abi::Class::b) {
    const abi::InstanceDescriptorAB descriptor{
        .next = next, .features_next = nullptr, .timed_wait = timed, .timed_wait_max = timed ? 64u : 0u};
    return api.CreateInstance(&descriptor);
  }
  const abi::InstanceDescriptor descriptor{
      .next = next, .feature_count = timed ? 1u : 0u, .features = &kTimedWaitAny, .limits = nullptr};
  return api.CreateInstance(&descriptor);
}

std::atomic<bool> opened = false, exiting = false;

}  // namespace

bool Library::any_opened() {
  return opened;
}
bool Library::process_exiting() {
  return exiting;
}

Library::State::~State() {
  if (instance && !exiting) api.InstanceRelease(instance);
}

Library Library::open(const fs::path& file) {
  // Drivers take themselves down at exit, in an order of their own: a call after that would crash.
  if (!opened.exchange(true)) std::atexit([] { exiting = true; });
  const Symbols symbols(file);
  auto state = std::make_shared<State>();
  static_cast<abi::AbiTraits&>(state->api) = classify(symbols);
  state->path = file;
  state->implementation = implementation_name(state->api.implementation);
  if (!symbols.has("wgpuCreateInstance"))
    fail(ErrorKind::unsupported, "[webgpu] {} is not a WebGPU library: it has no wgpuCreateInstance",
         file.string());
  if (state->api.abi == abi::Class::legacy) {
    state->api.GetVersion = reinterpret_cast<uint32_t (*)()>(symbols.find("wgpuGetVersion"));
    const std::string version = version_of(state->api);
    fail(ErrorKind::unsupported, "[webgpu] {} is {}{}{} and speaks the WebGPU API of 2024; {}", file.string(),
         state->implementation, version.empty() ? "" : " ", version, kAdvice);
  }
  resolve(symbols, file, state->api);
  state->version = version_of(state->api);

  if (state->api.is_wgpu()) {
    state->instance = create_wgpu_instance(state->api);
  } else {
    state->instance = create_dawn_instance(state->api, true);
    state->api.timed_wait = state->instance && state->api.InstanceWaitAny;
    if (!state->instance) state->instance = create_dawn_instance(state->api, false);
  }
  if (!state->instance)
    fail(ErrorKind::unsupported, "[webgpu] {} could not create an instance", file.string());
  log(LogLevel::debug, "loaded {}: {} {}, class {}", file.string(), state->implementation, state->version,
      Library(state).abi_class());
  return Library(std::move(state));
}

const fs::path& Library::path() const {
  return state_->path;
}
const std::string& Library::implementation() const {
  return state_->implementation;
}
const std::string& Library::version() const {
  return state_->version;
}
char Library::abi_class() const {
  return "ABCL"[static_cast<int>(state_->api.abi)];
}

}  // namespace weft::gpu
