#pragma once

#include <array>
#include <cstdint>

namespace weft {

/// Where the process's stream of keys stands.
struct StreamState {
  std::array<uint32_t, 2> key = {};
  uint32_t drawn = 0;
};
StreamState stream_state();

/// While it lives, keys are drawn again from an earlier state.
class ReplayedStream {
 public:
  explicit ReplayedStream(const StreamState& from);
  ~ReplayedStream();
  ReplayedStream(const ReplayedStream&) = delete;
  ReplayedStream& operator=(const ReplayedStream&) = delete;

 private:
  StreamState before_;
};

}  // namespace weft
