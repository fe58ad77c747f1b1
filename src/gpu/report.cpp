#include "gpu/report.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace weft::gpu {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Limits, max_buffer_size, max_binding_size, max_storage_buffers,
                                   max_workgroup_memory, max_workgroup_threads, max_workgroups,
                                   storage_alignment, uniform_alignment, max_immediates)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MatrixConfig, input, output, m, n, k)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Features, f16, subgroups, dot4, unpack_f16, pack_f16, immediates,
                                   timestamps, last_workgroup, lockstep, images, subgroup_min, subgroup_max,
                                   matrices, matrix_feature)
NLOHMANN_JSON_SERIALIZE_ENUM(AdapterType, {{AdapterType::unknown, "unknown"},
                                           {AdapterType::discrete, "discrete"},
                                           {AdapterType::integrated, "integrated"},
                                           {AdapterType::cpu, "cpu"}})
NLOHMANN_JSON_SERIALIZE_ENUM(LibraryStatus, {{LibraryStatus::unloadable, "unloadable"},
                                             {LibraryStatus::usable, "usable"},
                                             {LibraryStatus::refused, "refused"},
                                             {LibraryStatus::crashed, "crashed"},
                                             {LibraryStatus::timed_out, "timed_out"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AdapterReport, name, driver, backend, type, vendor_id, device_id, limits,
                                   features, submit_us, dispatch_us, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LibraryReport, path, status, implementation, abi, version, message,
                                   adapters)

const char* to_string(AdapterType type) {
  switch (type) {
    case AdapterType::discrete:
      return "discrete GPU";
    case AdapterType::integrated:
      return "integrated GPU";
    case AdapterType::cpu:
      return "CPU";
    case AdapterType::unknown:
      break;
  }
  return "unknown";
}

const char* to_string(LibraryStatus status) {
  switch (status) {
    case LibraryStatus::usable:
      return "usable";
    case LibraryStatus::refused:
      return "refused";
    case LibraryStatus::unloadable:
      return "unloadable";
    case LibraryStatus::crashed:
      return "crashed";
    case LibraryStatus::timed_out:
      return "timed out";
  }
  return "unknown";
}

std::string to_json(const LibraryReport& report) {
  // Drivers may put any bytes into their names.
  return json(report).dump(2, ' ', false, json::error_handler_t::replace);
}

LibraryReport library_report_from_json(const std::string& text) {
  try {
    return json::parse(text).get<LibraryReport>();
  } catch (const json::exception& e) {
    fail(ErrorKind::io, "[probe] not a library report: {}", e.what());
  }
}

}  // namespace weft::gpu
