#pragma once

#include "backend/webgpu/qmatmul.h"

namespace weft::webgpu {

/// expert_matmul in a given form.
void multiply_experts(Context& context, const Step& step, const QuantForm& form);

}  // namespace weft::webgpu
