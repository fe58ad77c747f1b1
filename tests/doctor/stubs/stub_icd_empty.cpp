extern "C" void* vk_icdGetInstanceProcAddr(void*, const char*) {
  return nullptr;
}
