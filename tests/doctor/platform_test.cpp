#include <doctest/doctest.h>
#include <fmt/format.h>

#include "fake_machine.h"

using namespace weft::doctor;
using namespace weft::doctor::test;

namespace {

void make_wsl(FakeMachine& m) {
  m.os("ubuntu", "Ubuntu 24.04.1 LTS", "5.15.153.1-microsoft-standard-WSL2");
  m.node("/dev/dxg");
  m.file("/usr/lib/wsl/lib/libd3d12.so");
  m.file("/usr/lib/wsl/lib/libdxcore.so");
  m.driver("lvp_icd.x86_64.json", "libvulkan_lvp.so");
  m.vulkan(kLlvmpipe);
  m.libraries = {wgpu({adapter("llvmpipe (LLVM 15.0.7, 256 bits)", weft::gpu::AdapterType::cpu)})};
}

const char* const kDozen =
    "device Microsoft Direct3D12 (NVIDIA GeForce RTX 4070)|2|23|Dozen|Mesa 24.3.1|0|0x10de\n";

void make_dozen(FakeMachine& m) {
  make_wsl(m);
  m.driver("dzn_icd.x86_64.json", "libvulkan_dzn.so");
  m.vulkan(std::string(kDozen) + kLlvmpipe);
}

void make_snapdragon(FakeMachine& m, const std::string& chip = "qcom,x1e80100") {
  m.system.arch = "aarch64";
  m.os("ubuntu", "Ubuntu 24.10", "6.11.0-8-generic");
  m.file("/proc/device-tree/compatible",
         std::string("lenovo,yoga-slim7x\0", 19) + chip + std::string("\0", 1));
  m.render_node("msm_dpu");
  m.node("/dev/kgsl-3d0");
  m.driver("freedreno_icd.aarch64.json", "libvulkan_freedreno.so");
  m.vulkan("device Turnip Adreno (TM) X1-85|1|18|turnip Mesa driver|Mesa 24.2.8|1|0x5143\n");
  m.file("/lib/firmware/qcom/gen70500_sqe.fw.zst");
  m.file("/lib/firmware/qcom/gen70500_gmu.bin.zst");
  m.file("/lib/firmware/qcom/x1e80100/LENOVO/83ED/qcdxkmsuc8380.mbn");
  m.libraries = {wgpu({adapter("Turnip Adreno (TM) X1-85", weft::gpu::AdapterType::integrated)})};
}

}  // namespace

