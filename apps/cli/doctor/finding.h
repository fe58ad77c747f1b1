#pragma once

#include <functional>
#include <string>

#include "doctor/system.h"

namespace weft::doctor {

enum class Severity { ok, info, warning, error };
const char* to_string(Severity severity);

/// What an automatic repair did, in words for the person who asked for it.
struct Repair {
  bool changed = false;
  std::string message;
};

/// One thing that is not as it should be (or looks so and is harmless), and what to do about it.
struct Finding {
  std::string id = {};
  Severity severity = Severity::info;
  std::string title = {};                                 ///< one line
  std::string detail = {};                                ///< what was seen on this machine
  std::string fix = {};                                   ///< what to do, with this machine's names filled in
  std::function<Repair(const System&)> repair = nullptr;  ///< what `--fix` may do by itself
};

}  // namespace weft::doctor
