#include "gpu/truth.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "gpu/recorder.h"
#include "gpu/state.h"

namespace weft::gpu {
namespace {

/// Every test kernel writes 64 words, one per invocation, into binding 0.
constexpr uint32_t kWords = 64;
using Words = std::array<uint32_t, kWords>;

constexpr std::string_view kPlain = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
struct Params { scale: u32, add: i32, }
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
  out[i] = u32(i32(i * params.scale) + params.add);
}
)";

constexpr std::string_view kF16 = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
var<workgroup> shared_values: array<vec4<f16>, 64>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
  shared_values[i] = vec4<f16>(f16(i), 0.5h, 0.25h, 0.25h);
  workgroupBarrier();
  let v = shared_values[63u - i];
  out[i] = u32(v.x + v.y + v.z + v.w);
}
)";

// Low half: sum of the lane numbers of a subgroup. High half: its size as the shader sees it.
constexpr std::string_view kSubgroups = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_invocation_id) lane: u32,
        @builtin(subgroup_size) size: u32) {
  let sum = subgroupAdd(lane);
  let shuffled = subgroupShuffleXor(i, 1u);
  out[i] = select(0xffffffffu, (size << 16u) | (sum & 0xffffu), shuffled == (i ^ 1u));
}
)";

constexpr std::string_view kDot4 = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
  out[i] = u32(dot4_i8(0xff020304u, 0x01010101u * i));
}
)";

// Halves of every exponent, the subnormal ones with different bits set.
constexpr std::string_view kUnpack = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
  let half = ((i & 31u) << 10u) | (1u << (i % 10u)) | ((i >> 5u) << 15u);
  out[i] = bitcast<u32>(unpack2x16float(half | (half << 16u))[i & 1u]);
}
)";

// From 2^-26 to 2^16, at or beside the middle between two halves.
constexpr std::string_view kPack = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
  let x = bitcast<f32>(((101u + i % 43u) << 23u) | (((i << 13u) + 4095u + i % 3u) & 0x7fffffu) | ((i & 32u) << 26u));
  out[i] = pack2x16float(vec2<f32>(x, -x));
}
)";

// Of 32 workgroups that share a counter, the last to arrive compares what all of them left in memory with
// what they should have. What an exchange returns decides what is added to the counter, so it is over before
// that.
constexpr std::string_view kLastWorkgroup = R"(
@group(0) @binding(0) var<storage, read_write> out: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read_write> parts: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> arrived: array<atomic<u32>>;
struct Params { round: u32, zero: u32, }
var<workgroup> odd: u32;
var<workgroup> is_last: u32;
fn part(group: u32, i: u32) -> u32 { return (params.round * 1664525u + group * 64u + i) * 2654435761u; }
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) id: vec3<u32>) {
  if (i == 0u) { odd = 0u; }
  workgroupBarrier();
  if ((atomicExchange(&parts[id.x * 64u + i], part(id.x, i)) & params.zero) != 0u) { odd = 1u; }
  workgroupBarrier();
  if (i == 0u) {
    let before = atomicAdd(&arrived[id.x / 32u], 1u + odd);
    is_last = select(0u, 1u, before == 31u);
    if (before == 31u) { atomicStore(&arrived[id.x / 32u], 0u); }
  }
  if (workgroupUniformLoad(&is_last) == 0u) { return; }
  var right = 1u;
  for (var group = id.x / 32u * 32u; group < id.x / 32u * 32u + 32u; group++) {
    if (atomicLoad(&parts[group * 64u + i]) != part(group, i)) { right = 0u; }
  }
  atomicAdd(&out[i], right);
}
)";

// A workgroup of one subgroup: each round every lane reads what another one left, one of them tells all the
// others, and each writes again. Without a barrier that is only right where every lane has read before the
// first one writes.
constexpr std::string_view kLockstep = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
var<workgroup> words: array<u32, LANES>;
var<workgroup> told: u32;
@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
  words[lane] = lane;
  for (var round = 0u; round < 64u; round++) {
    let read = words[(lane + round + 1u) % LANES];
    if (lane == round % LANES) { told = read; }
    words[lane] = read * 3u + told + round;
  }
  for (var i = lane; i < 64u; i += LANES) { out[i] = words[(i + 1u) % LANES]; }
}
)";

