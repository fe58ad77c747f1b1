#include <cstdlib>

// A driver that aborts when it is loaded.
[[gnu::constructor]] static void on_load() {
  std::abort();
}

extern "C" void wgpuCreateInstance() {}
