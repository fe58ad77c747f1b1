#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/array.h"
#include "weft/grad.h"

/// Elementwise ops of a program's own. They broadcast, promote and fuse as the built-in ones do: with the ops
/// around them they become one loop on the CPU and one kernel on a GPU.
namespace weft {

/// An op that was made by custom_op(); arrays are its arguments, as many as its function has.
class CustomOp {
 public:
  Array operator()(const std::vector<Array>& inputs) const;
  template <typename... Arrays>
  Array operator()(const Array& first, const Arrays&... rest) const {
    return (*this)(std::vector<Array>{first, rest...});
  }

  /// How n elements are computed on the CPU: floats in, floats out.
  using Loop = void (*)(const void* const* inputs, void* out, int64_t n, const double* unused);
  CustomOp(std::string name, int arity, Loop cpu, std::string wgsl, CustomVjp gradient);

 private:
  const struct Op* op_;
};

namespace detail {

template <typename... Floats>
std::index_sequence_for<Floats...> arguments_of(float (*)(Floats...));

template <auto f, size_t... k>
void loop(const void* const* inputs, void* out, int64_t n, std::index_sequence<k...>) {
  for (int64_t i = 0; i < n; ++i) static_cast<float*>(out)[i] = f(static_cast<const float*>(inputs[k])[i]...);
}

}  // namespace detail

/// `f`: a function of one to three floats, for the CPU. `wgsl`: the same as an expression of f32 over {0},
/// {1} and {2}, for GPUs. `gradient`: from (arguments, result, gradient of the result) to one array per
/// argument; without it, differentiating through the op is an error.
///
///   const CustomOp bump = custom_op<[](float x) { return 1 / (1 + x * x); }>(
///       "bump", "1.0 / (1.0 + {0} * {0})",
///       [](const auto& in, const Array& y, const Array& g) { return std::vector{g * y * y * in[0] * -2.0};
///       });
///
/// Integers are computed as f32. A name is given once, and stays for as long as the program runs.
template <auto f>
CustomOp custom_op(std::string name, std::string wgsl, CustomVjp gradient = {}) {
  using Arguments = decltype(detail::arguments_of(+f));
  const CustomOp::Loop cpu = [](const void* const* inputs, void* out, int64_t n, const double*) {
    detail::loop<f>(inputs, out, n, Arguments());
  };
  return {std::move(name), static_cast<int>(Arguments::size()), cpu, std::move(wgsl), std::move(gradient)};
}

}  // namespace weft
