"""Makes encoded.safetensors beside this file: values and what ggml's quantisers make of them.

  pip install gguf
  python make_encoded.py LIBGGML_BASE.so    # of a llama.cpp release

  values         f32 (rows, 512)
  importance     f32 (512): of each column
  <type>.bytes   u8 (rows, bytes of 512 elements), by ggml; where gguf-py has an encoder, it agrees
  <type>.important   the same, with the importance
"""

import ctypes
import sys
from pathlib import Path

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Ggml
from make_golden import write

ROW = 512
TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K",
         "IQ4_NL", "IQ4_XS", "IQ3_S", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"]  # fmt: skip

IMPORTANT = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"]


def values():
    rng = np.random.default_rng(11)
    rows = [
        rng.normal(size=ROW) * 0.05,
        rng.standard_t(2, size=ROW) * 0.02,
        rng.uniform(0.5, 1, ROW),
        -rng.exponential(size=ROW),
        rng.integers(-8, 9, ROW),
        rng.normal(size=ROW) * (rng.random(ROW) < 0.02),
        np.repeat(rng.normal(size=ROW // 16) * (rng.random(ROW // 16) < 0.5), 16),
        rng.normal(size=ROW) * np.repeat(10.0 ** rng.uniform(-9, 3, ROW // 16), 16),
        np.repeat(rng.choice([0.0, -0.0], ROW // 8), 8),
    ]
    return np.array(rows, np.float32)


def encode(library, name, x, importance=None):
    elements, size = GGML_QUANT_SIZES[Ggml[name]]
    out = np.zeros((len(x), ROW // elements * size), np.uint8)
    source, target = x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p)
    if name == "Q8_K":  # made only inside of products
        library.quantize_row_q8_K_ref(source, target, ctypes.c_int64(x.size))
    else:
        library.ggml_quantize_init(Ggml[name].value)
        count, row = ctypes.c_int64(len(x)), ctypes.c_int64(ROW)
        weights = None if importance is None else importance.ctypes.data_as(ctypes.c_void_p)
        library.ggml_quantize_chunk(Ggml[name].value, source, target, ctypes.c_int64(0), count, row, weights)
    if importance is None:
        check(name, x, out)
    return out


def check(name, x, blocks):
    try:
        theirs = quants.quantize(x, Ggml[name])
    except NotImplementedError:
        print(f"{name}: gguf-py has no encoder")
        return
    # Values, not bytes: the scale of a block of zeros has another sign.
    assert (quants.dequantize(theirs, Ggml[name]) == quants.dequantize(blocks, Ggml[name])).all(), name


def main():
    library = ctypes.CDLL(sys.argv[1])
    x = values()
    importance = np.random.default_rng(12).exponential(size=ROW).astype(np.float32)
    tensors = {"values": x, "importance": importance}
    tensors |= {f"{name.lower()}.bytes": encode(library, name, x) for name in TYPES}
    tensors |= {f"{name.lower()}.important": encode(library, name, x, importance) for name in IMPORTANT}
    write(Path(__file__).with_name("encoded.safetensors"), tensors)


main()
