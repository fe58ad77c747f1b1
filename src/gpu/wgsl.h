#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpu/abi.h"
#include "gpu/report.h"

/// One WGSL source for every library. Kernels are written in a small dialect, and this file alone knows what
/// each implementation wants to see of it:
///
///   - No `enable`, `requires` or `diagnostic` lines: they are added as the device needs them.
///   - Buffers are `@group(0) @binding(i) var<storage, read> a: array<f32>;` with i = 0, 1, 2 ... in order.
///   - An image is a buffer that is read through a texture, `@group(0) @binding(i) var a:
///     texture_storage_2d<rgba32uint, read>;`, with vector i of four words at (i % kImageWidth, i /
///     kImageWidth).
///   - Small parameters are `struct Params { n: u32, scale: f32 }`, scalars of 32 bits only, read as
///   `params.n`.
///     Whether they travel as immediates or in a uniform buffer is decided here: do not declare `params`.
///   - `#if NAME`, `#if !NAME`, `#else`, `#endif`: NAME is a constant of the kernel or a feature (F16,
///   SUBGROUPS,
///     SUBGROUP_MATRIX, DOT4, UNPACK_F16, PACK_F16). Constants are also WGSL constants of that name.
///   - `#for i COUNT`, `#endfor`: the lines between, once for each i; `$i` in them is 0u, 1u ... COUNT is a
///     number or a constant. For arrays that must stay in registers: compilers unroll loops as they please.
///   - `dot4_i8(a, b)` is dot4I8Packed where that exists and the same arithmetic where it does not.
///   - Pointers into storage as parameters, `subgroupElect` and `bitcast<vec2<f16>>` are refused everywhere,
///     because naga has none of them: a kernel that passes here passes on both.
namespace weft::gpu {

/// Value of a constant: bool, i32, u32 or f32 in the shader.
struct Constant {
  std::string name;
  std::variant<bool, int32_t, uint32_t, float> value;
};

/// How a kernel uses a buffer.
enum class Access { read, write, image };

/// How Params reach a kernel.
enum class ParamsPath { none, uniform, immediate };

struct WgslTarget {
  abi::AbiTraits abi;
  Features features;
  uint32_t max_immediates = 0;
};

struct Wgsl {
  std::string text;              ///< what the library compiles
  int prelude_lines = 0;         ///< lines before the first line of the source
  std::vector<Access> accesses;  ///< one per buffer
  uint32_t params_size = 0;      ///< bytes of Params, a multiple of 4
  ParamsPath params = ParamsPath::none;
};

/// Throws ErrorKind::invalid with the kernel's name and the line.
Wgsl translate(std::string_view kernel, std::string_view source, const std::vector<Constant>& constants,
               const WgslTarget& target);

std::string replace_all(std::string text, std::string_view word, std::string_view by);

/// A compiler's message with the line numbers of the kernel's own source: Tint and naga both write
/// `:LINE:COLUMN`.
std::string relate_to_source(const std::string& message, int prelude_lines);

}  // namespace weft::gpu
