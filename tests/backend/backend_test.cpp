#include "backend/backend.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/webgpu/webgpu_backend.h"
#include "support/gpus.h"

using namespace weft;
using test::error_of;
using Bytes = std::vector<std::byte>;

namespace {

/// One body, every backend.
void on_every_backend(const std::function<void(Backend&)>& body) {
  {
    CpuBackend cpu;
    CAPTURE(cpu.name());
    body(cpu);
  }
  test::on_every_gpu([&](const test::TestGpu& gpu) {
    WebgpuBackend webgpu(gpu.open());
    CAPTURE(webgpu.name());
    body(webgpu);
  });
}

Bytes pattern(size_t count, size_t seed = 1) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 37 + seed * 11 + i / 256);
  return bytes;
}

Bytes read(Backend& backend, const StoragePtr& from, uint64_t offset, size_t count) {
  Bytes bytes(count);
  backend.read(from, offset, bytes);
  return bytes;
}

Bytes read(Backend& backend, const StoragePtr& from) {
  return read(backend, from, 0, from->size());
}

StoragePtr filled(Backend& backend, const Bytes& bytes, std::string_view label = "filled") {
  StoragePtr storage = backend.alloc(bytes.size(), label);
  backend.write(storage, 0, bytes);
  return storage;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("backends") {
  TEST_CASE("a backend has a name, storage has a size and a label") {
    on_every_backend([](Backend& backend) {
      CHECK_FALSE(backend.name().empty());
      const StoragePtr storage = backend.alloc(10, "ten");
      CHECK(storage->size() == 10);
      CHECK(storage->label() == "ten");
    });
  }

  TEST_CASE("bytes come back as written, at every size") {
    on_every_backend([](Backend& backend) {
      for (size_t size : {0, 1, 3, 4, 5, 63, 255, 256, 257, 65'537, (4 << 20) + 1}) {
        CAPTURE(size);
        const Bytes bytes = pattern(size, size);
        const StoragePtr storage = filled(backend, bytes);
        CHECK(storage->size() == size);
        CHECK((read(backend, storage) == bytes));
      }
    });
  }

  TEST_CASE("storage of no bytes is storage") {
    on_every_backend([](Backend& backend) {
      const StoragePtr none = backend.alloc(0, "none"), other = backend.alloc(0, "other");
      CHECK(none->size() == 0);
      backend.write(none, 0, {});
      backend.read(none, 0, {});
      backend.copy(none, 0, other, 0, 0);
      backend.synchronize();
      CHECK(error_of([&] { backend.write(none, 0, pattern(4)); }).kind == "invalid");
      Bytes byte(1);
      CHECK(error_of([&] { backend.read(none, 0, byte); }).kind == "invalid");
    });
  }

  TEST_CASE("parts: written in words, read at any byte") {
    on_every_backend([](Backend& backend) {
      Bytes bytes = pattern(101);
      const StoragePtr storage = filled(backend, bytes);
      const Bytes part = pattern(12, 9), tail = pattern(5, 4);
      backend.write(storage, 40, part);
      backend.write(storage, 96, tail);  // ends with the storage, so any size will do
      std::ranges::copy(part, bytes.begin() + 40);
      std::ranges::copy(tail, bytes.begin() + 96);
      CHECK(read(backend, storage) == bytes);
      for (size_t offset : {0, 1, 2, 3, 39, 41, 97, 100})
        for (size_t count : {0, 1, 2, 3, 4, 7}) {
          if (offset + count > bytes.size()) continue;
          const auto begin = bytes.begin() + static_cast<ptrdiff_t>(offset);
          CHECK(read(backend, storage, offset, count) == Bytes(begin, begin + static_cast<ptrdiff_t>(count)));
        }
    });
  }

  TEST_CASE("copies") {
    on_every_backend([](Backend& backend) {
      const Bytes source = pattern(64), old = pattern(96, 7);
      const StoragePtr from = filled(backend, source), to = filled(backend, old);
      backend.copy(from, 8, to, 16, 40);
      Bytes want = old;
      std::copy_n(source.begin() + 8, 40, want.begin() + 16);
      CHECK(read(backend, to) == want);
      CHECK(read(backend, from) == source);
      backend.copy(from, 64, to, 96, 0);
      CHECK(read(backend, to) == want);

      const Bytes large = pattern(1 << 20, 3);
      const StoragePtr a = filled(backend, large), b = backend.alloc(large.size(), "b");
      backend.copy(a, 0, b, 0, large.size());
      CHECK((read(backend, b) == large));
    });
  }

  TEST_CASE("calls take effect in the order they are made") {
    on_every_backend([](Backend& backend) {
      const StoragePtr a = filled(backend, pattern(16, 1)), b = backend.alloc(16, "b");
      backend.copy(a, 0, b, 0, 16);
      backend.write(a, 0, pattern(16, 2));
      const Bytes first = read(backend, b);
      backend.copy(a, 0, b, 0, 16);
      backend.write(a, 0, pattern(16, 3));
      CHECK(first == pattern(16, 1));
      CHECK(read(backend, b) == pattern(16, 2));
      CHECK(read(backend, a) == pattern(16, 3));
    });
  }

  TEST_CASE("past the end is an error that names the storage, and nothing is changed") {
    on_every_backend([](Backend& backend) {
      const StoragePtr small = filled(backend, pattern(64), "small one"),
                       other = filled(backend, pattern(64, 2));
      Bytes bytes(8);
      for (uint64_t offset : {uint64_t{60}, uint64_t{64}, uint64_t{1} << 40, UINT64_MAX - 3}) {
        CAPTURE(offset);
        for (const auto& call : std::initializer_list<std::function<void()>>{
                 [&] { backend.write(small, offset, pattern(8)); },
                 [&] { backend.read(small, offset, bytes); },
                 [&] { backend.copy(small, offset, other, 0, 8); },
                 [&] { backend.copy(other, 0, small, offset, 8); }}) {
          const auto caught = error_of(call);
          CHECK(caught.kind == "invalid");
          CHECK(contains(caught.message, "passes the end of"));
          CHECK(contains(caught.message, "'small one' (64 bytes)"));
        }
      }
      CHECK(read(backend, small) == pattern(64));
      CHECK(read(backend, other) == pattern(64, 2));
    });
  }

  TEST_CASE("storage of nobody or of another backend is an error") {
    CpuBackend cpu;
    const StoragePtr host = filled(cpu, pattern(16));
    const auto refuses = [](Backend& backend, const StoragePtr& foreign) {
      const StoragePtr own = backend.alloc(16, "own");
      Bytes bytes(16);
      CHECK(error_of([&] { backend.write(foreign, 0, bytes); }).kind == "invalid");
      CHECK(error_of([&] { backend.read(foreign, 0, bytes); }).kind == "invalid");
      CHECK(error_of([&] { backend.copy(foreign, 0, own, 0, 16); }).kind == "invalid");
      CHECK(error_of([&] { backend.copy(own, 0, foreign, 0, 16); }).kind == "invalid");
    };
    refuses(cpu, nullptr);
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      WebgpuBackend webgpu(gpu.open()), second(gpu.open());
      const StoragePtr device = filled(webgpu, pattern(16));
      refuses(webgpu, nullptr);
      refuses(webgpu, host);
      refuses(second, device);
      refuses(cpu, device);
      CHECK(read(webgpu, device) == pattern(16));
    });
    CHECK(read(cpu, host) == pattern(16));
  }

  TEST_CASE("the counters follow what is held") {
    on_every_backend([](Backend& backend) {
      CHECK(backend.memory().active == 0);
      CHECK(backend.memory().peak == 0);
      StoragePtr a = backend.alloc(10'000, "a");
      const uint64_t one = backend.memory().active;
      CHECK(one >= 10'000);
      CHECK(one <= 11'250);  // the pool rounds up, by an eighth at most
      StoragePtr b = backend.alloc(20'000, "b"), again = b;
      const uint64_t two = backend.memory().active;
      CHECK(two >= one + 20'000);
      CHECK(backend.memory().peak == two);
      b.reset();
      CHECK(backend.memory().active == two);  // `again` still holds it
      again.reset();
      CHECK(backend.memory().active == one);
      a.reset();
      CHECK(backend.memory().active == 0);
      CHECK(backend.memory().peak == two);
    });
  }

  TEST_CASE("use over and over does not grow") {
    on_every_backend([](Backend& backend) {
      for (int i = 0; i < 200; ++i) {
        const StoragePtr a = backend.alloc(5000, "a"), b = backend.alloc(5000, "b");
        backend.copy(a, 0, b, 0, 5000);
      }
      backend.synchronize();
      CHECK(backend.memory().active == 0);
      CHECK(backend.memory().peak <= 2 * 5632);
      CHECK(backend.memory().cached <= 4 * 5632);
    });
  }

  TEST_CASE("storage may outlive its backend") {
    StoragePtr left;
    {
      CpuBackend cpu;
      left = cpu.alloc(100, "left");
    }
    left.reset();
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      {
        WebgpuBackend webgpu(gpu.open());
        left = webgpu.alloc(100, "left");
      }
      left.reset();
    });
  }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which end the process on such sizes
  TEST_CASE("more than there is: an error of memory, and smaller work goes on") {
    on_every_backend([](Backend& backend) {
      for (uint64_t size : {uint64_t{1} << 50, uint64_t{1} << 62}) {
        const auto caught = error_of([&] { backend.alloc(size, "giant"); });
        CHECK(caught.kind == "memory");
        CHECK(contains(caught.message, "'giant'"));
      }
      CHECK(backend.memory().active == 0);
      CHECK(read(backend, filled(backend, pattern(64))) == pattern(64));
    });
  }
#endif
}
