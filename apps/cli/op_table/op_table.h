#pragma once

#include <string>

namespace weft::op_table {

/// docs/ops.md: every op with its attributes, and what it takes, found by trying.
std::string markdown();

/// The names, one per line, or the markdown.
int run(bool as_markdown);

}  // namespace weft::op_table
