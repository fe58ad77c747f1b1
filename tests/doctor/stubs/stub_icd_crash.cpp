#include <csignal>

namespace {
struct CrashOnLoad {
  CrashOnLoad() { std::raise(SIGSEGV); }
} crash;
}  // namespace