// One subgroup multiplies two matrices of ones: every element of the product is K. Words, whatever the type.
constexpr std::string_view kMatrix = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
var<workgroup> left: array<u32, 512>;
var<workgroup> right: array<u32, 512>;
var<workgroup> product: array<u32, 512>;
@compute @workgroup_size(THREADS) fn main(@builtin(local_invocation_index) i: u32) {
  for (var j = i; j < 512u; j += THREADS) { left[j] = ONES; right[j] = ONES; product[j] = 0u; }
  workgroupBarrier();
  let a = subgroupMatrixLoad<subgroup_matrix_left<INPUT, K, M>, row_major>(&left, 0u, LEFT_STRIDE);
  let b = subgroupMatrixLoad<subgroup_matrix_right<INPUT, N, K>, row_major>(&right, 0u, RIGHT_STRIDE);
  var c = subgroup_matrix_result<OUTPUT, N, M>();
  c = subgroupMatrixMultiplyAccumulate(a, b, c);
  subgroupMatrixStore<row_major>(&product, 0u, c, OUT_STRIDE);
  workgroupBarrier();
  for (var j = i; j < 64u; j += THREADS) { out[j] = product[j]; }
}
)";

// 64 vectors of an image that are far from each other.
constexpr std::string_view kImage = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var image: texture_storage_2d<rgba32uint, read>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
  let at = i * STEP;
  out[i] = textureLoad(image, vec2<u32>(at % WIDTH, at / WIDTH))[i & 3u];
}
)";

// Only says whether the language extension is there.
constexpr std::string_view kMatrixProbe = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
alias Left = subgroup_matrix_left<f16, 16, 16>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) { out[i] = i; }
)";

Device open(const Adapter& adapter, const Features& features) {
  return Device::create(adapter, features,
                        {.deadline = std::chrono::seconds(10),
                         .faults = std::make_shared<FaultPlan>(std::vector<std::string>{})});
}

struct PlainParams {
  uint32_t scale = 3;
  int32_t add = -1;
};

Words run(Device& device, std::string_view source, const std::vector<Constant>& constants = {}) {
  const Kernel kernel = device.kernel({.name = "feature test", .wgsl = source, .constants = constants});
  const Buffer out = device.alloc(sizeof(Words), "feature test");
  Recorder recorder(device, "feature test");
  if (kernel.params_size())
    recorder.dispatch(kernel, {out}, {}, PlainParams{});
  else
    recorder.dispatch(kernel, {out}, {});
  Readback readback = recorder.read(out, 0, sizeof(Words));
  recorder.submit();
  Words words;
  std::memcpy(words.data(), readback.wait().data(), sizeof words);
  return words;
}

/// A device of its own per test: a feature that breaks the device must not spoil the next test.
template <typename Test>
bool proves(const Adapter& adapter, const Features& features, std::string_view what, Test test) {
  try {
    Device device = open(adapter, features);
    if (test(device)) return true;
    log(LogLevel::debug, "{}: {} gives wrong results", adapter.info().name, what);
  } catch (const Error& e) {
    log(LogLevel::debug, "{}: no {}: {}", adapter.info().name, what, e.what());
  }
  return false;
}

bool plain_works(Device& device) {
  const Words words = run(device, kPlain);
  for (uint32_t i = 0; i < kWords; ++i)
    if (words[i] != 3 * i - 1) return false;
  return true;
}

bool f16_works(Device& device) {
  const Words words = run(device, kF16);
  for (uint32_t i = 0; i < kWords; ++i)
    if (words[i] != 64 - i) return false;
  return true;
}

bool dot4_works(Device& device) {
  const Words words = run(device, kDot4);
  for (uint32_t i = 0; i < kWords; ++i)
    if (words[i] != 8 * i) return false;
  return true;
}

bool unpack_works(Device& device) {
  const Words words = run(device, kUnpack);
  for (uint32_t i = 0; i < kWords; ++i) {
    const int exponent = static_cast<int>(i & 31), mantissa = 1 << i % 10;
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                     : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    const auto got = std::bit_cast<float>(words[i]);
    if (exponent == 31 ? !std::isnan(got) : got != (i < 32 ? size : -size)) return false;
  }
  return true;
}

