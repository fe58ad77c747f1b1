#include <cstring>
#include <nlohmann/json.hpp>

#include "doctor/report.h"

/// The report for programs. Keys are an interface: add, do not rename.
namespace weft::doctor {
namespace {

using json = nlohmann::ordered_json;

json system_json(const Report& r) {
  const Platform& p = r.facts.platform;
  json gpus = json::array(), nodes = json::array();
  for (const Gpu& gpu : r.facts.gpus) gpus.push_back({{"name", gpu.name}, {"where", gpu.where}});
  for (const DeviceNode& n : r.facts.nodes)
    nodes.push_back({{"path", n.path},
                     {"driver", n.driver},
                     {"uid", n.node.uid},
                     {"gid", n.node.gid},
                     {"mode", n.node.mode},
                     {"error", n.error ? std::strerror(n.error) : ""}});
  return {{"distribution", p.distribution},
          {"package_manager", p.package_manager},
          {"arch", r.system.arch},
          {"kernel", p.kernel},
          {"container", to_string(p.container)},
          {"wsl", p.wsl == Wsl::two   ? 2
                  : p.wsl == Wsl::one ? 1
                                      : 0},
          {"gpus", gpus},
          {"nodes", nodes}};
}

json vulkan_json(const Facts& f) {
  json manifests = json::array(), devices = json::array();
  for (const Manifest& m : f.search.manifests)
    manifests.push_back({{"path", m.path},
                         {"origin", m.origin},
                         {"library", m.library},
                         {"usable", m.usable()},
                         {"error", m.file_error.empty() ? m.driver_error : m.file_error}});
  for (const VulkanDevice& d : f.vulkan.devices)
    devices.push_back({{"name", d.name},
                       {"type", device_type_name(d.type)},
                       {"driver_id", static_cast<uint32_t>(d.driver)},
                       {"driver_name", d.driver_name},
                       {"driver_info", d.driver_info},
                       {"vendor_id", d.vendor_id},
                       {"device_id", d.device_id},
                       {"api_version", version_text(d.api_version)},
                       {"conformance", d.conformance}});
  return {{"loader_found", f.vulkan.loader_found},
          {"create_rc", f.vulkan.create_rc},
          {"failure", f.vulkan.failure},
          {"messages", f.vulkan.errors},
          {"manifests", manifests},
          {"devices", devices}};
}

json self_test_json(const SelfTest& test) {
  json rows = json::array();
  for (const SelfTestRow& row : test.rows)
    rows.push_back({{"op", row.op},
                    {"max_difference", row.max_difference},
                    {"tolerance", row.tolerance},
                    {"passed", row.passed},
                    {"value", row.value},
                    {"unit", row.unit}});
  return {{"library", test.library},
          {"adapter", test.adapter},
          {"passed", test.passed()},
          {"error", test.error},
          {"rows", rows}};
}

}  // namespace

void print_json(const Report& r, std::ostream& out) {
  json root = {
      {"result", r.verdict.word},  {"result_line", r.verdict.line()}, {"exit_code", r.verdict.exit_code},
      {"system", system_json(r)},  {"vulkan", vulkan_json(r.facts)},  {"libraries", json::array()},
      {"findings", json::array()}, {"self_test", json::array()},      {"repairs", json::array()}};
  for (const gpu::LibraryReport& library : r.facts.libraries)
    root["libraries"].push_back(json::parse(gpu::to_json(library)));
  for (const Finding& f : r.findings)
    root["findings"].push_back({{"id", f.id},
                                {"severity", to_string(f.severity)},
                                {"title", f.title},
                                {"detail", f.detail},
                                {"fix", f.fix}});
  for (const SelfTest& test : r.self_tests) root["self_test"].push_back(self_test_json(test));
  for (const RepairReport& repair : r.repairs)
    root["repairs"].push_back(
        {{"id", repair.id}, {"changed", repair.repair.changed}, {"message", repair.repair.message}});
  // Drivers' words are not always UTF-8.
  out << root.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
}

}  // namespace weft::doctor
