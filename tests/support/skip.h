#pragma once

#include <string>

namespace weft::test {

/// Counts the current test as skipped; the reason is printed at the end. The test then returns by itself.
void skip(const std::string& reason);

}  // namespace weft::test
