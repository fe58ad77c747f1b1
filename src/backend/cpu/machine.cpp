// What a program's registers hold, and how they are filled, computed and emptied.
#include "backend/cpu/machine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "array/half.h"
#include "backend/cpu/halves.h"
#include "backend/cpu/stream.h"
#include "backend/cpu/wide.h"

namespace weft::cpu {
namespace {

// ---- Between memory and registers.
// -----------------------------------------------------------------------------

/// Where the elements of a register are: rows of n, of which each may lie anywhere.
struct Places {
  int64_t first, stride, n;
  int64_t row_stride = 0, rows = 1;
};

/// Reads elements into a register of the dtype's lane.
template <typename From, typename To, typename Convert>
void load_as(const std::byte* data, const Places& places, void* reg, Convert convert) {
  const auto* from = reinterpret_cast<const From*>(data) + places.first;
  auto* to = static_cast<To*>(reg);
  const int64_t n = places.n, stride = places.stride;
  if (n == 2) {  // neighbours that change places: as one loop
    for (int64_t row = 0; row < places.rows; ++row) {
      to[2 * row] = convert(from[row * places.row_stride]);
      to[2 * row + 1] = convert(from[row * places.row_stride + stride]);
    }
    return;
  }
  for (int64_t row = 0; row < places.rows; ++row, from += places.row_stride, to += n) {
    if (stride == 1)
      for (int64_t i = 0; i < n; ++i) to[i] = convert(from[i]);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = convert(from[i * stride]);
  }
}

void load(DType dtype, const std::byte* data, const Places& places, void* reg) {
  const auto same = [](auto x) { return x; };
  switch (dtype) {
    case DType::f32:
      return load_as<float, float>(data, places, reg, same);
    case DType::f16:
      if (places.stride == 1 && places.rows == 1)
        return halves_to_floats(reinterpret_cast<const uint16_t*>(data) + places.first,
                                static_cast<float*>(reg), places.n);
      return load_as<uint16_t, float>(data, places, reg, half_to_float);
    case DType::bf16:
      return load_as<uint16_t, float>(data, places, reg, bfloat_to_float);
    case DType::i32:
      return load_as<int32_t, int32_t>(data, places, reg, same);
    case DType::u32:
      return load_as<uint32_t, uint32_t>(data, places, reg, same);
    case DType::i64:
      return load_as<int64_t, int64_t>(data, places, reg, same);
    case DType::u8:
      return load_as<uint8_t, uint32_t>(data, places, reg, same);
    case DType::i8:
      return load_as<int8_t, int32_t>(data, places, reg, same);
    case DType::boolean:
      return load_as<uint8_t, int32_t>(data, places, reg, [](uint8_t x) { return x != 0; });
  }
}

template <typename From, typename To, typename Convert>
void store_as(const void* reg, std::byte* data, int64_t at, int64_t n, Convert convert) {
  const auto* from = static_cast<const From*>(reg);
  auto* to = reinterpret_cast<To*>(data) + at;
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(convert(from[i]));
}

void store(DType dtype, const void* reg, std::byte* data, int64_t at, int64_t n) {
  const auto same = [](auto x) { return x; };
  switch (dtype) {
    case DType::f32:
      return store_as<float, float>(reg, data, at, n, same);
    case DType::f16:
      return floats_to_halves(static_cast<const float*>(reg), reinterpret_cast<uint16_t*>(data) + at, n);
    case DType::bf16:
      return store_as<float, uint16_t>(reg, data, at, n, float_to_bfloat);
    case DType::i32:
      return store_as<int32_t, int32_t>(reg, data, at, n, same);
    case DType::u32:
      return store_as<uint32_t, uint32_t>(reg, data, at, n, same);
    case DType::i64:
      return store_as<int64_t, int64_t>(reg, data, at, n, same);
    case DType::u8:
      return store_as<uint32_t, uint8_t>(reg, data, at, n, same);
    case DType::i8:
      return store_as<int32_t, int8_t>(reg, data, at, n, same);
    case DType::boolean:
      return store_as<int32_t, uint8_t>(reg, data, at, n, [](int32_t x) { return x != 0; });
  }
}

// ---- Inside registers.
// -----------------------------------------------------------------------------------------

/// Wraps or rounds a register to a dtype narrower than its lane.
void narrow(DType dtype, void* reg, int64_t n) {
  const auto each = [&](auto* values, auto f) {
    for (int64_t i = 0; i < n; ++i) values[i] = f(values[i]);
  };
  switch (dtype) {
    case DType::f16:
      return round_to_halves(static_cast<float*>(reg), n);
    case DType::bf16:
      return round_to_bfloats(static_cast<float*>(reg), n);
    case DType::u8:
      return each(static_cast<uint32_t*>(reg), [](uint32_t x) { return x & 0xff; });
    case DType::i8:
      return each(static_cast<int32_t*>(reg),
                  [](int32_t x) { return static_cast<int32_t>(static_cast<int8_t>(x)); });
    default:
      return;
  }
}

template <typename To>
To from_float(float x) {  // toward zero; out of range is clamped rather than undefined
  if constexpr (std::is_same_v<To, float>) {
    return x;
  } else {
    constexpr auto low = static_cast<double>(std::numeric_limits<To>::min()),
                   high = static_cast<double>(std::numeric_limits<To>::max());
    if (std::isnan(x)) return 0;
    if (x >= high) return std::numeric_limits<To>::max();
    return x <= low ? std::numeric_limits<To>::min() : static_cast<To>(x);
  }
}

template <typename From, typename To>
void convert_lane(const void* in, void* out, int64_t n) {
  const auto* from = static_cast<const From*>(in);
  auto* to = static_cast<To*>(out);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<From, float>)
      to[i] = from_float<To>(from[i]);
    else
      to[i] = static_cast<To>(from[i]);
  }
}

