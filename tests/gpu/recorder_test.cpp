#include "gpu/recorder.h"

#include <doctest/doctest.h>

#include <cstring>

#include "support/gpus.h"

using namespace weft;
using test::error_of;

namespace {

constexpr std::string_view kAddOne = R"(
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) { sums[id.x] = source[id.x] + 1u; }
)";

constexpr std::string_view kAddParam = R"(
@group(0) @binding(0) var<storage, read_write> to: array<u32>;
struct Params { add: u32, }
@compute @workgroup_size(1) fn main() { to[0] = to[0] * 3u + params.add; }
)";

constexpr std::string_view kLook = R"(
@group(0) @binding(0) var image: texture_storage_2d<rgba32uint, read>;
@group(0) @binding(1) var<storage, read_write> seen: array<u32>;
struct Params { at: u32, }
@compute @workgroup_size(1) fn main() { seen[0] = textureLoad(image, vec2<u32>(params.at % 4096u, params.at / 4096u)).w; }
)";

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

uint32_t first_word(gpu::Device& device, const gpu::Buffer& buffer) {
  uint32_t word = 0;
  device.read(buffer, 0, std::as_writable_bytes(std::span(&word, 1)));
  return word;
}

void zero(gpu::Device& device, const gpu::Buffer& buffer) {
  device.write(buffer, 0, std::vector<std::byte>(buffer.size()));
}

}  // namespace