bool pack_works(Device& device) {
  const Words words = run(device, kPack);
  for (uint32_t i = 0; i < kWords; ++i) {
    const int exponent = static_cast<int>(i % 43) - 26;
    const double mantissa = 0x1p23 + static_cast<double>(((i << 13) + 4095 + i % 3) & 0x7fffff);
    const int unit = std::max(exponent - 10, -24);  // 2^unit is what the last bit counts
    const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(mantissa, exponent - 23 - unit)));
    const uint32_t half = std::min<uint32_t>(units + (static_cast<uint32_t>(unit + 24) << 10), 0x7c00);
    const uint32_t first = half | (i & 32) << 10, second = first ^ 0x8000;
    if (words[i] != (first | second << 16)) return false;
  }
  return true;
}

/// Subgroup sizes seen go into `features`; what Dawn reports as the range is kept when it is wider.
bool subgroups_work(Device& device, Features& features) {
  const Words words = run(device, kSubgroups);
  for (uint32_t word : words) {
    const uint32_t size = word >> 16, sum = word & 0xffff;
    const uint32_t lanes = std::min(size, kWords);
    if (size < 2 || size > 128 || sum != lanes * (lanes - 1) / 2) return false;
    features.subgroup_min = features.subgroup_min ? std::min(features.subgroup_min, size) : size;
    features.subgroup_max = std::max(features.subgroup_max, size);
  }
  return true;
}

bool timestamps_work(Device& device) {
  const abi::Api& api = device.state()->api();
  if (api.is_wgpu() && !api.QueueGetTimestampPeriod) return false;  // ticks of unknown length
  const Kernel kernel = device.kernel({.name = "feature test", .wgsl = kPlain});
  const Buffer out = device.alloc(sizeof(Words), "feature test");
  Recorder recorder(device, "feature test", Trace::dispatches);
  for (int i = 0; i < 2; ++i) recorder.dispatch(kernel, {out}, {}, PlainParams{});
  recorder.submit();
  const std::vector<Timing> timings = recorder.timings();
  return timings.size() == 2 && std::ranges::all_of(timings, [](const Timing& t) {
           return t.microseconds > 0 && t.microseconds < 1e7;
         });
}

bool last_workgroup_works(Device& device) {
  constexpr uint32_t kCounters = 16, kGroups = 32 * kCounters, kRounds = 32;
  struct Params {
    uint32_t round = 0, zero = 0;
  };
  const Kernel kernel = device.kernel({.name = "feature test", .wgsl = kLastWorkgroup});
  // The device is new, and so is its memory: all of it is 0.
  const Buffer out = device.alloc(sizeof(Words), "feature test"),
               parts = device.alloc(kGroups * sizeof(Words), "feature test"),
               arrived = device.alloc(kCounters * sizeof(uint32_t), "feature test");
  Recorder recorder(device, "feature test");
  for (uint32_t round = 1; round <= kRounds; ++round)
    recorder.dispatch(kernel, {out, parts, arrived}, {kGroups}, Params{.round = round});
  Readback readback = recorder.read(out, 0, sizeof(Words));
  recorder.submit();
  Words words;
  std::memcpy(words.data(), readback.wait().data(), sizeof words);
  return std::ranges::all_of(words, [](uint32_t right) { return right == kCounters * kRounds; });
}

bool lockstep_works(Device& device, uint32_t lanes) {
  std::vector<uint32_t> expected(lanes);
  std::iota(expected.begin(), expected.end(), 0u);
  for (uint32_t round = 0; round < 64; ++round) {
    const std::vector<uint32_t> before = expected;
    const uint32_t told = before[(round % lanes + round + 1) % lanes];
    for (uint32_t lane = 0; lane < lanes; ++lane)
      expected[lane] = before[(lane + round + 1) % lanes] * 3 + told + round;
  }
  const Words words = run(device, kLockstep, {{"LANES", lanes}});
  for (uint32_t i = 0; i < kWords; ++i)
    if (words[i] != expected[(i + 1) % lanes]) return false;
  return true;
}

bool images_work(Device& device) {
  constexpr uint32_t kStep = 331, kVectors = kStep * (kWords - 1) + 1;  // 5 rows and a piece
  const Kernel kernel = device.kernel(
      {.name = "feature test", .wgsl = kImage, .constants = {{"STEP", kStep}, {"WIDTH", kImageWidth}}});
  const Buffer out = device.alloc(sizeof(Words), "feature test"),
               image = device.alloc(uint64_t{kVectors} * 16, "feature test");
  std::vector<uint32_t> values(size_t{kVectors} * 4);
  for (const uint32_t first : {7u, 1000u}) {  // the second time it is copied again
    std::iota(values.begin(), values.end(), first);
    device.write(image, 0, std::as_bytes(std::span(values)));
    Recorder recorder(device, "feature test");
    recorder.dispatch(kernel, {out, image}, {});
    Readback readback = recorder.read(out, 0, sizeof(Words));
    recorder.submit();
    Words words;
    std::memcpy(words.data(), readback.wait().data(), sizeof words);
    for (uint32_t i = 0; i < kWords; ++i)
      if (words[i] != first + i * kStep * 4 + i % 4) return false;
  }
  return true;
}