template <typename From>
void convert_from(const void* in, Lane to, void* out, int64_t n) {
  switch (to) {
    case Lane::f32:
      return convert_lane<From, float>(in, out, n);
    case Lane::i32:
      return convert_lane<From, int32_t>(in, out, n);
    case Lane::u32:
      return convert_lane<From, uint32_t>(in, out, n);
    case Lane::i64:
      return convert_lane<From, int64_t>(in, out, n);
    case Lane::boolean: {
      const auto* from = static_cast<const From*>(in);
      for (int64_t i = 0; i < n; ++i) static_cast<int32_t*>(out)[i] = from[i] != 0;
    }
  }
}

void convert(DType from, const void* in, DType to, void* out, int64_t n) {
  // A float goes to a narrow or unsigned integer through i64, so that negative values wrap as PyTorch's do.
  switch (lane_of(from)) {
    case Lane::f32:
      if (to == DType::u8 || to == DType::u32) {
        for (int64_t i = 0; i < n; ++i)
          static_cast<uint32_t*>(out)[i] =
              static_cast<uint32_t>(from_float<int64_t>(static_cast<const float*>(in)[i]));
        return;
      }
      return convert_from<float>(in, lane_of(to), out, n);
    case Lane::u32:
      return convert_from<uint32_t>(in, lane_of(to), out, n);
    case Lane::i64:
      return convert_from<int64_t>(in, lane_of(to), out, n);
    case Lane::i32:
    case Lane::boolean:
      return convert_from<int32_t>(in, lane_of(to), out, n);
  }
}

void fill_constant(DType dtype, double value, void* out, int64_t n) {
  const auto fill = [&](auto typed) { std::fill_n(static_cast<decltype(typed)*>(out), n, typed); };
  switch (lane_of(dtype)) {
    case Lane::f32:
      return fill(static_cast<float>(value));
    case Lane::i32:
      return fill(static_cast<int32_t>(value));
    case Lane::u32:
      return fill(static_cast<uint32_t>(static_cast<int64_t>(value)));
    case Lane::i64:
      return fill(static_cast<int64_t>(value));
    case Lane::boolean:
      return fill(static_cast<int32_t>(value != 0));
  }
}

template <typename T>
void spread_first(T* values, int64_t n) {
  std::fill_n(values, n, *values);
}

/// Where element `at` is.
void* place(const Tensor& x, int64_t at) {
  return x.data + at * static_cast<int64_t>(size_of(x.dtype));
}

}  // namespace

bool is_plain(DType dtype) {
  return dtype == DType::f32 || dtype == DType::i32 || dtype == DType::u32 || dtype == DType::i64;
}

bool is_streamed(const Tensor& result) {
  return is_streamed(static_cast<uint64_t>(element_count(result.layout.shape)) * size_of(result.dtype));
}

LaneFunction streamed_form(const ScalarOp& op, DType dtype) {
  if (dtype == DType::f16) return op.cpu_streamed[1];
  if (dtype == DType::bf16) return op.cpu_streamed[2];
  return dtype == DType::f32 ? op.cpu_streamed[0] : nullptr;
}

