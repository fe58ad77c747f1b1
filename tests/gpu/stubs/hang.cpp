#include <unistd.h>

// A driver that never returns.
[[gnu::constructor]] static void on_load() {
  for (;;) pause();
}

extern "C" void wgpuCreateInstance() {}