struct ScalarType {
  std::string_view name;
  uint32_t per_word;  // elements of 32 bits
  uint32_t ones;      // a word of ones
};
constexpr ScalarType kF16Type{"f16", 2, 0x3c003c00}, kF32Type{"f32", 1, 0x3f800000},
    kI8Type{"i8", 4, 0x01010101}, kU8Type{"u8", 4, 0x01010101}, kI32Type{"i32", 1, 1}, kU32Type{"u32", 1, 1};

uint32_t word_of(const ScalarType& type, uint32_t value) {
  if (type.name == "f32") {
    const auto f = static_cast<float>(value);
    uint32_t word;
    std::memcpy(&word, &f, sizeof word);
    return word;
  }
  if (type.name == "f16") {  // powers of two only
    const uint32_t half = (15 + static_cast<uint32_t>(std::countr_zero(value))) << 10;
    return half << 16 | half;
  }
  return value;
}

bool matrix_works(Device& device, const ScalarType& input, const ScalarType& output, uint32_t m, uint32_t n,
                  uint32_t k) {
  const std::string source =
      replace_all(replace_all(std::string(kMatrix), "INPUT", input.name), "OUTPUT", output.name);
  const Words words = run(device, source,
                          {{"M", m},
                           {"N", n},
                           {"K", k},
                           {"THREADS", device.features().subgroup_max},
                           {"ONES", input.ones},
                           {"LEFT_STRIDE", k / input.per_word},
                           {"RIGHT_STRIDE", n / input.per_word},
                           {"OUT_STRIDE", n / output.per_word}});
  const size_t checked = std::min<size_t>(m * n / output.per_word, kWords);
  return std::all_of(words.begin(), words.begin() + static_cast<ptrdiff_t>(checked),
                     [&](uint32_t word) { return word == word_of(output, k); });
}

/// Every shape any known GPU offers, tried one by one.
std::vector<MatrixConfig> find_matrices(const Adapter& adapter, const Features& features) {
  constexpr std::pair<ScalarType, ScalarType> types[] = {{kF16Type, kF32Type},
                                                         {kF16Type, kF16Type},
                                                         {kF32Type, kF32Type},
                                                         {kI8Type, kI32Type},
                                                         {kU8Type, kU32Type}};
  constexpr std::array<uint32_t, 3> shapes[] = {{16, 16, 16}, {16, 16, 32}, {16, 8, 16}, {16, 8, 8},
                                                {8, 8, 8},    {8, 16, 16},  {8, 8, 16},  {8, 8, 32},
                                                {8, 16, 32},  {16, 8, 32},  {32, 32, 16}};
  std::vector<MatrixConfig> found;
  std::optional<Device> device;  // one for all: opening a device takes longer than many compilations
  for (const auto& [input, output] : types)
    for (const auto& [m, n, k] : shapes) {
      if (m * n > 512 || m * k / input.per_word > 512) continue;
      try {
        if (!device) device = open(adapter, features);
        if (matrix_works(*device, input, output, m, n, k))
          found.push_back({std::string(input.name), std::string(output.name), m, n, k});
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::lost || e.kind() == ErrorKind::timeout) device.reset();
      }
    }
  return found;
}

void prove_matrices(const Adapter& adapter, Features& features) {
  // chromium-experimental-subgroup-matrix is 0x50034 in Dawn of 2026. Such numbers move between versions, so
  // its neighbours are tried after it.
  std::vector<uint32_t> candidates;
  for (uint32_t number : adapter.claimed_features())
    if (number >= 0x50020 && number < 0x50060) candidates.push_back(number);
  std::ranges::stable_partition(candidates, [](uint32_t number) { return number == 0x50034; });
  for (uint32_t number : candidates) {
    Features with = features;
    with.matrix_feature = number;
    with.matrices = {{}};  // asks for the feature
    const auto compiles = [&](Device& device) {
      device.kernel({.name = "feature test", .wgsl = kMatrixProbe});
      return true;
    };
    if (!proves(adapter, with, fmt::format("subgroup matrices as feature {:#x}", number), compiles)) continue;
    features.matrices = find_matrices(adapter, with);
    if (!features.matrices.empty()) features.matrix_feature = number;
    return;
  }
}

}  // namespace

