#pragma once

#include "backend/cpu/qmatmul.h"
#include "quant/codes.h"

/// Intel's AMX: registers that are tiles of 16 rows of 64 bytes, and an instruction that multiplies two of
/// them.
namespace weft::cpu {

/// Whether this processor has tiles of bytes, and the system lets this process use them.
bool has_tiles();

/// Products of many rows of codes by tiles; nothing where the processor has none. The results are those of
/// the other tasks, bit for bit.
QuantTasks tile_tasks(const quant::Coding& coding);

}  // namespace weft::cpu
