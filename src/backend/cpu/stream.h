#pragma once

#include <cstddef>
#include <cstdint>

/// Stores that go past the caches. An ordinary store reads its line first, a third more traffic for a copy;
/// for results that no cache could keep anyway that is wasted.
namespace weft::cpu {

inline constexpr int64_t kLineBytes = 64;  ///< of the caches

/// Whether an array of that many bytes is better streamed: larger than the last cache, and the processor
/// stores at least 32 bytes at a time (streams of 16 are slower than ordinary stores).
bool is_streamed(uint64_t bytes);

/// memcpy with such stores, for lines that are written whole. Call hwy::FlushStream() before another thread
/// may read.
void stream(const void* from, void* to, size_t bytes);

}  // namespace weft::cpu
