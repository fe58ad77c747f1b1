#include <cstdint>

// The three entry points of a Vulkan driver, as far as the loader asks before the first instance.
extern "C" {

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t* version) {
  if (*version > 5) *version = 5;
  return 0;
}

int create_instance_stub() {
  return -3;
}

void* vk_icdGetInstanceProcAddr(void*, const char*) {
  return reinterpret_cast<void*>(create_instance_stub);
}
}