TEST_SUITE("gpu recorder") {
  TEST_CASE("a thousand dispatches: one pass, one submit, one bind group per distinct set") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Kernel kernel = device.kernel({.name = "add one", .wgsl = kAddOne});
      const gpu::Buffer a = device.alloc(256, "a"), b = device.alloc(256, "b");
      zero(device, a);
      const gpu::Counters before = device.counters();
      gpu::Recorder recorder(device);
      for (int i = 0; i < 500; ++i) {
        recorder.dispatch(kernel, {a, b}, {});
        recorder.dispatch(kernel, {b, a}, {});
      }
      recorder.submit().wait();
      const gpu::Counters after = device.counters();
      CHECK(after.dispatches - before.dispatches == 1000);
      CHECK(after.submits - before.submits == 1);
      CHECK(after.passes - before.passes == 1);
      CHECK(after.bind_groups - before.bind_groups == 2);
      CHECK(first_word(device, a) == 1000);  // each saw what the one before it wrote

      gpu::Recorder again(device);
      for (int i = 0; i < 1000; ++i) again.dispatch(kernel, {a, b}, {});
      again.submit().wait();
      CHECK(device.counters().bind_groups == after.bind_groups);
      CHECK(device.counters().pipelines == after.pipelines);
    });
  }

  TEST_CASE("params of each dispatch are its own, past the first chunk of the arena too") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      for (bool immediates : {true, false}) {
        test::TestGpu chosen = gpu;
        chosen.features.immediates = gpu.features.immediates && immediates;
        gpu::Device device = chosen.open();
        const gpu::Kernel kernel = device.kernel({.name = "add param", .wgsl = kAddParam});
        const gpu::Buffer out = device.alloc(4, "out");
        zero(device, out);
        gpu::Recorder recorder(device);
        uint32_t want = 0;
        for (uint32_t i = 0; i < 2500; ++i) {
          recorder.dispatch(kernel, {out}, {}, i);
          want = want * 3 + i;
        }
        recorder.submit();
        CHECK(first_word(device, out) == want);
      }
    });
  }

  TEST_CASE("two recorders may be open at once; order is that of the submits") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Kernel kernel = device.kernel({.name = "add param", .wgsl = kAddParam});
      const gpu::Buffer out = device.alloc(4, "out");
      zero(device, out);
      gpu::Recorder first(device), second(device);
      first.dispatch(kernel, {out}, {}, 1u);
      second.dispatch(kernel, {out}, {}, 5u);
      second.submit();
      first.submit();
      CHECK(first_word(device, out) == 16);
    });
  }

  TEST_CASE("a recorder dropped without a submit leaves no trace") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Kernel kernel = device.kernel({.name = "add param", .wgsl = kAddParam});
      const gpu::Buffer out = device.alloc(4, "out");
      zero(device, out);
      gpu::Recorder(device).dispatch(kernel, {out}, {}, 7u);
      CHECK(first_word(device, out) == 0);
    });
  }

  TEST_CASE("readbacks may be many, late, dropped, or never submitted") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Kernel kernel = device.kernel({.name = "add param", .wgsl = kAddParam});
      const gpu::Buffer out = device.alloc(4, "out");
      zero(device, out);
      std::vector<gpu::Readback> readbacks;
      for (uint32_t i = 0; i < 12; ++i) {
        gpu::Recorder recorder(device);
        recorder.dispatch(kernel, {out}, {}, 1u);
        readbacks.push_back(recorder.read(out, 0, 4));
        recorder.submit();
      }
      readbacks.erase(readbacks.begin() + 3);  // never waited for
      uint32_t last = 0;
      std::memcpy(&last, readbacks.back().wait().data(), 4);
      uint32_t want = 0;
      for (int i = 0; i < 12; ++i) want = want * 3 + 1;
      CHECK(last == want);
      CHECK(readbacks.front().wait().size() == 4);

      gpu::Recorder unsubmitted(device);
      gpu::Readback never = unsubmitted.read(out, 0, 4);
      CHECK_FALSE(never.done());
      CHECK(contains(error_of([&] { never.wait(); }).message, "was not submitted"));
      test::check_device_works(device);
    });
  }

  TEST_CASE("bad WGSL: the message has the kernel and the line of its source") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const auto caught = error_of([&] {
        device.kernel({.name = "broken",
                       .wgsl = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n"
                               "@compute @workgroup_size(N)\n"
                               "fn main() {\n"
                               "  x[0] = nonsense;\n"
                               "}\n",
                       .constants = {{"N", 64u}, {"M", 2u}}});
      });
      CHECK(caught.kind == "invalid");
      CAPTURE(caught.message);
      CHECK(contains(caught.message, "[gpu] kernel 'broken' does not compile"));
      CHECK(contains(caught.message, "line 4 column"));
      CHECK(contains(caught.message, "nonsense"));
      CHECK(error_of([&] { device.kernel({.name = "no main", .wgsl = "fn f() {}"}); }).kind == "invalid");
      CHECK(error_of([&] {
              device.kernel({.name = "too many threads",
                             .wgsl = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n"
                                     "@compute @workgroup_size(65536) fn main() { x[0] = 1.0; }"});
            }).kind == "invalid");
      test::check_device_works(device);
    });
  }

  TEST_CASE("kernels that are begun together: a dispatch waits, and throws what is wrong with its own") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const auto store = [&](uint32_t value, uint32_t threads) {
        return device.kernel_later({.name = "store " + std::to_string(value),
                                    .wgsl = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n"
                                            "@compute @workgroup_size(THREADS) fn main() { x[0] = VALUE; }",
                                    .constants = {{"THREADS", threads}, {"VALUE", value}}});
      };
      const uint32_t too_many = 2 * device.limits().max_workgroup_threads;
      std::vector<gpu::Kernel> kernels;
      for (uint32_t value = 0; value < 6; ++value) kernels.push_back(store(value, value == 3 ? too_many : 1));
      const gpu::Buffer out = device.alloc(4, "out");
      for (uint32_t value = 0; value < kernels.size(); ++value) {
        gpu::Recorder recorder(device);
        if (value == 3) {
          const auto caught = error_of([&] { recorder.dispatch(kernels[value], {out}, {}); });
          CHECK(caught.kind == "invalid");
          CHECK(contains(caught.message, "[gpu] kernel 'store 3' does not compile"));
          continue;
        }
        recorder.dispatch(kernels[value], {out}, {});
        recorder.submit();
        uint32_t word = ~0u;
        device.read(out, 0, std::as_writable_bytes(std::span(&word, 1)));
        CHECK(word == value);
      }
      store(7, 1);  // nobody waits for it
    });
  }

  TEST_CASE("the same kernel is compiled once") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      for (int i = 0; i < 5; ++i) device.kernel({.name = "add one", .wgsl = kAddOne});
      CHECK(device.counters().pipelines == 1);
    });
  }

  TEST_CASE("wrong bindings name the kernel and the buffer") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open(), other = gpu.open();
      const gpu::Kernel kernel = device.kernel({.name = "add one", .wgsl = kAddOne});
      const gpu::Buffer a = device.alloc(1024, "alpha"), b = device.alloc(1024, "beta"),
                        foreign = other.alloc(64, "foreign");
      gpu::Recorder recorder(device);
      const auto message = [&](std::initializer_list<gpu::Binding> bindings, gpu::Grid grid = {}) {
        return error_of([&] { recorder.dispatch(kernel, bindings, grid); }).message;
      };
      CHECK(message({a}) == "[gpu] kernel 'add one' takes 2 buffers, 1 were given");
      CHECK(contains(message({a, foreign}), "kernel 'add one': buffer 'foreign' belongs to another device"));
      CHECK(contains(message({a, a}), "buffer 'alpha' is bound twice and written"));
      CHECK(contains(message({a, {b, 1, 4}}), "offset 1 in buffer 'beta' is not a multiple of"));
      CHECK(contains(message({a, {b, 512, 1024}}),
                     "covers 1024 bytes at 512 of buffer 'beta', which has 1024"));
      CHECK(contains(message({a, {b, 2048, 0}}), "buffer 'beta'"));
      CHECK(contains(message({a, gpu::Buffer()}), "binding 1 is an empty handle"));
      CHECK(contains(message({a, b}, {1u << 20}), "grid (1048576, 1, 1) passes the limit"));
      CHECK(contains(error_of([&] { recorder.dispatch(kernel, {a, b}, {}, 1u); }).message,
                     "takes 0 bytes of params, 4 were given"));
      CHECK(contains(error_of([&] { gpu::Recorder(other).dispatch(kernel, {a, b}, {}); }).message,
                     "kernel 'add one' belongs to another device"));
      recorder.dispatch(kernel, {a, b}, {});  // the recorder itself is unharmed
      recorder.submit().wait();
      CHECK(contains(error_of([&] { recorder.submit(); }).message, "was submitted already"));
      test::check_device_works(device);
    });
  }

  // Only the library can see that this binding is too small for its kernel. wgpu-native aborts the process
  // when such commands are submitted.
  TEST_CASE("commands that the library finds invalid are not submitted") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Kernel kernel = device.kernel({.name = "wants 16 KiB", .wgsl = R"(
        @group(0) @binding(0) var<storage, read_write> out: array<u32, 4096>;
        @compute @workgroup_size(1) fn main() { out[4095] = 1u; })"});
      const gpu::Buffer small = device.alloc(256, "small");
      gpu::Recorder recorder(device, "doomed");
      recorder.dispatch(kernel, {small}, {});
      const auto caught = error_of([&] {
        recorder.submit().wait();
        device.synchronize();
      });
      CAPTURE(caught.message);
      CHECK(caught.kind == "invalid");
      CHECK(contains(caught.message, "[gpu] work 'doomed' (kernels: wants 16 KiB)"));
      CHECK(contains(caught.message, "16384"));
      test::check_device_works(device);
      gpu::Device next = gpu.open();
      test::check_device_works(next);
    });
  }

  TEST_CASE("memory of the pool is bound with the size of its new owner") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Kernel kernel = device.kernel({.name = "length", .wgsl = R"(
        @group(0) @binding(0) var<storage, read> values: array<u32>;
        @group(0) @binding(1) var<storage, read_write> length: array<u32>;
        @compute @workgroup_size(1) fn main() { length[0] = arrayLength(&values); })"});
      const gpu::Buffer length = device.alloc(4, "length");
      for (uint32_t words : {3u, 60u, 17u}) {  // all in the smallest size of the pool
        const gpu::Buffer values = device.alloc(uint64_t{4} * words, "values");
        gpu::Recorder recorder(device);
        recorder.dispatch(kernel, {values, length}, {});
        recorder.submit();
        CHECK(first_word(device, length) == words);
      }
    });
  }

  TEST_CASE("a kernel sees through an image what the buffer has at that point of the work") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      if (!gpu.features.images) return;
      gpu::Device device = gpu.open();
      const gpu::Kernel look = device.kernel({.name = "look", .wgsl = kLook}),
                        add_one = device.kernel({.name = "add one", .wgsl = kAddOne});
      // Sizes of a piece of a row, a whole one, and several; the buffer of the last one is in the pool by
      // then.
      for (const uint32_t vectors : {16u, gpu::kImageWidth, 3 * gpu::kImageWidth + 16, 16u}) {
        const gpu::Buffer image = device.alloc(uint64_t{16} * vectors, "image"),
                          other = device.alloc(uint64_t{16} * vectors, "other"),
                          seen = device.alloc(16, "seen");
        const auto word_seen = [&](gpu::Recorder& recorder) {
          recorder.dispatch(look, {image, seen}, {}, vectors - 1);
          gpu::Readback readback = recorder.read(seen, 0, 4);
          recorder.submit();
          uint32_t word = 0;
          std::memcpy(&word, readback.wait().data(), 4);
          return word;
        };
        const auto last = [&](const gpu::Buffer& buffer, uint32_t word) {
          device.write(buffer, uint64_t{16} * vectors - 4, std::as_bytes(std::span(&word, 1)));
        };
        last(image, 7);
        last(other, 8);
        gpu::Recorder first(device), written(device), copied(device), cleared(device), dropped(device);
        CHECK(word_seen(first) == 7);
        const uint64_t passes = device.counters().passes;
        written.dispatch(add_one, {other, image}, {.x = vectors / 16});
        CHECK(word_seen(written) == 9);
        CHECK(device.counters().passes == passes + 2);  // the copy is between them
        copied.copy(other, 0, image, 0, uint64_t{16} * vectors);
        CHECK(word_seen(copied) == 8);
        dropped.clear(image, 0, uint64_t{16} * vectors);
        cleared.clear(image, 0, uint64_t{16} * vectors);
        CHECK(word_seen(cleared) == 0);
        last(image, 5);
        gpu::Recorder again(device);
        CHECK(word_seen(again) == 5);
      }
    });
  }

  TEST_CASE("a grid with a zero does nothing") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Kernel kernel = device.kernel({.name = "add one", .wgsl = kAddOne});
      const gpu::Buffer a = device.alloc(256, "a"), b = device.alloc(256, "b");
      gpu::Recorder recorder(device);
      recorder.dispatch(kernel, {a, b}, {0, 1, 1});
      recorder.submit().wait();
      CHECK(device.counters().dispatches == 0);
    });
  }

  TEST_CASE("a traced recorder times every dispatch") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      if (!gpu.features.timestamps) {
        CHECK(error_of([&] { gpu::Recorder(device, "trace", gpu::Trace::dispatches); }).kind ==
              "unsupported");
        return;
      }
      const gpu::Kernel one = device.kernel({.name = "add one", .wgsl = kAddOne});
      const gpu::Kernel param = device.kernel({.name = "add param", .wgsl = kAddParam});
      const gpu::Buffer a = device.alloc(256, "a"), b = device.alloc(256, "b");
      gpu::Recorder recorder(device, "trace", gpu::Trace::dispatches);
      for (int i = 0; i < 2100; ++i) recorder.dispatch(one, {a, b}, {});  // more than one query set
      recorder.dispatch(param, {a}, {}, 2u);
      recorder.submit();
      const std::vector<gpu::Timing> timings = recorder.timings();
      REQUIRE(timings.size() == 2101);
      CHECK(timings.front().kernel == "add one");
      CHECK(timings.back().kernel == "add param");
      for (const gpu::Timing& t : timings) CHECK((t.microseconds >= 0 && t.microseconds < 1e7));
    });
  }

  TEST_CASE("a constant reaches the shader as its type") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Buffer out = device.alloc(4, "out");
      for (uint32_t factor : {1u, 7u, 4'000'000'000u}) {
        const gpu::Kernel kernel = device.kernel(
            {.name = "constant",
             .wgsl = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n"
                     "@compute @workgroup_size(1) fn main() { out[0] = FACTOR + u32(SCALE * 4.0); }",
             .constants = {{"FACTOR", factor}, {"SCALE", 0.75f}}});
        gpu::Recorder recorder(device);
        recorder.dispatch(kernel, {out}, {});
        recorder.submit();
        CHECK(first_word(device, out) == factor + 3);
      }
    });
  }
}