bool is_renaming(const ElementwiseProgram& program, size_t reg) {
  const size_t loads = program.loads.size();
  const ElementwiseProgram::Instruction& i = program.instructions[reg - loads];
  if (i.fold != Fold::none || i.arity() != 1 || lane_of(i.dtype) != Lane::f32) return false;
  const DType from = program.dtype_of(i.inputs[0]);
  if (lane_of(from) != Lane::f32 || i.op->cpu[static_cast<size_t>(Lane::f32)]) return false;
  const auto reads = [&](const ElementwiseProgram::Instruction& other) {
    return std::ranges::find(other.inputs.begin(), other.inputs.begin() + other.arity(),
                             static_cast<int>(reg)) != other.inputs.begin() + other.arity();
  };
  return i.dtype == DType::f32 || std::ranges::none_of(program.instructions, reads);
}

Machine::Machine(const ElementwiseProgram& program, int64_t tile, std::span<const Tensor> outputs,
                 const RowRegisters& rows)
    : program_(program),
      loads_(program.loads.size()),
      registers_(loads_ + program.instructions.size()),
      calls_(program.instructions.size()) {
  const auto is_one_of = [](const std::vector<bool>& flags, size_t reg) {
    return reg < flags.size() && flags[reg];
  };
  const auto width = [&](size_t reg) -> int64_t {
    return reg < registers_.size() && program.dtype_of(static_cast<int>(reg)) != DType::i64 ? 4 : 8;
  };
  const auto lines = [&](size_t reg) {  // one to spare: registers 2 KiB apart would compete for lines of L1
    return ((is_one_of(rows.is_kept, reg) ? rows.length : tile) * width(reg) + kLineBytes - 1) / kLineBytes +
           1;
  };
  int64_t all = 0;
  for (size_t reg = 0; reg <= registers_.size(); ++reg) all += lines(reg);
  memory_ = std::make_unique_for_overwrite<Line[]>(static_cast<size_t>(all));
  Line* next = memory_.get();
  for (size_t reg = 0; reg <= registers_.size(); next += lines(reg), ++reg)
    owned_.push_back({next->bytes, width(reg)});
  for (size_t reg = 0; reg < registers_.size(); ++reg) registers_[reg] = own(reg);
  for (size_t i = 0; i < calls_.size(); ++i) {
    const ElementwiseProgram::Instruction& instruction = program.instructions[i];
    for (int k = 0; k < instruction.arity(); ++k) {
      const int reg = instruction.inputs[static_cast<size_t>(k)];
      calls_[i].inputs[static_cast<size_t>(k)] = static_cast<size_t>(reg);
      calls_[i].from = program.dtype_of(reg);  // the last one decides: the first of `where` is a condition
      if (reg >= static_cast<int>(loads_)) calls_[static_cast<size_t>(reg) - loads_].is_read = true;
    }
    if (instruction.fold == Fold::none)
      calls_[i].function = instruction.op->cpu[static_cast<size_t>(lane_of(calls_[i].from))];
    calls_[i].is_renaming = is_renaming(program, loads_ + i);
    calls_[i].is_constant = instruction.arity() == 0;
    if (!calls_[i].is_constant) continue;
    fill_constant(instruction.dtype, instruction.attrs[0], own(loads_ + i), tile);  // the same in every tile
    narrow(instruction.dtype, own(loads_ + i), tile);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Tensor& to = outputs[k];
    if (program.row_dims > 0 && program.is_per_row(to.layout)) continue;
    const auto reg = static_cast<size_t>(program.stores[k]);
    const bool streamed = is_streamed(to);
    // Elements that finish() computes, not those that are there when it is called.
    const bool computed = reg >= loads_ && !calls_[reg - loads_].is_constant &&
                          !is_one_of(rows.is_kept, reg) && !is_one_of(rows.is_per_row, reg);
    Call* const call = computed ? &calls_[reg - loads_] : nullptr;
    if (streamed && call && !call->is_read && call->from == DType::f32 && to.dtype == DType::f32)
      call->streamed = streamed_form(*program.instructions[reg - loads_].op, to.dtype);
    if (call && !call->output && is_plain(to.dtype) && (!streamed || call->streamed))
      call->output = &to;
    else
      stores_.push_back({reg, &to, streamed});
  }
}

void Machine::load(size_t reg, const Tensor& from, int64_t offset, int64_t stride, int64_t n) {
  if (stride == 1 && is_plain(from.dtype))
    refer(reg, from, offset);
  else
    load_part(reg, from, offset, stride, 0, n);
}

