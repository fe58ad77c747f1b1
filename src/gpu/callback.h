#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "gpu/library.h"

/// Answers of asynchronous WebGPU calls. The data lives on the heap and is shared by the caller and the
/// callback: a caller that gave up waiting leaves nothing dangling, and a cancelled callback may come as late
/// as it likes.
namespace weft::gpu {

std::string text_of(abi::StringView view);
abi::StringView view_of(const std::string& text);  ///< borrows

struct AnswerBase {
  bool done = false;
  uint32_t status = 0;
  std::string message;
};

template <typename T>
struct Answer : AnswerBase {
  T value{};  ///< a handle, or the error type of a scope
};

/// Gives a share of `answer` to a callback, which takes it back with take_over().
template <typename T>
void* hand_over(const std::shared_ptr<T>& answer) {
  return new std::shared_ptr<T>(answer);
}

template <typename T>
std::shared_ptr<T> take_over(void* user) {
  const std::unique_ptr<std::shared_ptr<T>> owner(static_cast<std::shared_ptr<T>*>(user));
  return *owner;
}

inline void complete(AnswerBase& answer, uint32_t status, abi::StringView message) {
  answer.status = status;
  answer.message = text_of(message);
  answer.done = true;
}

template <typename Handle>
void answer_with_handle(uint32_t status, Handle handle, abi::StringView message, void* user, void*) {
  const auto answer = take_over<Answer<Handle>>(user);
  answer->value = handle;
  complete(*answer, status, message);
}

void answer_map(uint32_t status, abi::StringView message, void* user, void*);
void answer_work_done(uint32_t status, abi::StringView message, void* user, void*);
void answer_work_done_a(uint32_t status, void* user, void*);  ///< class A has no message
void answer_scope(uint32_t status, uint32_t type, abi::StringView message, void* user, void*);

/// Runs the library's event loop once, without blocking. `device` may be null.
void pump(const Library::State& library, abi::Device device);

/// Until the answer is there; false when `limit` passed first. Never blocks inside the library for longer
/// than `limit`, whatever the driver does.
bool wait_for(const Library::State& library, abi::Device device, abi::Future future, const AnswerBase& answer,
              std::chrono::nanoseconds limit);

}  // namespace weft::gpu
