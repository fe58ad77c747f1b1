#include <doctest/doctest.h>
#include <sys/stat.h>

#include "doctor/fix.h"
#include "fake_machine.h"

using namespace weft::doctor;
using namespace weft::doctor::test;

namespace {

constexpr const char* kOurs = "/home/ada/.local/share/vulkan/icd.d/weft_nvidia_icd.json";

/// A container whose manifest names the GLX library, which cannot be loaded there.
void make_glx_only(FakeMachine& m, const std::string& glx_stub = "stub_needs_absent") {
  m.os("ubuntu", "Ubuntu 22.04.5 LTS");
  m.file("/.dockerenv");
  m.node("/dev/nvidiactl");
  m.node("/dev/nvidia0");
  m.file("/proc/driver/nvidia/version",
         "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n");
  m.pci("0000:65:00.0", "0x10de", "0x2335", "0x030200");
  m.driver("nvidia_icd.json", "libGLX_nvidia.so.0", glx_stub);
  m.library("libEGL_nvidia.so.0", "stub_icd");
  m.library("libnvidia-glvkspirv.so.535.183.01", "stub_icd");
  m.vulkan("create -9\n");
}

}  // namespace

TEST_SUITE("doctor") {
  TEST_CASE("row 13: the GLX library lacks a dependency, the EGL one works") {
    FakeMachine m;
    make_glx_only(m);
    const Finding f = m.must_find("nvidia-manifest");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "/usr/share/vulkan/icd.d/nvidia_icd.json names libGLX_nvidia.so.0"));
    CHECK(has(f.detail, "libweft_absent.so"));
    CHECK(has(f.detail, "libEGL_nvidia.so.0 works"));
    CHECK(has(f.fix, R"("library_path":"libEGL_nvidia.so.0")"));
    CHECK(has(f.fix, "VK_DRIVER_FILES="));
    CHECK(has(f.fix, "sudo apt install libx11-6 libxext6 libegl1"));
    CHECK(has(f.fix, kOurs));
    CHECK_FALSE(m.finding("driver-library"));  // said once
    CHECK_FALSE(m.finding("nvidia-libraries"));
  }

  TEST_CASE("row 13: the GLX library loads but gives no vkCreateInstance; no manifest; EGL broken too") {
    FakeMachine m;
    make_glx_only(m, "stub_icd_empty");
    Finding f = m.must_find("nvidia-manifest");
    CHECK(has(f.detail, "gives no vkCreateInstance through vk_icdGetInstanceProcAddr"));

    m.remove("/usr/share/vulkan/icd.d/nvidia_icd.json");
    f = m.must_find("nvidia-manifest");
    CHECK(has(f.title, "no Vulkan manifest names it"));
    CHECK(f.repair);

    m.library("libEGL_nvidia.so.0", "stub_needs_absent");
    f = m.must_find("nvidia-manifest");
    CHECK(has(f.fix, "Install what the driver needs"));
    CHECK_FALSE(f.repair);
  }

  TEST_CASE("row 13: a driver that works needs nothing") {
    FakeMachine m;
    make_glx_only(m, "stub_icd");
    m.vulkan("device NVIDIA H200|2|4|NVIDIA|535.183.01|1|0x10de\n");
    CHECK_FALSE(m.finding("nvidia-manifest"));
    CHECK_FALSE(m.finding("nvidia-libraries"));
  }

  TEST_CASE("row 13: --fix writes the manifest once, says so, and leaves others' files alone") {
    FakeMachine m;
    make_glx_only(m);
    auto output = m.doctor(false, true);
    CHECK(has(output.text, std::string("wrote ") + kOurs));
    CHECK(has(m.text(kOurs), "libEGL_nvidia.so.0"));
    CHECK(has(m.text(kOurs), "1.3.255"));  // the version of the manifest that did not work
    CHECK_FALSE(has(output.text, "[nvidia-manifest]\n       /usr"));
    const Facts facts = m.facts();
    REQUIRE(facts.manifest("weft_nvidia_icd.json"));
    CHECK(facts.manifest("weft_nvidia_icd.json")->usable());

    const std::string before = m.text(kOurs);
    output = m.doctor(false, true);
    CHECK(m.text(kOurs) == before);
    CHECK(has(output.text, "nothing that can be repaired safely"));
    const Repair again = write_nvidia_manifest(m.system, "1.3.255");
    CHECK_FALSE(again.changed);
    CHECK(has(again.message, "already written"));

    m.file(kOurs, R"({"ICD": {"library_path": "mine.so"}})");
    const Repair foreign = write_nvidia_manifest(m.system, "");
    CHECK_FALSE(foreign.changed);
    CHECK(has(foreign.message, "weft did not write it"));
    CHECK(has(m.text(kOurs), "mine.so"));

    m.system.environment["XDG_DATA_HOME"] = "/data";  // where the loader looks then
    CHECK(write_nvidia_manifest(m.system, "").changed);
    CHECK(has(m.text("/data/vulkan/icd.d/weft_nvidia_icd.json"), "1.3.0"));
    m.system.environment.erase("XDG_DATA_HOME");
    m.system.environment.erase("HOME");
    CHECK(has(write_nvidia_manifest(m.system, "").message, "HOME is not set"));
  }

  TEST_CASE("row 13: a file where the folder should be is reported, not thrown") {
    FakeMachine m;
    make_glx_only(m);
    m.file("/home/ada/.local/share", "in the way");
    const auto output = m.doctor(true, true);
    CHECK(has(output.text, "cannot create"));
    CHECK(output.exit_code == 1);
  }

  TEST_CASE("row 14: NVIDIA's graphics libraries are not mounted") {
    FakeMachine m;
    make_glx_only(m);
    m.remove("/usr/lib/x86_64-linux-gnu");
    m.remove("/usr/share/vulkan");
    m.vulkan("create -9\n");
    m.system.environment["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility";
    Finding f = m.must_find("nvidia-libraries");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "libEGL_nvidia.so.0, libGLX_nvidia.so.0, libnvidia-glvkspirv.so.535.183.01"));
    CHECK(has(f.fix, "--runtime=nvidia --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all"));
    CHECK(has(f.fix, "\"compute,utility\""));
    CHECK_FALSE(m.finding("nvidia-manifest"));

    SUBCASE("podman") {
      m.file("/run/.containerenv");
      CHECK(has(m.must_find("nvidia-libraries").fix, "podman run --device nvidia.com/gpu=all"));
    }
    SUBCASE("kubernetes") {
      m.system.environment["KUBERNETES_SERVICE_HOST"] = "10.0.0.1";
      CHECK(has(m.must_find("nvidia-libraries").fix, "runtimeClassName: nvidia"));
    }
    SUBCASE("on the host it is a package") {
      m.remove("/.dockerenv");
      CHECK(has(m.must_find("nvidia-libraries").fix, "sudo apt install libnvidia-gl-535"));
    }
    SUBCASE("only the shader compiler is missing") {
      m.library("libEGL_nvidia.so.0", "stub_icd");
      m.library("libGLX_nvidia.so.0", "stub_icd");
      f = m.must_find("nvidia-libraries");
      CHECK(has(f.detail, "but not libnvidia-glvkspirv.so.535.183.01"));
    }
  }
}
