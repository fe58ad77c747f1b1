#pragma once

#include "gpu/adapter.h"
#include "gpu/device.h"

/// What an adapter can really do. Reported values are only hints: wgpu-native says subgroup size 0, its
/// version 24 claims f16 that its compiler cannot parse, Dawn renumbers features between versions. So each
/// feature is tried by a small shader whose answer is known. Runs driver code: call it through
/// probe_library().
namespace weft::gpu {

/// Throws when not even a plain kernel works on the adapter.
Features prove_features(const Adapter& adapter);

/// Fills submit_us and dispatch_us.
void measure_costs(Device& device, AdapterReport& report);

/// Proven features less those that WEFT_GPU_DISABLE takes away: what a device is opened with.
Features enabled_features(const Features& proven);

}  // namespace weft::gpu
