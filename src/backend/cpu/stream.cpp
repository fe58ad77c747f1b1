#include "backend/cpu/stream.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft::cpu {
namespace {

using Stream = void (*)(const std::byte* from, std::byte* to, size_t lines);

#if defined(__x86_64__)
[[gnu::target("avx512f")]] void stream_512(const std::byte* from, std::byte* to, size_t lines) {
  for (size_t i = 0; i < lines * kLineBytes; i += kLineBytes)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
}

[[gnu::target("avx")]] void stream_256(const std::byte* from, std::byte* to, size_t lines) {
  for (size_t i = 0; i < lines * kLineBytes; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
}

Stream find_stream() {
  if (__builtin_cpu_supports("avx512f")) return stream_512;
  return __builtin_cpu_supports("avx") ? stream_256 : nullptr;
}
#else
Stream find_stream() {
  return nullptr;
}
#endif

const Stream kStream = find_stream();

// What a core reaches of the last cache on most processors. The system's own figure may count caches of
// others: it says 320 MiB where there are 32.
constexpr uint64_t kCache = 32 << 20;

}  // namespace

bool is_streamed(uint64_t bytes) {
  return kStream && bytes >= kCache;
}

void stream(const void* from, void* to, size_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kLineBytes);
  const size_t lines = kStream ? (bytes - head) / kLineBytes : 0, done = head + lines * kLineBytes;
  if (head > 0) std::memcpy(target, source, head);  // mostly there is none, and calls take their time
  if (lines > 0) kStream(source + head, target + head, lines);
  if (done < bytes) std::memcpy(target + done, source + done, bytes - done);
}

}  // namespace weft::cpu
