#pragma once

#include <vector>

#include "backend/select.h"
#include "doctor/selftest.h"

namespace weft::selftest {

/// Runs add, gelu, a row sum and a matmul on the device, compares each with a double-precision reference and
/// times it. Throws when the device fails.
std::vector<doctor::SelfTestRow> run(Backend& backend);

}  // namespace weft::selftest
