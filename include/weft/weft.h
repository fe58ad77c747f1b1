#pragma once

/// All of weft.
#include "weft/array.h"
#include "weft/chat.h"
#include "weft/compile.h"
#include "weft/create.h"
#include "weft/custom.h"
#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/error.h"
#include "weft/grad.h"
#include "weft/ops.h"
#include "weft/random.h"
#include "weft/sampler.h"
#include "weft/shape.h"
#include "weft/text.h"
#include "weft/version.h"
