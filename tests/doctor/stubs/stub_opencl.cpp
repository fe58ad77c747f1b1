#include <cstdint>
#include <cstdlib>
#include <cstring>

// STUB_OPENCL: "none" (the default) no platform, "empty" a platform without a device, "one" a device,
// "crash".
namespace {
const char* mode() {
  const char* value = std::getenv("STUB_OPENCL");
  return value ? value : "none";
}
}  // namespace

extern "C" {

int32_t clGetPlatformIDs(uint32_t, void** platforms, uint32_t* count) {
  if (std::strcmp(mode(), "crash") == 0) std::abort();
  if (std::strcmp(mode(), "none") == 0) return -1001;
  *count = 1;
  if (platforms) platforms[0] = nullptr;
  return 0;
}

int32_t clGetDeviceIDs(void*, uint64_t, uint32_t, void**, uint32_t* count) {
  if (std::strcmp(mode(), "one") != 0) return -1;
  *count = 1;
  return 0;
}
}
