#pragma once

#include <type_traits>

#include "backend/cpu/kernel.h"

/// The primitive kernels that are not elementwise, one family per file. Dims are counted from 0 (negative
/// ones from the end); the caller has checked shapes and dtypes. Every result is the same for every number of
/// threads.
namespace weft::cpu {

using KernelFunction = std::remove_pointer_t<Kernel>;

// reduce.cpp. x -> x without "dims" (a list; [] = every element by itself). NaN propagates, integers wrap.
// Nothing to reduce: sum 0, prod 1, all true, any false; max and min throw.
KernelFunction reduce_sum, reduce_prod, reduce_max, reduce_min;  // to x's dtype
KernelFunction reduce_any, reduce_all;                           // any dtype to bool
KernelFunction argmax, argmin;  // "dim" (one) -> i32; the first on ties, the first NaN if there is one

// scan.cpp. x -> same shape; "dim", "reverse" (false). cumsum and cumprod also "exclusive" (false).
KernelFunction cumsum, cumprod, cummax, cummin, logcumsumexp;

// sort.cpp. x -> (values, indices i32); "dim", "descending" (false). Stable both ways; NaN is the largest
// value.
KernelFunction sort;

// gather.cpp. Indices are integers of any dtype; one outside of the dim throws.
KernelFunction gather;        // x, idx -> idx's shape; "dim"
KernelFunction index_select;  // x, idx [k] -> x with k at "dim"
KernelFunction scatter;       // x, idx, src -> x's shape; "dim", "mode": "set" or "add", in the order of idx
KernelFunction index_add;     // x, idx [k], src (x with k at "dim") -> x's shape
KernelFunction put_rows;      // -, idx [k], src (k, ..) -> rows of what the output has
KernelFunction searchsorted;  // sorted [..,n] or [n], values -> i32 of values' shape; "right" (false)

// move.cpp. Any dtype.
KernelFunction copy;          // any strides to contiguous
KernelFunction pad_constant;  // x -> the output's shape; "lo" per dim (negative crops), "value"
KernelFunction cat;           // any number of inputs; "dim"
KernelFunction tril, triu;    // last two dims; "diagonal" (0)

// conv.cpp. f32, up to 3 spatial dims; "stride", "dilation", "padding" (a list each), "groups".
KernelFunction convolve;         // x (n, ci, ..), w (co, ci/groups, ..) -> y (n, co, ..)
KernelFunction convolve_input;   // gradient of y, w -> gradient of x
KernelFunction convolve_weight;  // x, gradient of y -> gradient of w

// random.cpp.
KernelFunction random_bits;  // key u32 [2] -> u32 of the output's shape
// attention.cpp. Any strides in, scores in no memory; see backend/attention.h for the shapes.
KernelFunction attention;           // q, k, v, mask? -> out, stats
KernelFunction attention_backward;  // q, k, v, gradient of out, stats, delta, mask? -> gradients of q, k, v

// cached_attention.cpp. Rows of a cache are read where they are; see ops/attention.cpp for the inputs.
KernelFunction cached_attention;

// quant.cpp. Blocks of ggml's "type", u8 (.., row bytes), and packed weights (quant/packing.h) of 16 rows
// together.
KernelFunction quantize;           // x f32 -> blocks
KernelFunction dequantize;         // w -> f32
KernelFunction repack;             // w (n, row bytes) -> words; "k"
KernelFunction dequantize_packed;  // words -> f32 or f16 (n, k); "n", "k"

// qmatmul.cpp. Products with packed weights (n, k); "type", "n", "k".
KernelFunction qmatmul_packed;    // x f32 (.., k), words -> f32 (.., n)
KernelFunction activation_codes;  // x f32 (.., k) -> codes and scales, words (.., k / 32 * (bits + 4))
KernelFunction qmatmul_codes;     // what activation_codes made, words -> f32 (.., n)

// experts.cpp. Rows of x, or their codes ("bits"), times the matrices of a stack that ids name.
KernelFunction expert_matmul;

}  // namespace weft::cpu