void Machine::refer(size_t reg, const Tensor& from, int64_t offset) {
  registers_[reg] = place(from, offset);
}

void Machine::load_rows(size_t reg, const Tensor& from, int64_t offset, int64_t row_stride, int64_t rows,
                        int64_t stride, int64_t n) {
  if (row_stride == stride * n) return load(reg, from, offset, stride, rows * n);
  registers_[reg] = own(reg);
  wide<cpu::load>(from.dtype, static_cast<const std::byte*>(from.data),
                  Places{offset, stride, n, row_stride, rows}, own(reg));
}

void Machine::load_part(size_t reg, const Tensor& from, int64_t offset, int64_t stride, int64_t at,
                        int64_t n) {
  registers_[reg] = own(reg);
  wide<cpu::load>(from.dtype, static_cast<const std::byte*>(from.data), Places{offset, stride, n},
                  own(reg, at));
}

void Machine::run(int64_t at, int64_t n) {
  for (size_t reg = loads_; reg < registers_.size(); ++reg) finish(reg, at, n);
  store_rest(at, n);
}

void Machine::finish(size_t reg, int64_t at, int64_t n) {
  const Call& call = calls_[reg - loads_];
  if (!call.output) return compute(reg, n);
  void* const result = place(*call.output, at);
  if (call.streamed && n % kStrip == 0 && reinterpret_cast<uintptr_t>(result) % kLineBytes == 0) {
    compute_into(reg, call.streamed, result, n);
  } else if (call.streamed) {
    compute(reg, n);
    stream(registers_[reg], result, static_cast<size_t>(n) * sizeof(float));
  } else {
    compute_into(reg, call.function, result, n);
  }
}

void Machine::store_rest(int64_t at, int64_t n) const {
  for (const Store& s : stores_)
    if (s.is_streamed)
      stream_register(s.reg, *s.to, at, n);
    else
      store(s.reg, *s.to, at, n);
}

void Machine::run_direct(const Tensor& to, int64_t at, int64_t n) {
  compute_into(loads_, streamed_form(*program_.instructions[0].op, to.dtype), place(to, at), n);
}

void Machine::stream_register(size_t reg, const Tensor& to, int64_t at, int64_t n) const {
  const void* from = registers_[reg];
  if (!is_plain(to.dtype)) {
    void* scratch = own(registers_.size());
    wide<cpu::store>(to.dtype, from, static_cast<std::byte*>(scratch), int64_t{0}, n);
    from = scratch;
  }
  stream(from, place(to, at), static_cast<size_t>(n) * size_of(to.dtype));
}

void Machine::compute(size_t reg, int64_t n, int64_t at) {
  const Call& call = calls_[reg - loads_];
  if (call.is_constant) return;  // there already
  if (call.is_renaming)
    registers_[reg] = registers_[call.inputs[0]];
  else
    compute_into(reg, call.function, own(reg, at), n);
}

void Machine::recall(size_t reg, int64_t at) {
  registers_[reg] = own(reg, at);
}

void Machine::compute_into(size_t reg, LaneFunction function, void* result, int64_t n) {
  const Call& call = calls_[reg - loads_];
  const ElementwiseProgram::Instruction& i = program_.instructions[reg - loads_];
  const void* inputs[3];
  for (size_t k = 0; k < 3; ++k) inputs[k] = registers_[call.inputs[k]];
  if (function)
    function(inputs, result, n, i.attrs.data());
  else
    wide<convert>(call.from, inputs[0], i.dtype, result, n);
  if (call.is_read && !is_plain(i.dtype)) wide<narrow>(i.dtype, result, n);  // else store() does it
  registers_[reg] = result;
}

void Machine::set(size_t reg, const double* values, int64_t n) {
  std::copy_n(values, n, static_cast<float*>(own(reg)));
  narrow(program_.dtype_of(static_cast<int>(reg)), own(reg), n);
}

void Machine::spread(size_t reg, int64_t n) {
  const int64_t bytes = owned_[reg].bytes;
  std::memmove(own(reg), registers_[reg], static_cast<size_t>(bytes));
  registers_[reg] = own(reg);
  if (bytes == 8)
    wide<spread_first<int64_t>>(static_cast<int64_t*>(own(reg)), n);
  else
    wide<spread_first<uint32_t>>(static_cast<uint32_t*>(own(reg)), n);
}

void Machine::store(size_t reg, const Tensor& to, int64_t at, int64_t n) const {
  wide<cpu::store>(to.dtype, static_cast<const void*>(registers_[reg]), to.data, at, n);
}

}  // namespace weft::cpu
