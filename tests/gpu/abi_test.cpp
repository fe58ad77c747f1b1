#include <doctest/doctest.h>

#include "gpu/abi.h"

// Sizes of webgpu.h on 64-bit systems. A wrong one would show as a crash inside somebody else's library.
using namespace weft::gpu::abi;
static_assert(sizeof(InstanceDescriptor) == 32 && sizeof(AdapterOptions) == 32 && sizeof(DawnToggles) == 48);
static_assert(offsetof(AdapterInfo, backend) == 72 && offsetof(AdapterInfo, subgroup_min) == 88);
static_assert(sizeof(CallbackInfo<MapCallback>) == 40 && sizeof(ErrorCallbackInfo) == 32 &&
              sizeof(FutureWaitInfo) == 16);
static_assert(sizeof(BufferDescriptor) == 48 && sizeof(ShaderSource) == 32 && sizeof(LabelDescriptor) == 24);
static_assert(sizeof(BufferBindingLayout) == 24 && sizeof(BindGroupLayoutDescriptor) == 40);
static_assert(sizeof(BindGroupEntry) == 56 && sizeof(BindGroupDescriptor) == 48 &&
              sizeof(PipelineLayoutDescriptor) == 48);
static_assert(sizeof(TimestampWrites) == 24 && sizeof(TimestampWritesA) == 16);
static_assert(sizeof(ComputePassDescriptor) == 32 && sizeof(QuerySetDescriptor) == 32);

TEST_SUITE("base: gpu abi") {
  TEST_CASE("feature numbers follow the class") {
    const AbiTraits a{.implementation = Implementation::wgpu, .abi = Class::a};
    const AbiTraits b{.implementation = Implementation::dawn, .abi = Class::b};
    const AbiTraits c{.implementation = Implementation::dawn, .abi = Class::c};
    CHECK(a.feature_f16() == 0xA);
    CHECK(b.feature_f16() == 0xA);
    CHECK(c.feature_f16() == 0xB);
    CHECK(a.feature_subgroups() == 0x30021);
    CHECK(b.feature_subgroups() == 0x11);
    CHECK(c.feature_subgroups() == 0x12);
    CHECK(b.feature_timestamps() == 3);
    CHECK(c.feature_timestamps() == 9);
  }
}
