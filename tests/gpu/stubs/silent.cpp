// A shared library that has nothing to do with WebGPU.
extern "C" int answer() {
  return 42;
}
