#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "doctor/report.h"
#include "fake_machine.h"

using namespace weft::doctor;
using namespace weft::doctor::test;
using weft::gpu::AdapterType;
using weft::gpu::LibraryStatus;

namespace {

SelfTest tested(const std::string& library, const std::string& name, bool passed) {
  return {library, name, {{"matmul", passed ? 1e-5 : 3.0, 1e-3, passed, 812.5, "GFLOP/s"}}, ""};
}

/// Ids of the findings with their severities, in order.
std::string summary(const FakeMachine& m) {
  std::string text;
  for (const Finding& f : m.findings())
    text += (text.empty() ? "" : " ") + f.id + ":" + to_string(f.severity);
  return text;
}

}  // namespace

TEST_SUITE("doctor") {
  TEST_CASE("row 16: no WebGPU library") {
    FakeMachine m;
    make_healthy(m);
    m.libraries.clear();
    Finding f = m.must_find("webgpu-library");
    CHECK(f.severity == Severity::warning);
    CHECK(has(f.fix, "WEFT_WEBGPU_LIB=/path/libwgpu_native.so or libwebgpu_dawn.so"));
    CHECK(m.doctor().exit_code == 1);
    CHECK(m.doctor().last_line() == "[RESULT] PARTIAL only weft's CPU backend works (No WebGPU library)");

    weft::gpu::LibraryReport broken = wgpu({});
    broken.status = LibraryStatus::unloadable;
    broken.message = "invalid ELF header";
    m.libraries = {broken};
    m.system.environment["WEFT_WEBGPU_LIB"] = "/opt/weft/libwgpu_native.so";
    f = m.must_find("webgpu-library");
    CHECK(has(f.detail, "invalid ELF header"));
    CHECK(has(f.detail, "allows only that file"));
  }

  TEST_CASE("row 17: a library of 2024 is refused") {
    FakeMachine m;
    make_healthy(m);
    weft::gpu::LibraryReport old = wgpu({}, "22.1.0.5", "L");
    old.status = LibraryStatus::refused;
    old.message = "interface of 2024";
    m.libraries.push_back(old);
    Finding f = m.must_find("webgpu-class");
    CHECK(f.severity == Severity::warning);  // another one works
    CHECK(has(f.detail, "22.1.0.5"));
    CHECK(has(f.fix, "wgpu-native >= 24 or Dawn >= 2025-04"));
    m.libraries = {old};
    CHECK(m.must_find("webgpu-class").severity == Severity::error);
    CHECK(has(m.doctor().text, "refused: interface of 2024"));
  }

  TEST_CASE("a library that crashes, hangs or lists nothing is a finding") {
    FakeMachine m;
    make_healthy(m);
    m.libraries[0].status = LibraryStatus::crashed;
    m.libraries[0].message = "signal 6 (Aborted)";
    Finding f = m.must_find("webgpu-failed");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "signal 6"));
    make_healthy(m);
    m.libraries[0].adapters.clear();
    CHECK(has(m.must_find("webgpu-failed").detail, "lists no adapter although Vulkan has AMD"));
    make_healthy(m);
    m.libraries[0].adapters[0].error = "device lost";
    CHECK(has(m.must_find("webgpu-failed").detail, "device lost"));
    CHECK(m.doctor().exit_code == 1);
  }

  TEST_CASE("a probe that throws, and a check that throws, become findings") {
    FakeMachine m;
    make_healthy(m);
    const Facts facts = gather(m.system, [](const System&) -> std::vector<weft::gpu::LibraryReport> {
      throw std::runtime_error("the cache is on fire");
    });
    const std::vector<Finding> findings = run_checks(m.system, facts);
    REQUIRE(!findings.empty());
    CHECK(findings[0].id == "probe-failed");
    CHECK(has(findings[0].detail, "the cache is on fire"));

    const CheckFunction thrower = [](const System&, const Facts&) -> std::optional<Finding> {
      throw std::runtime_error("unexpected file");
    };
    const std::vector<Finding> more = run_checks(m.system, m.facts(), {{0, "odd", "An odd check", thrower}});
    REQUIRE(more.size() == 1);
    CHECK(more[0].id == "odd");
    CHECK(has(more[0].detail, "unexpected file"));
  }

  TEST_CASE("with --test a GPU counts only when it computes rightly") {
    FakeMachine m;
    make_healthy(m);
    m.libraries[0].adapters.push_back(adapter("llvmpipe", AdapterType::cpu));
    const std::string library = m.libraries[0].path, gpu = m.libraries[0].adapters[0].name;

    auto output = m.doctor(false, false, true, {tested(library, gpu, true)});
    CHECK(output.last_line() == "[RESULT] PASS");
    CHECK(has(output.text, "matmul"));
    CHECK(has(output.text, "max difference 1.00e-05 (tolerance 1e-03)  812.5 GFLOP/s"));

    output = m.doctor(false, false, true, {tested(library, gpu, false), tested(library, "llvmpipe", true)});
    CHECK(output.exit_code == 1);
    CHECK(output.last_line() == "[RESULT] PARTIAL only a CPU adapter works (llvmpipe via Vulkan)");
    CHECK(has(output.text, "[self-test]"));
    CHECK(has(output.text, "matmul is off by 3.00e+00"));

    output = m.doctor(false, false, true, {tested(library, gpu, false), tested(kCpuBackend, "CPU", true)});
    CHECK(output.exit_code == 1);
    CHECK(has(output.last_line(), "PARTIAL only weft's CPU backend works"));

    output = m.doctor(false, false, true, {tested(library, gpu, false), tested(kCpuBackend, "CPU", false)});
    CHECK(output.exit_code == 2);
    CHECK(has(output.last_line(), "[RESULT] FAIL nothing works"));

    output = m.doctor(false, false, true, {});  // nothing was tested: nothing is proven
    CHECK(output.exit_code == 1);
    SelfTest stopped = tested(library, gpu, true);
    stopped.error = "device lost";
    CHECK(m.doctor(false, false, true, {stopped}).exit_code == 1);
  }

  TEST_CASE("adapters of unknown type are judged by their name") {
    CHECK(is_gpu(adapter("Microsoft Direct3D12 (AMD)", AdapterType::unknown)));
    CHECK_FALSE(is_gpu(adapter("llvmpipe (LLVM 19)", AdapterType::unknown)));
    CHECK_FALSE(is_gpu(adapter("SwiftShader Device", AdapterType::unknown)));
    CHECK_FALSE(is_gpu(adapter("anything", AdapterType::cpu)));
  }

  TEST_CASE("--json is one JSON object, whatever drivers write") {
    FakeMachine m;
    make_healthy(m);
    m.vulkan(std::string("stderr error: XDG_RUNTIME_DIR \xff\xfe\n") + kLlvmpipe);
    m.libraries = {wgpu({adapter("llvmpipe", AdapterType::cpu)})};
    const auto output = m.doctor(true, false, true, {tested(m.libraries[0].path, "llvmpipe", true)});
    const auto json = nlohmann::json::parse(output.text);
    CHECK(json["result"] == "PARTIAL");
    CHECK(json["exit_code"] == 1);
    CHECK(output.exit_code == 1);
    CHECK(json["result_line"] == "[RESULT] PARTIAL only a CPU adapter works (llvmpipe via Vulkan)");
    CHECK(json["system"]["distribution"] == "Ubuntu 24.04.1 LTS");
    CHECK(json["system"]["gpus"][0]["name"] == "AMD GPU 1002:744c");
    CHECK(json["vulkan"]["devices"][0]["driver_id"] == 13);
    CHECK(json["libraries"].size() == 1);
    CHECK(json["self_test"][0]["rows"][0]["op"] == "matmul");
    REQUIRE(json["findings"].size() == 2);
    for (const auto& f : json["findings"])
      for (const char* key : {"id", "severity", "title", "detail", "fix"}) CHECK(f[key].is_string());
  }

  TEST_CASE("colour only when asked for") {
    FakeMachine m;
    make_healthy(m);
    const std::string plain = m.doctor().text;
    for (char c : plain) REQUIRE((c == '\n' || (c >= 32 && c < 127)));
    std::ostringstream out;
    Options options;
    options.colour = true;
    options.system = m.system;
    options.out = &out;
    options.probe = [&](const System&) { return m.libraries; };
    CHECK(run(options) == 0);
    CHECK(has(out.str(), "\x1b[32m✓"));
  }

  TEST_CASE("persona: Snapdragon X laptop without Turnip") {
    FakeMachine m;
    m.system.arch = "aarch64";
    m.os("ubuntu", "Ubuntu 24.04.1 LTS", "6.8.0-45-generic");
    m.file("/proc/device-tree/compatible", std::string("lenovo,yoga-slim7x\0qcom,x1e80100\0", 33));
    m.render_node("msm_dpu", 0666);
    m.file("/lib/firmware/qcom/gen70500_sqe.fw");
    m.file("/lib/firmware/qcom/gen70500_gmu.bin");
    m.file("/lib/firmware/qcom/x1e80100/LENOVO/83ED/qcdxkmsuc8380.mbn");
    m.driver("lvp_icd.aarch64.json", "libvulkan_lvp.so");
    m.vulkan("device llvmpipe (LLVM 17.0.6, 128 bits)|4|13|llvmpipe|Mesa 24.0.9 (LLVM 17.0.6)|1|0x10005\n");
    m.libraries = {wgpu({adapter("llvmpipe (LLVM 17.0.6, 128 bits)", AdapterType::cpu)})};
    CHECK(summary(m) == "software-only:warning snapdragon-turnip:error kgsl:info opencl:info");
    const auto output = m.doctor();
    CHECK(output.exit_code == 1);
    CHECK(has(output.text, "ok Qualcomm Adreno X1-85 at device tree"));
    CHECK(has(output.text, "!! llvmpipe (LLVM 17.0.6, 128 bits) (CPU) via Vulkan"));
    CHECK(has(output.text, "xx No Vulkan driver for the Adreno X1-85 (Turnip)  [snapdragon-turnip]"));
    CHECK(has(output.text, "the finding `snapdragon-turnip`"));
    CHECK(output.last_line() ==
          "[RESULT] PARTIAL only a CPU adapter works (llvmpipe (LLVM 17.0.6, 128 bits) via Vulkan)");
  }

  TEST_CASE("persona: WSL2 without Dozen") {
    FakeMachine m;
    m.os("ubuntu", "Ubuntu 24.04.1 LTS", "5.15.153.1-microsoft-standard-WSL2");
    m.node("/dev/dxg");
    m.file("/usr/lib/wsl/lib/libd3d12.so");
    m.file("/usr/lib/wsl/lib/libdxcore.so");
    m.driver("lvp_icd.x86_64.json", "libvulkan_lvp.so");
    m.vulkan(kLlvmpipe);
    m.libraries = {wgpu({adapter("llvmpipe (LLVM 15.0.7, 256 bits)", AdapterType::cpu)})};
    CHECK(summary(m) == "software-only:warning wsl-dozen:error opencl:info");
    const auto output = m.doctor();
    CHECK(output.exit_code == 1);
    CHECK(has(output.text, "ok WSL 2"));
    CHECK(has(output.text, "ok the GPU of the Windows host at /dev/dxg"));
    CHECK(has(output.text, "ppa:kisak/kisak-mesa"));
    CHECK(has(output.last_line(), "[RESULT] PARTIAL only a CPU adapter works"));
  }

  TEST_CASE("persona: NVIDIA container whose manifest names GLX only") {
    FakeMachine m;
    m.system.uid = 0;
    m.system.environment = {{"HOME", "/root"}};
    m.os("debian", "Debian GNU/Linux 12 (bookworm)");
    m.file("/.dockerenv");
    m.node("/dev/nvidiactl");
    m.node("/dev/nvidia0");
    m.driver("nvidia_icd.json", "libGLX_nvidia.so.0", "stub_needs_absent");
    m.library("libEGL_nvidia.so.0", "stub_icd");
    m.vulkan("create -9\nstderr ERROR: vkCreateInstance: Found no drivers!\n");
    m.libraries = {wgpu({})};
    CHECK(summary(m) == "vulkan-driver:error nvidia-manifest:error opencl:info");
    CHECK(has(m.must_find("vulkan-driver").fix, "`nvidia-manifest`"));
    auto output = m.doctor();
    CHECK(output.exit_code == 1);
    CHECK(has(output.text, "ok container: docker"));
    CHECK(has(output.text, "0 of 1 driver manifests usable"));
    CHECK(has(output.text, "/root/.local/share/vulkan/icd.d/weft_nvidia_icd.json"));
    CHECK(has(output.last_line(), "[RESULT] PARTIAL only weft's CPU backend works ("));
    output = m.doctor(false, true);
    CHECK(has(output.text, "wrote /root/.local/share/vulkan/icd.d/weft_nvidia_icd.json"));
    CHECK(has(output.text, "1 of 2 driver manifests usable"));
  }

  TEST_CASE("persona: plain llvmpipe box") {
    FakeMachine m;
    m.os("debian", "Debian GNU/Linux 12 (bookworm)");
    m.driver("lvp_icd.x86_64.json", "libvulkan_lvp.so");
    m.vulkan(kLlvmpipe);
    m.libraries = {wgpu({adapter("llvmpipe (LLVM 15.0.7, 256 bits)", AdapterType::cpu)})};
    CHECK(summary(m) == "software-only:info opencl:info");
    const auto output = m.doctor();
    CHECK(output.exit_code == 1);
    CHECK(has(output.text, "-- no GPU found"));
    CHECK(has(output.text, "wgpu-native 29.0.1.1, class C  /opt/weft/libwgpu_native.so"));
    CHECK(output.last_line() ==
          "[RESULT] PARTIAL only a CPU adapter works (llvmpipe (LLVM 15.0.7, 256 bits) via Vulkan)");
  }

  TEST_CASE("persona: a machine with nothing at all still has the CPU") {
    FakeMachine m;
    const auto output = m.doctor();
    CHECK(output.exit_code == 1);
    CHECK(has(output.last_line(),
              "[RESULT] PARTIAL only weft's CPU backend works (The Vulkan loader is missing)"));
  }

  TEST_CASE("the machine the tests run on is examined without harm") {
    std::ostringstream out;
    Options options;
    options.out = &out;
    options.json = true;
    options.probe = [](const System&) { return std::vector<weft::gpu::LibraryReport>{}; };
    CHECK(run(options) == 1);  // no library, so no adapter
    const auto json = nlohmann::json::parse(out.str());
    CHECK(!json["system"]["arch"].get<std::string>().empty());
    for (const auto& f : json["findings"]) CHECK(f["id"] != "probe-failed");
  }
}
