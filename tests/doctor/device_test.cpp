#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include "fake_machine.h"

using namespace weft::doctor;
using namespace weft::doctor::test;

TEST_SUITE("doctor") {
  TEST_CASE("row 4: llvmpipe only, no GPU") {
    FakeMachine m;
    make_healthy(m);
    m.remove("/sys");
    m.remove("/dev");
    m.pci("0000:00:02.0", "0x1a03", "0x2000");  // a server's console chip is no GPU
    m.vulkan(kLlvmpipe);
    const Finding f = m.must_find("software-only");
    CHECK(f.severity == Severity::info);
    CHECK(has(f.title, "no GPU was found"));
    CHECK(has(f.fix, "10-100x slower"));
  }

  TEST_CASE("row 4: llvmpipe only although a GPU is present") {
    FakeMachine m;
    make_healthy(m);
    m.remove("/usr/share/vulkan");
    m.driver("lvp_icd.x86_64.json", "libvulkan_lvp.so");
    m.vulkan(kLlvmpipe);
    Finding f = m.must_find("software-only");
    CHECK(f.severity == Severity::warning);
    CHECK(has(f.detail, "AMD GPU 1002:744c (PCI 0000:03:00.0)"));
    CHECK(has(f.detail, "10-100x slower"));
    CHECK(has(f.fix, "sudo apt install mesa-vulkan-drivers"));

    m.node("/dev/dri/renderD128", 0600);
    CHECK(has(m.must_find("software-only").fix, "`render-permission`"));

    m.remove("/dev/dri");
    CHECK(has(m.must_find("software-only").fix, "sudo modprobe amdgpu"));
    m.file("/.dockerenv");
    CHECK(has(m.must_find("software-only").fix, "docker run --device /dev/dri"));
    m.system.environment["KUBERNETES_SERVICE_HOST"] = "10.0.0.1";
    CHECK(has(m.must_find("software-only").fix, "device plugin"));

    m.remove("/sys/bus");
    m.pci("0000:65:00.0", "0x10de", "0x2335", "0x030200");
    f = m.must_find("software-only");
    CHECK(has(f.detail, "NVIDIA GPU 10de:2335"));
    CHECK(has(f.fix, "--gpus all"));
  }

  TEST_CASE("row 4: the kernel's render nodes and NVIDIA's control node show a GPU without a PCI bus") {
    FakeMachine m;
    make_healthy(m);
    m.remove("/sys");
    m.vulkan(kLlvmpipe);
    m.render_node("panthor");
    CHECK(has(m.must_find("software-only").detail, "GPU of the panthor driver"));
    m.node("/dev/nvidiactl");
    CHECK(has(m.must_find("software-only").detail, "NVIDIA GPU (/dev/nvidiactl)"));
  }

  TEST_CASE("row 5: the render node may not be opened") {
    FakeMachine m;
    make_healthy(m);
    m.vulkan(kLlvmpipe);
    m.node("/dev/dri/renderD128", 0660);
    const Finding f = m.must_find("render-permission");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.title, "ada"));
    CHECK(has(f.detail, "/dev/dri/renderD128 (group render, mode 0660): Permission denied"));
    CHECK(f.fix == "sudo usermod -aG render,video ada, then log out and in (or newgrp render).");
    CHECK(has(m.doctor().text, "xx /dev/dri/renderD128 (amdgpu): Permission denied"));

    SUBCASE("a member of the group may") {
      m.system.gids.push_back(getgid());
      CHECK_FALSE(m.finding("render-permission"));
    }
    SUBCASE("root may") {
      m.system.uid = 0;
      CHECK_FALSE(m.finding("render-permission"));
    }
    SUBCASE("the owner may") {
      m.node("/dev/dri/renderD128", 0600);
      m.system.uid = getuid();
      CHECK_FALSE(m.finding("render-permission"));
    }
    SUBCASE("docker") {
      m.file("/.dockerenv");
      CHECK(has(m.must_find("render-permission").fix,
                fmt::format("docker run --device /dev/dri --group-add {}", getgid())));
    }
    SUBCASE("podman") {
      m.file("/run/.containerenv");
      CHECK(has(m.must_find("render-permission").fix, "podman run --device /dev/dri --group-add"));
      CHECK(has(m.must_find("render-permission").fix, "keep-groups"));
    }
    SUBCASE("kubernetes, known by its cgroup") {
      m.file("/proc/1/cgroup", "0::/kubepods/burstable/pod1\n");
      CHECK(has(m.must_find("render-permission").fix, fmt::format("supplementalGroups: [{}]", getgid())));
    }
    SUBCASE("with another GPU at work it is a warning") {
      m.vulkan("device AMD Radeon|2|3|radv|Mesa 24.2.8|1|0x1002\n");
      CHECK(m.must_find("render-permission").severity == Severity::warning);
    }
  }

  TEST_CASE("row 15: OpenCL is optional, and Rusticl needs its variable") {
    FakeMachine m;
    make_healthy(m);
    m.system.environment["STUB_OPENCL"] = "none";
    Finding f = m.must_find("opencl");
    CHECK(f.severity == Severity::info);
    CHECK(has(f.detail, "-1001"));
    CHECK(has(f.detail, "rusticl.icd"));
    CHECK(has(f.fix, "Optional"));
    CHECK(has(f.fix, "sudo apt install ocl-icd-libopencl1 mesa-opencl-icd"));
    CHECK(has(f.fix, "RUSTICL_ENABLE=radeonsi"));

    m.system.environment["STUB_OPENCL"] = "empty";
    CHECK(has(m.must_find("opencl").detail, "1 platform(s) without a device"));
    m.system.environment["STUB_OPENCL"] = "crash";
    CHECK(has(m.must_find("opencl").detail, "signal 6"));
    m.remove("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1");
    CHECK(has(m.must_find("opencl").detail, "libOpenCL.so.1 cannot be loaded"));
  }

  TEST_CASE("row 18: messages that look worse than they are") {
    FakeMachine m;
    make_healthy(m);
    m.vulkan(
        "stderr error: XDG_RUNTIME_DIR is invalid or not set in the environment.\n"
        "stderr WARNING: dzn is not a conformant Vulkan implementation, testing use only.\n"
        "stderr error: something else\n"
        "device AMD Radeon|2|3|radv|Mesa 24.2.8|1|0x1002\n");
    const Finding f = m.must_find("harmless-messages");
    CHECK(f.severity == Severity::info);
    CHECK(has(f.detail, "XDG_RUNTIME_DIR is invalid"));
    CHECK(has(f.detail, "is not a conformant"));
    CHECK_FALSE(has(f.detail, "something else"));
    CHECK(f.fix == "Nothing to do.");
  }
}
