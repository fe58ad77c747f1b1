#include "fake_machine.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/paths.h"

namespace weft::doctor::test {
namespace fs = std::filesystem;

const char* const kLlvmpipe =
    "device llvmpipe (LLVM 15.0.7, 256 bits)|4|13|llvmpipe|Mesa 25.0.7 (LLVM 15.0.7)|1|0x10005\n";

FakeMachine::FakeMachine() {
  std::string pattern = (fs::temp_directory_path() / "weft-machine-XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  root_ = pattern;
  system.root = root_;
  system.arch = "x86_64";
  system.uid = 54321;  // not the owner of the files, whoever runs the tests
  system.gids = {54321};
  system.environment = {{"HOME", "/home/ada"}, {"USER", "ada"}};
  system.deadline = std::chrono::seconds(20);
  file("/etc/passwd", "root:x:0:0::/root:/bin/sh\nada:x:54321:54321::/home/ada:/bin/sh\n");
  file("/etc/group", "root:x:9999990:\nada:x:54321:\n");
}

FakeMachine::~FakeMachine() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

void FakeMachine::file(const std::string& path, const std::string& text) {
  write_text(system.at(path), text);
}

void FakeMachine::node(const std::string& path, unsigned mode) {
  file(path);
  REQUIRE(chmod(system.at(path).c_str(), mode) == 0);
}

void FakeMachine::link(const std::string& path, const std::string& target) {
  fs::create_directories(system.at(path).parent_path());
  fs::remove(system.at(path));
  fs::create_symlink(target, system.at(path));
}

void FakeMachine::remove(const std::string& path) {
  REQUIRE(fs::remove_all(system.at(path)) > 0);
}

std::string FakeMachine::text(const std::string& path) const {
  return system.read(path).value_or("");
}

void FakeMachine::os(const std::string& id, const std::string& name, const std::string& kernel) {
  file("/etc/os-release", fmt::format("PRETTY_NAME=\"{}\"\nID={}\n", name, id));
  file("/proc/sys/kernel/osrelease", kernel + "\n");
}

void FakeMachine::pci(const std::string& slot, const std::string& vendor, const std::string& device,
                      const std::string& pci_class) {
  const std::string folder = "/sys/bus/pci/devices/" + slot;
  file(folder + "/class", pci_class + "\n");
  file(folder + "/vendor", vendor + "\n");
  file(folder + "/device", device + "\n");
}

void FakeMachine::render_node(const std::string& driver, unsigned mode) {
  node("/dev/dri/renderD128", mode);
  link("/sys/class/drm/renderD128/device/driver", "../../../../bus/pci/drivers/" + driver);
  file("/etc/group",
       fmt::format("root:x:9999990:\nvideo:x:9999944:\nrender:x:{}:\nada:x:54321:\n", getgid()));
}

void FakeMachine::library(const std::string& name, const std::string& stub) {
  const fs::path target =
      system.at(name.front() == '/' ? name : "/usr/lib/" + system.arch + "-linux-gnu/" + name);
  fs::create_directories(target.parent_path());
  fs::remove(target);
  fs::create_symlink(fs::path(WEFT_STUB_DIR) / ("lib" + stub + ".so"), target);
  REQUIRE(fs::exists(target));
}

void FakeMachine::vulkan(const std::string& script) {
  library("libvulkan.so.1", "stub_vulkan");
  file("/stub_vulkan.txt", script);
  system.environment["STUB_VULKAN"] = system.at("/stub_vulkan.txt").string();
}

void FakeMachine::driver(const std::string& manifest, const std::string& library_name,
                         const std::string& stub) {
  file("/usr/share/vulkan/icd.d/" + manifest,
       fmt::format(
           R"({{"file_format_version": "1.0.0", "ICD": {{"library_path": "{}", "api_version": "1.3.255"}}}})",
           library_name));
  if (!stub.empty()) library(library_name, stub);
}

Facts FakeMachine::facts() const {
  return gather(system, [this](const System&) { return libraries; });
}

std::vector<Finding> FakeMachine::findings() const {
  return run_checks(system, facts());
}

std::optional<Finding> FakeMachine::finding(const std::string& id) const {
  for (Finding& f : findings())
    if (f.id == id) return f;
  return std::nullopt;
}

Finding FakeMachine::must_find(const std::string& id) const {
  const std::optional<Finding> found = finding(id);
  REQUIRE_MESSAGE(found.has_value(), "no finding " << id);
  return found.value_or(Finding{});
}

FakeMachine::Output FakeMachine::doctor(bool json, bool fix, bool test,
                                        const std::vector<SelfTest>& tests) const {
  std::ostringstream out;
  Options options;
  options.json = json;
  options.fix = fix;
  options.test = test;
  options.system = system;
  options.out = &out;
  options.probe = [this](const System&) { return libraries; };
  options.self_tests = [&](const auto&) { return tests; };
  const int code = run(options);
  return {code, out.str()};
}

std::string FakeMachine::Output::last_line() const {
  const std::vector<std::string> lines = split(text, '\n');
  return lines.empty() ? "" : lines.back();
}

gpu::AdapterReport adapter(const std::string& name, gpu::AdapterType type, const std::string& backend) {
  gpu::AdapterReport a;
  a.name = name;
  a.type = type;
  a.backend = backend;
  return a;
}

gpu::LibraryReport wgpu(const std::vector<gpu::AdapterReport>& adapters, const std::string& version,
                        const std::string& abi) {
  gpu::LibraryReport l;
  l.path = "/opt/weft/libwgpu_native.so";
  l.implementation = "wgpu-native";
  l.version = version;
  l.abi = abi;
  l.adapters = adapters;
  return l;
}

bool has(const std::string& text, const std::string& part) {
  return contains(text, part);
}

void make_healthy(FakeMachine& m) {
  m.os("ubuntu", "Ubuntu 24.04.1 LTS");
  m.pci("0000:03:00.0", "0x1002", "0x744c");
  m.render_node("amdgpu");
  m.driver("radeon_icd.x86_64.json", "libvulkan_radeon.so");
  m.vulkan("device AMD Radeon RX 7900 XTX (RADV NAVI31)|2|3|radv|Mesa 24.2.8|1|0x1002\n");
  m.library("libOpenCL.so.1", "stub_opencl");
  m.system.environment["STUB_OPENCL"] = "one";
  m.file("/etc/OpenCL/vendors/rusticl.icd", "libRusticlOpenCL.so.1\n");
  m.libraries = {wgpu({adapter("AMD Radeon RX 7900 XTX (RADV NAVI31)", gpu::AdapterType::discrete)})};
}

}  // namespace weft::doctor::test