TEST_SUITE("doctor") {
  TEST_CASE("row 6: WSL2 without Dozen") {
    FakeMachine m;
    make_wsl(m);
    const Finding f = m.must_find("wsl-dozen");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "/dev/dri is not expected on WSL2"));
    CHECK(has(f.fix, "ppa:kisak/kisak-mesa"));
    CHECK(has(f.fix, "-Dvulkan-drivers=microsoft-experimental,swrast"));
    CHECK(has(f.fix, "VK_DRIVER_FILES=/usr/share/vulkan/icd.d/dzn_icd.x86_64.json"));
    CHECK(has(f.fix, "LD_LIBRARY_PATH=/usr/lib/wsl/lib"));
    CHECK(has(m.must_find("software-only").fix, "`wsl-dozen`"));
    m.os("debian", "Debian GNU/Linux 12", "5.15.153.1-microsoft-standard-WSL2");
    CHECK(has(m.must_find("wsl-dozen").fix, "Debian's Mesa does not ship Dozen: build"));
    m.os("arch", "Arch", "5.15.153.1-microsoft-standard-WSL2");
    CHECK(has(m.must_find("wsl-dozen").fix, "pacman -S vulkan-dzn"));
    make_dozen(m);
    CHECK_FALSE(m.finding("wsl-dozen"));
  }

  TEST_CASE("row 7: WSL does not hand over the GPU") {
    FakeMachine m;
    make_wsl(m);
    CHECK_FALSE(m.finding("wsl-dxg"));
    m.remove("/usr/lib/wsl/lib/libd3d12.so");
    Finding f = m.must_find("wsl-dxg");
    CHECK(has(f.detail, "libd3d12.so"));
    m.remove("/dev/dxg");
    f = m.must_find("wsl-dxg");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "/dev/dxg"));
    CHECK(has(f.fix, "wsl --update; wsl --shutdown"));
    CHECK(has(f.fix, "Windows GPU driver"));
    m.file("/.dockerenv");
    CHECK(has(m.must_find("wsl-dxg").fix, "--device /dev/dxg -v /usr/lib/wsl:/usr/lib/wsl"));
    m.os("ubuntu", "Ubuntu", "4.4.0-19041-Microsoft");
    CHECK(has(m.must_find("wsl-dxg").fix, "WSL 1"));
    m.os("ubuntu", "Ubuntu", "6.8.0-45-generic");
    CHECK_FALSE(m.finding("wsl-dxg"));
  }

  TEST_CASE("row 8: wgpu-native hides Dozen") {
    FakeMachine m;
    make_dozen(m);
    m.libraries = {wgpu({adapter("llvmpipe", weft::gpu::AdapterType::cpu)}, "27.0.4.0", "A")};
    Finding f = m.must_find("dozen-hidden");
    CHECK(f.severity == Severity::warning);
    CHECK(has(f.detail, "Microsoft Direct3D12 (NVIDIA GeForce RTX 4070)"));
    CHECK(has(f.detail, "27.0.4.0"));
    CHECK(has(f.fix, "wgpu-native 29"));
    CHECK(has(f.fix, "Dawn"));

    weft::gpu::LibraryReport newer =
        wgpu({adapter("Microsoft Direct3D12 (NVIDIA GeForce RTX 4070)", weft::gpu::AdapterType::discrete)});
    m.libraries.push_back(newer);
    CHECK(m.must_find("dozen-hidden").severity == Severity::info);  // another library shows it
    m.libraries = {newer};
    CHECK_FALSE(m.finding("dozen-hidden"));
  }

  TEST_CASE("row 9: Dozen crashes or hangs") {
    FakeMachine m;
    make_dozen(m);
    m.libraries = {wgpu({adapter("Microsoft Direct3D12 (AMD)", weft::gpu::AdapterType::discrete)})};
    CHECK_FALSE(m.finding("dozen-crash"));

    m.libraries[0].adapters[0].error = "[map] no answer within 30 s";
    Finding f = m.must_find("dozen-crash");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "no answer within 30 s"));
    CHECK(has(f.fix, "wsl --shutdown"));
    CHECK(has(f.fix, "WEFT_DEVICE=cpu"));

    m.file("/usr/lib/wsl/lib/libcuda.so.1");
    m.libraries[0].status = weft::gpu::LibraryStatus::crashed;
    m.libraries[0].message = "signal 11 (Segmentation fault)";
    f = m.must_find("dozen-crash");
    CHECK(has(f.detail, "signal 11"));
    CHECK(has(f.fix, "libnvwgf2umx"));
    CHECK_FALSE(m.finding("webgpu-failed"));  // one cause, one finding

    m.libraries.clear();
    m.vulkan("crash\n");
    CHECK(has(m.must_find("dozen-crash").detail, "Vulkan: signal 11"));
    CHECK_FALSE(m.finding("vulkan-crash"));
  }

  TEST_CASE("row 10: Snapdragon X without Turnip, with one too old, with one that refuses the chip") {
    FakeMachine m;
    make_snapdragon(m);
    CHECK_FALSE(m.finding("snapdragon-turnip"));

    m.vulkan("device llvmpipe (LLVM 15)|4|13|llvmpipe|Mesa 23.2.1-1ubuntu3 (LLVM 15.0.7)|1|0x10005\n");
    Finding f = m.must_find("snapdragon-turnip");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "Mesa is 23.2"));
    CHECK(has(f.fix, "Adreno X1-85 needs Mesa >= 24.2 (X2-85: 26.0)"));
    CHECK(has(f.fix, "qcom,x1e"));
    CHECK(has(f.fix, "sudo apt install mesa-vulkan-drivers"));
    CHECK(has(f.fix, "kisak"));

    m.vulkan(kLlvmpipe);  // Mesa 25
    CHECK_FALSE(m.finding("snapdragon-turnip"));
    m.remove("/usr/share/vulkan/icd.d/freedreno_icd.aarch64.json");
    CHECK(has(m.must_find("snapdragon-turnip").detail, "no manifest freedreno_icd"));

    m.driver("freedreno_icd.aarch64.json", "libvulkan_freedreno.so");
    m.vulkan(std::string("stderr TU: error: device (chip_id = FFFF43050C01, gpu_id = 0) is unsupported\n") +
             kLlvmpipe);
    CHECK(has(m.must_find("snapdragon-turnip").detail, "unsupported"));
  }

  TEST_CASE("row 10: the second generation needs a newer Mesa; dpkg knows the version") {
    FakeMachine m;
    make_snapdragon(m, "qcom,glymur");
    m.vulkan("create -9\n");
    m.file("/var/lib/dpkg/status",
           "Package: mesa-vulkan-drivers\nStatus: install ok installed\nVersion: "
           "1:25.2.3-1ubuntu1\n\nPackage: zlib\n");
    const Finding f = m.must_find("snapdragon-turnip");
    CHECK(has(f.detail, "Mesa is 25.2"));
    CHECK(has(f.fix, "Adreno X2-85 needs Mesa >= 26.0"));
  }

  TEST_CASE("row 11: Snapdragon X without GPU firmware") {
    FakeMachine m;
    make_snapdragon(m);
    m.vulkan(kLlvmpipe);
    CHECK_FALSE(m.finding("snapdragon-firmware"));
    m.remove("/lib/firmware/qcom/gen70500_sqe.fw.zst");
    m.remove("/lib/firmware/qcom/x1e80100");
    m.remove("/dev/dri");
    m.file("/var/log/dmesg",
           "[ 2.0] msm: Direct firmware load for qcom/gen70500_sqe.fw failed with error -2\n");
    const Finding f = m.must_find("snapdragon-firmware");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "/lib/firmware/qcom/gen70500_sqe.fw"));
    CHECK_FALSE(has(f.detail, "gen70500_gmu.bin"));
    CHECK(has(f.detail, "qcdxkmsuc8380.mbn"));
    CHECK(has(f.detail, "no /dev/dri/renderD*"));
    CHECK(has(f.detail, "failed with error -2"));
    CHECK(has(f.fix, "sudo apt install linux-firmware"));
    CHECK(has(f.fix, "qcom-firmware-extract"));
    CHECK(has(f.fix, "update-initramfs -u"));
    m.vulkan("device Turnip|1|18|turnip|Mesa 24.2.8|1|0x5143\n");  // it runs: the firmware was somewhere
    CHECK_FALSE(m.finding("snapdragon-firmware"));
  }

  TEST_CASE("row 12: no KGSL is not an error") {
    FakeMachine m;
    make_snapdragon(m);
    CHECK_FALSE(m.finding("kgsl"));
    m.remove("/dev/kgsl-3d0");
    const Finding f = m.must_find("kgsl");
    CHECK(f.severity == Severity::info);
    CHECK(has(f.fix, "Not an error: KGSL is Qualcomm's downstream kernel driver"));
    CHECK(has(f.fix, "Turnip"));
    CHECK(m.doctor().exit_code == 0);
    m.remove("/sys");
    CHECK_FALSE(m.finding("kgsl"));
    m.file("/sys/module/msm/version");
    CHECK(m.finding("kgsl"));
  }

  TEST_CASE("containers are recognised") {
    struct Case {
      const char *file, *text, *variable, *value;
      Container expected;
    };
    const Case cases[] = {
        {"/.dockerenv", "", "", "", Container::docker},
        {"/run/.containerenv", "", "", "", Container::podman},
        {"/proc/1/cgroup", "0::/docker/abc\n", "", "", Container::docker},
        {"/proc/1/cgroup", "0::/machine.slice/libpod-1.scope\n", "", "", Container::podman},
        {"/proc/1/cgroup", "0::/kubepods/x\n", "", "", Container::kubernetes},
        {"/proc/1/cgroup", "0::/lxc/x\n", "", "", Container::other},
        {"/proc/1/cgroup", "0::/init.scope\n", "", "", Container::none},
        {"/x", "", "container", "podman", Container::podman},
        {"/.dockerenv", "", "KUBERNETES_SERVICE_HOST", "10.0.0.1", Container::kubernetes},
    };
    for (const Case& c : cases) {
      FakeMachine m;
      m.file(c.file, c.text);
      if (*c.variable) m.system.environment[c.variable] = c.value;
      CHECK_MESSAGE(find_platform(m.system).container == c.expected, c.file << " " << c.text << c.variable);
    }
  }
}
