#pragma once

#include <cstddef>

#include "text/jinja/failure.h"

namespace weft::jinja {

/// What a template may use. Real ones stay a hundred times below each limit.
class Budget {
 public:
  /// A step is about one node of the template, or 256 bytes looked at.
  void step(size_t count = 1) {
    if (count > steps_) wrong("the template does not come to an end: too many steps");
    steps_ -= count;
  }

  /// Before `bytes` of memory are made. Nothing is given back, so this is also the most that is ever alive.
  void produce(size_t bytes) {
    if (bytes > bytes_) wrong("the template uses too much memory");
    bytes_ -= bytes;
  }
  void produce(size_t count, size_t bytes_each) {
    if (bytes_each != 0 && count > bytes_ / bytes_each) wrong("the template uses too much memory");
    produce(count * bytes_each);
  }

  /// One more level of calls while it lives.
  class Level {
   public:
    explicit Level(Budget& budget) : budget_(budget) {
      if (budget_.levels_ == 0) wrong("the template is nested too deeply");
      --budget_.levels_;
    }
    ~Level() { ++budget_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

 private:
  size_t steps_ = 10'000'000;
  size_t bytes_ = 256 << 20;
  size_t levels_ = 1200;  // some hundred bytes of stack each
};

}  // namespace weft::jinja
