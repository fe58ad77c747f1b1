#include <doctest/doctest.h>

#include <cstring>

#include "gpu/recorder.h"
#include "support/gpus.h"

using namespace weft;
using test::error_of;

namespace {

std::vector<std::byte> pattern(size_t count, unsigned seed = 1) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed * 17);
  return bytes;
}

std::vector<std::byte> read(gpu::Device& device, const gpu::Buffer& buffer, uint64_t offset, size_t count) {
  std::vector<std::byte> bytes(count);
  device.read(buffer, offset, bytes);
  return bytes;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("gpu buffers") {
  TEST_CASE("bytes come back as they were written, at every size and alignment") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      for (size_t size : {1, 2, 3, 4, 5, 63, 64, 65, 255, 256, 257, 4099, 70'001}) {
        CAPTURE(size);
        const gpu::Buffer buffer = device.alloc(size, "bytes");
        const auto bytes = pattern(size, static_cast<unsigned>(size));
        device.write(buffer, 0, bytes);
        CHECK(read(device, buffer, 0, size) == bytes);
        for (size_t offset : {1, 2, 3, 5}) {
          if (offset + 2 > size) continue;
          const auto part = read(device, buffer, offset, 2);
          CHECK(std::memcmp(part.data(), bytes.data() + offset, 2) == 0);
        }
      }
    });
  }

  TEST_CASE("a write in the middle leaves the rest alone") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Buffer buffer = device.alloc(64, "middle");
      auto bytes = pattern(64);
      device.write(buffer, 0, bytes);
      const auto part = pattern(8, 9);
      device.write(buffer, 20, part);
      std::copy(part.begin(), part.end(), bytes.begin() + 20);
      CHECK(read(device, buffer, 0, 64) == bytes);
    });
  }

  TEST_CASE("large uploads go through a mapping") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const auto bytes = pattern((8 << 20) + 3);
      const gpu::Buffer buffer = device.upload(bytes.size(), "weights", [&](std::span<std::byte> to) {
        CHECK(to.size() == bytes.size());
        std::memcpy(to.data(), bytes.data(), bytes.size());
      });
      CHECK(read(device, buffer, 0, bytes.size()) == bytes);
      CHECK(device.counters().submits == 1);
    });
  }

  TEST_CASE("copies and clears") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Buffer a = device.alloc(64, "a"), b = device.alloc(64, "b");
      device.write(a, 0, pattern(64));
      gpu::Recorder recorder(device);
      recorder.clear(b, 0, 64);
      recorder.copy(a, 8, b, 16, 12);
      gpu::Readback readback = recorder.read(b, 0, 64);
      recorder.submit();
      std::vector<std::byte> want(64);
      const auto source = pattern(64);
      std::copy_n(source.begin() + 8, 12, want.begin() + 16);
      const auto got = readback.wait();
      CHECK(std::vector<std::byte>(got.begin(), got.end()) == want);
    });
  }

  TEST_CASE("the pool hands the same memory out again") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      for (int i = 0; i < 100; ++i) {
        const gpu::Buffer buffer = device.alloc(1000 + i, "reused");
        CHECK(device.counters().bytes_active >= 1000);
      }
      const gpu::Counters counters = device.counters();
      CHECK(counters.buffers == 2);  // 1,000 to 1,024 bytes and 1,025 to 1,152 are two sizes of the pool
      CHECK(counters.bytes_active == 0);
      CHECK(counters.bytes_peak < 1200);
      CHECK(counters.bytes_cached == 1024 + 1152);
      device.trim();
      CHECK(device.counters().bytes_cached == 0);
    });
  }

  TEST_CASE("the pool keeps what came last") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      device.alloc(40 << 20, "of another size");  // 64 MiB are kept
      for (int i = 0; i < 3; ++i) device.alloc(32 << 20, "reused");
      CHECK(device.counters().buffers == 2);
      CHECK(device.counters().bytes_cached == 32 << 20);
    });
  }

  TEST_CASE("freed memory is not reused while recorded work still needs it") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const gpu::Buffer target = device.alloc(64, "target");
      gpu::Recorder recorder(device);
      {
        const gpu::Buffer source = device.alloc(64, "source");
        device.write(source, 0, pattern(64));
        recorder.copy(source, 0, target, 0, 64);
      }
      const gpu::Buffer other = device.alloc(64, "other");  // must not be the memory of `source`
      device.write(other, 0, pattern(64, 5));
      recorder.submit();
      CHECK(read(device, target, 0, 64) == pattern(64));
    });
  }

  TEST_CASE("mistakes name the buffer") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open(), second = gpu.open();
      const gpu::Buffer buffer = device.alloc(64, "small one");
      auto caught = error_of([&] { device.write(buffer, 60, pattern(8)); });
      CHECK(caught.kind == "invalid");
      CHECK(
          contains(caught.message, "write of 8 bytes at 60 passes the end of buffer 'small one' (64 bytes)"));
      CHECK(contains(error_of([&] { read(device, buffer, 65, 1); }).message, "buffer 'small one'"));
      CHECK(contains(error_of([&] { device.write(buffer, 2, pattern(4)); }).message, "whole words"));
      CHECK(contains(error_of([&] { device.write(buffer, 0, pattern(6)); }).message, "whole words"));
      CHECK(contains(error_of([&] { second.write(buffer, 0, pattern(4)); }).message, "another device"));
      CHECK(contains(error_of([&] { gpu::Recorder(device).copy(buffer, 0, buffer, 32, 32); }).message,
                     "source and target must differ"));
      test::check_device_works(device);
    });
  }

  TEST_CASE("a buffer beyond the limit is an error with its label") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      const uint64_t limit = device.limits().max_buffer_size;
      for (uint64_t size : {limit + 1, uint64_t{1} << 50}) {
        const auto caught = error_of([&] { device.alloc(size, "giant"); });
        CHECK(caught.kind == "memory");
        CHECK(contains(caught.message, "buffer 'giant'"));
        CHECK(error_of([&] { device.upload(size, "giant", [](auto) {}); }).kind == "memory");
      }
      CHECK(device.counters().bytes_active == 0);
      test::check_device_works(device);
    });
  }

  // Needs a GPU whose memory ends: software drivers only reserve addresses. Run it there with
  // weft_tests --no-skip -tc='*hoards memory*'
  TEST_CASE("a device that hoards memory gets an error, and smaller work goes on" * doctest::skip()) {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open();
      std::vector<gpu::Buffer> held;
      const auto caught = error_of([&] {
        for (int i = 0; i < 4096; ++i) held.push_back(device.alloc(1 << 30, "hoard"));
      });
      MESSAGE(gpu.library.name, ": ", held.size(), " GiB, then: ", caught.message);
      CHECK(caught.kind == "memory");
      CHECK(contains(caught.message, "buffer 'hoard'"));
      held.clear();
      device.trim();
      test::check_device_works(device);
    });
  }
}
