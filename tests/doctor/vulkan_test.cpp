#include <doctest/doctest.h>

#include "fake_machine.h"

using namespace weft::doctor;
using namespace weft::doctor::test;

TEST_SUITE("doctor") {
  TEST_CASE("a healthy machine has no finding and passes") {
    FakeMachine m;
    make_healthy(m);
    const std::vector<Finding> findings = m.findings();
    for (const Finding& f : findings) FAIL_CHECK(f.id << ": " << f.detail);
    const auto output = m.doctor();
    CHECK(output.exit_code == 0);
    CHECK(output.last_line() == "[RESULT] PASS");
    CHECK(has(output.text, "AMD Radeon RX 7900 XTX (RADV NAVI31) (discrete GPU) via Vulkan"));
  }

  TEST_CASE("every row of the table has a check, and ids are unique") {
    std::vector<bool> rows(19, false);
    std::vector<std::string> ids;
    for (const Check& check : all_checks()) {
      rows[static_cast<size_t>(check.row)] = true;
      for (const std::string& id : ids) CHECK(id != check.id);
      ids.emplace_back(check.id);
    }
    for (size_t row = 1; row <= 18; ++row) CHECK_MESSAGE(rows[row], "row " << row);
  }

  TEST_CASE("row 1: no Vulkan loader; the command is the distribution's") {
    FakeMachine m;
    make_healthy(m);
    m.remove("/usr/lib/x86_64-linux-gnu/libvulkan.so.1");
    const Finding f = m.must_find("vulkan-loader");
    CHECK(f.severity == Severity::error);
    CHECK(f.fix == "sudo apt install libvulkan1");
    CHECK(has(f.detail, "libvulkan.so.1"));

    const auto fix_on = [&](const char* id) {
      m.os(id, "some release");
      return m.must_find("vulkan-loader").fix;
    };
    CHECK(fix_on("fedora") == "sudo dnf install vulkan-loader");
    CHECK(fix_on("arch") == "sudo pacman -S vulkan-icd-loader");
    CHECK(fix_on("opensuse-tumbleweed") == "sudo zypper install libvulkan1");
    CHECK(fix_on("alpine") == "sudo apk add vulkan-loader");
    CHECK(has(fix_on("plan9"), "Fedora vulkan-loader, Arch vulkan-icd-loader"));
    m.system.uid = 0;
    CHECK(fix_on("debian") == "apt install libvulkan1");
  }

  TEST_CASE("row 2: no driver at all") {
    FakeMachine m;
    make_healthy(m);
    m.remove("/usr/share/vulkan");
    m.vulkan("create -9\nstderr ERROR | DRIVER: vkCreateInstance: Found no drivers!\n");
    const Finding f = m.must_find("vulkan-driver");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "/usr/share/vulkan/icd.d"));
    CHECK(has(f.detail, "/home/ada/.local/share/vulkan/icd.d"));
    CHECK(has(f.detail, "-9"));
    CHECK(has(f.detail, "Found no drivers!"));
    CHECK(has(f.fix, "sudo apt install mesa-vulkan-drivers"));
    CHECK(has(f.fix, "vendor"));
  }

  TEST_CASE("row 2: drivers are installed, none finds hardware") {
    FakeMachine m;
    make_healthy(m);
    m.vulkan("create -9\n");
    const Finding f = m.must_find("vulkan-driver");
    CHECK(has(f.detail, "radeon_icd.x86_64.json"));
    CHECK(has(f.detail, "no driver finds its hardware"));
  }

  TEST_CASE("row 3: VK_DRIVER_FILES names a missing file") {
    FakeMachine m;
    make_healthy(m);
    m.system.environment["VK_DRIVER_FILES"] = "/opt/gone_icd.json";
    m.system.environment["VK_ICD_FILENAMES"] = "/usr/share/vulkan/icd.d/radeon_icd.x86_64.json";
    m.vulkan("create -9\nstderr ERROR: loader_get_json: Failed to open JSON file /opt/gone_icd.json\n");
    const Finding f = m.must_find("driver-override");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "VK_DRIVER_FILES points to /opt/gone_icd.json, which does not exist"));
    CHECK(has(f.detail, "VK_ICD_FILENAMES (VK_DRIVER_FILES wins over it)"));
    CHECK(has(f.fix, "unset VK_DRIVER_FILES"));
    CHECK(has(f.fix, "VK_ADD_DRIVER_FILES adds"));
    CHECK(has(f.fix, "/usr/share/vulkan/icd.d/radeon_icd.x86_64.json"));
    CHECK_FALSE(m.finding("vulkan-driver"));  // one cause, one finding
  }

  TEST_CASE("row 3: bad JSON, no library, wrong name, empty folder; a good entry makes it a warning") {
    FakeMachine m;
    make_healthy(m);
    m.file("/opt/bad.json", "{ICD");
    m.file("/opt/nolib.json", R"({"ICD": {"library_path": "libvulkan_gone.so"}})");
    m.file("/opt/empty.json", R"({"layer": {}})");
    m.file("/opt/driver.txt", "{}");
    m.file("/opt/folder/README", "");
    m.file("/opt/deep.json", R"({"ICD": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}");
    m.system.environment["VK_ICD_FILENAMES"] =
        "/opt/bad.json:/opt/nolib.json:/opt/empty.json:/opt/driver.txt:/opt/folder:/opt/deep.json";
    Finding f = m.must_find("driver-override");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "/opt/bad.json, which is not valid JSON"));
    CHECK(has(f.detail, "libvulkan_gone.so"));
    CHECK(has(f.detail, "/opt/empty.json, which names no driver"));
    CHECK(has(f.detail, "/opt/deep.json, which names no driver"));
    CHECK(has(f.detail, "/opt/driver.txt, which does not end in .json"));
    CHECK(has(f.detail, "/opt/folder, which is a folder without manifests"));

    m.system.environment["VK_ICD_FILENAMES"] += ":/usr/share/vulkan/icd.d";  // folders are allowed
    f = m.must_find("driver-override");
    CHECK(f.severity == Severity::warning);

    m.system.environment["VK_ICD_FILENAMES"] = "/usr/share/vulkan/icd.d";
    CHECK_FALSE(m.finding("driver-override"));
    m.system.environment.erase("VK_ICD_FILENAMES");
    m.system.environment["VK_ADD_DRIVER_FILES"] = "/opt/bad.json";
    f = m.must_find("driver-override");
    CHECK(f.severity == Severity::warning);  // it only adds
    CHECK(has(f.fix, "unset VK_ADD_DRIVER_FILES"));
  }

  TEST_CASE("row 3: a setuid process ignores the variables") {
    FakeMachine m;
    make_healthy(m);
    m.system.environment["VK_DRIVER_FILES"] = "/opt/gone_icd.json";
    m.system.elevated = true;
    CHECK_FALSE(m.finding("driver-override"));
    const Facts facts = m.facts();
    REQUIRE(facts.search.ignored_variables.size() == 1);
    CHECK(has(facts.search.ignored_variables[0], "setuid"));
    CHECK(facts.search.manifests.size() == 1);
  }

  TEST_CASE("manifests are searched where and in the order the loader does it") {
    FakeMachine m;
    const std::string text = R"({"ICD": {"library_path": "libx.so"}})";
    for (const char* base : {"/home/ada/.config", "/etc/xdg", "/usr/local/etc", "/etc",
                             "/home/ada/.local/share", "/usr/local/share", "/usr/share"})
      m.file(std::string(base) + "/vulkan/icd.d/a.json", text);
    m.file("/usr/share/vulkan/icd.d/readme.txt", "");
    const auto paths = [&] {
      std::vector<std::string> list;
      for (const Manifest& manifest : find_manifests(m.system).manifests) list.push_back(manifest.path);
      return join(list, " ");
    };
    CHECK(paths() ==
          "/home/ada/.config/vulkan/icd.d/a.json /etc/xdg/vulkan/icd.d/a.json "
          "/usr/local/etc/vulkan/icd.d/a.json "
          "/etc/vulkan/icd.d/a.json /home/ada/.local/share/vulkan/icd.d/a.json "
          "/usr/local/share/vulkan/icd.d/a.json "
          "/usr/share/vulkan/icd.d/a.json");
    m.file("/data/vulkan/icd.d/b.json", text);
    m.file("/more/vulkan/icd.d/c.json", text);
    m.system.environment["XDG_DATA_DIRS"] = "/data/:/more";
    m.system.environment["XDG_DATA_HOME"] = "/none";
    m.system.environment["XDG_CONFIG_HOME"] = "/none";
    m.system.environment["XDG_CONFIG_DIRS"] = "/none";
    CHECK(paths() ==
          "/usr/local/etc/vulkan/icd.d/a.json /etc/vulkan/icd.d/a.json /data/vulkan/icd.d/b.json "
          "/more/vulkan/icd.d/c.json");
    m.system.elevated = true;
    CHECK(paths() ==
          "/etc/xdg/vulkan/icd.d/a.json /usr/local/etc/vulkan/icd.d/a.json /etc/vulkan/icd.d/a.json "
          "/usr/local/share/vulkan/icd.d/a.json /usr/share/vulkan/icd.d/a.json");
  }

  TEST_CASE("a relative library_path starts at the manifest's folder; a 32-bit manifest is skipped") {
    FakeMachine m;
    make_healthy(m);
    m.file("/etc/vulkan/icd.d/rel.json", R"({"ICD": {"library_path": "../lib/libdrv.so"}})");
    m.library("/etc/vulkan/lib/libdrv.so", "stub_icd");
    m.file("/etc/vulkan/icd.d/radeon_icd.i686.json",
           R"({"ICD": {"library_path": "/x/lib.so", "library_arch": "32"}})");
    const Facts facts = m.facts();
    REQUIRE(facts.manifest("rel.json"));
    CHECK(facts.manifest("rel.json")->library == "/etc/vulkan/lib/libdrv.so");
    CHECK(facts.manifest("rel.json")->usable());
    CHECK(facts.manifest("i686")->foreign);
    CHECK(m.findings().empty());
  }

  TEST_CASE("a driver that does not load, or crashes at loading, is a finding and nothing more") {
    FakeMachine m;
    make_healthy(m);
    m.driver("intel_icd.x86_64.json", "libvulkan_intel.so", "stub_needs_absent");
    m.driver("crash_icd.json", "libvulkan_crash.so", "stub_icd_crash");
    const Finding f = m.must_find("driver-library");
    CHECK(f.severity == Severity::info);  // another driver works
    CHECK(has(f.detail, "intel_icd.x86_64.json"));
    CHECK(has(f.detail, "signal 11"));
    CHECK(has(f.fix, "libweft_absent.so"));
  }

  TEST_CASE("Vulkan that crashes or hangs is a finding") {
    FakeMachine m;
    make_healthy(m);
    m.vulkan("crash\n");
    Finding f = m.must_find("vulkan-crash");
    CHECK(f.severity == Severity::error);
    CHECK(has(f.detail, "signal 11"));
    CHECK(has(f.fix, "VK_DRIVER_FILES=/usr/share/vulkan/icd.d/radeon_icd.x86_64.json weft doctor"));

    Facts facts = m.facts();
    m.vulkan("hang\n");
    System quick = m.system;
    quick.deadline = std::chrono::milliseconds(500);
    facts.vulkan = probe_vulkan(quick);
    f = check_vulkan_crash(m.system, facts).value();
    CHECK(f.title == "Vulkan does not answer");
    CHECK(has(f.detail, "no answer within"));
  }
}
