#include "gpu/callback.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace weft::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

}  // namespace

std::string text_of(abi::StringView view) {
  if (!view.data) return "";
  return {view.data, view.length == abi::kStrlen ? std::strlen(view.data) : view.length};
}

abi::StringView view_of(const std::string& text) {
  return {text.data(), text.size()};
}

void answer_map(uint32_t status, abi::StringView message, void* user, void*) {
  complete(*take_over<AnswerBase>(user), status, message);
}

void answer_work_done(uint32_t status, abi::StringView message, void* user, void*) {
  complete(*take_over<AnswerBase>(user), status, message);
}

void answer_work_done_a(uint32_t status, void* user, void*) {
  complete(*take_over<AnswerBase>(user), status, {nullptr, 0});
}

void answer_scope(uint32_t status, uint32_t type, abi::StringView message, void* user, void*) {
  const auto answer = take_over<Answer<uint32_t>>(user);
  answer->value = type;
  complete(*answer, status, message);
}

void pump(const Library::State& library, abi::Device device) {
  if (library.api.is_wgpu()) {
    // ProcessEvents would poll every device of the instance; wgpu-native answers adapter and device requests
    // inside the call, so without a device there is nothing to run.
    if (device) library.api.DevicePoll(device, 0, nullptr);
  } else {
    library.api.InstanceProcessEvents(library.instance);
  }
}

bool wait_for(const Library::State& library, abi::Device device, abi::Future future, const AnswerBase& answer,
              std::chrono::nanoseconds limit) {
  const Clock::time_point begin = Clock::now(), end = begin + limit;
  while (!answer.done) {
    pump(library, device);
    if (answer.done) break;
    const Clock::time_point now = Clock::now();
    if (now >= end) return false;
    if (library.api.timed_wait && future.id != 0) {
      abi::FutureWaitInfo info{future, 0};
      const auto slice = std::min<std::chrono::nanoseconds>(end - now, 100ms);
      library.api.InstanceWaitAny(library.instance, 1, &info, static_cast<uint64_t>(slice.count()));
    } else if (now - begin > 200us) {
      // wgpu-native's blocking poll has no time limit, so: spin briefly, then sleep in growing naps.
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>((now - begin) / 8, 1ms));
    }
  }
  return true;
}

}  // namespace weft::gpu