Features prove_features(const Adapter& adapter) {
  const abi::Api& api = adapter.library().state()->api;
  Device plain = open(adapter, {});
  if (!plain_works(plain))
    fail(ErrorKind::unsupported, "[gpu] {} computes wrong results", adapter.info().name);

  Features proven;
  const bool may_immediates = api.ComputePassEncoderSetImmediates &&
                              adapter.raw_limits().max_immediates >= 64 &&
                              (api.is_dawn() || adapter.claims(abi::kFeatureWgpuImmediates));
  if (may_immediates) proven.immediates = proves(adapter, {.immediates = true}, "immediates", plain_works);
  if (adapter.claims(api.feature_f16())) proven.f16 = proves(adapter, {.f16 = true}, "f16", f16_works);
  proven.dot4 = proves(adapter, {.dot4 = true}, "dot4I8Packed", dot4_works);
  proven.unpack_f16 = proves(adapter, {}, "exact unpack2x16float", unpack_works);
  proven.pack_f16 = proves(adapter, {}, "exact pack2x16float", pack_works);
  proven.last_workgroup = proves(adapter, {}, "order of a last workgroup", last_workgroup_works);
  // The numbers of formats are those of class C.
  if (api.abi == abi::Class::c && api.CommandEncoderCopyBufferToTexture)
    proven.images = proves(adapter, {}, "images", images_work);
  if (adapter.claims(api.feature_timestamps()))
    proven.timestamps = proves(adapter, {.timestamps = true}, "timestamps", timestamps_work);
  if (adapter.claims(api.feature_subgroups())) {
    Features sizes = adapter.info().features;
    proven.subgroups = proves(adapter, {.subgroups = true}, "subgroups",
                              [&](Device& d) { return subgroups_work(d, sizes); });
    if (proven.subgroups) {
      proven.subgroup_min = sizes.subgroup_min;
      proven.subgroup_max = sizes.subgroup_max;
      proven.lockstep = sizes.subgroup_min == sizes.subgroup_max &&
                        proves(adapter, {}, "lanes in lockstep",
                               [&](Device& d) { return lockstep_works(d, sizes.subgroup_min); });
    }
  }
  if (api.is_dawn() && proven.subgroups && proven.f16) prove_matrices(adapter, proven);
  return proven;
}

void measure_costs(Device& device, AdapterReport& report) {
  constexpr int kDispatches = 200, kRepeats = 9;
  const Kernel kernel = device.kernel({.name = "cost", .wgsl = kPlain});
  const Buffer out = device.alloc(sizeof(Words), "cost");
  const auto median_us = [&](int dispatches) {
    std::array<double, kRepeats> us;
    for (double& time : us) {
      const auto begin = std::chrono::steady_clock::now();
      Recorder recorder(device, "cost");
      for (int i = 0; i < dispatches; ++i) recorder.dispatch(kernel, {out}, {}, PlainParams{});
      recorder.submit().wait();
      time = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    }
    std::ranges::sort(us);
    return us[kRepeats / 2];
  };
  median_us(1);  // compiles and warms up
  report.submit_us = median_us(1);
  report.dispatch_us = std::max(0.0, (median_us(kDispatches) - report.submit_us) / (kDispatches - 1));
}

Features enabled_features(const Features& proven) {
  Features features = proven;
  for (const std::string& name : env::get_list("WEFT_GPU_DISABLE")) {
    if (name == "f16") features.f16 = features.unpack_f16 = features.pack_f16 = false;
    if (name == "subgroups") features.subgroups = false;
    if (name == "timestamps") features.timestamps = false;
    if (name == "immediates") features.immediates = false;
    if (name == "last_workgroup") features.last_workgroup = false;
    if (name == "lockstep") features.lockstep = false;
    if (name == "images") features.images = false;
    if (name == "subgroup_matrix" || name == "subgroups") features.matrices.clear();
  }
  if (!features.f16)
    std::erase_if(features.matrices,
                  [](const MatrixConfig& c) { return c.input == "f16" || c.output == "f16"; });
  return features;
}

}  // namespace weft::gpu
