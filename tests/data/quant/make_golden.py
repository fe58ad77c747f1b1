"""Makes golden.safetensors beside this file: blocks of every quantised type and the values gguf-py reads from them.

  pip install gguf
  python make_golden.py          # writes golden.safetensors: <type>.blocks, .values, .traits; <type>.grid
  python make_golden.py grids    # prints the point lists of src/quant/grids.cpp
"""

import json
import struct
import sys
import textwrap
from pathlib import Path

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Ggml

BLOCKS = 4
GRIDS = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"]

# Where the f16 scales of a block are. The other bytes may have any value.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0],
    "IQ1_S": [0], "TQ1_0": [52], "TQ2_0": [64],
}  # fmt: skip
OTHERS = ["F16", "BF16", "F32", "Q8_K", "IQ1_M", "MXFP4", "NVFP4"]


def random_blocks(name, rng):
    elements, size = GGML_QUANT_SIZES[Ggml[name]]
    if elements == 1:  # plain floats: 64 "blocks", of which some are special
        bits = {"F16": np.uint16, "BF16": np.uint16, "F32": np.uint32}[name]
        infinity = {"F16": 0x7C00, "BF16": 0x7F80, "F32": 0x7F800000}[name]
        sign = 0x80000000 if name == "F32" else 0x8000
        values = rng.integers(0, infinity, 64) | rng.integers(0, 2, 64) * sign
        values[:9] = [0, 1, 2, infinity - 1, infinity, infinity | infinity >> 1, sign, sign | 1, 0x3FF]
        return values.astype(bits).view(np.uint8).reshape(64, size)
    blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    blocks[0] = 255  # every field at its largest
    for block in blocks:
        for at in HALVES.get(name, []):
            block[at : at + 2] = np.array([rng.normal() / 16], np.float16).view(np.uint8)
        if name == "Q8_K":
            block[:4] = np.array([rng.normal() / 16], np.float32).view(np.uint8)
        if name == "IQ1_M":  # a nibble of the f16 in the upper half of each second byte
            half = int(np.array([rng.normal() / 16], np.float16).view(np.uint16)[0])
            for i in range(4):
                block[49 + 2 * i] = block[49 + 2 * i] & 15 | (half >> 4 * i & 15) << 4
    if name == "MXFP4":
        blocks[:, 0] = [0, 1, 127, 255]  # two subnormal scales, 2^0, one that overflows
    if name == "NVFP4":
        blocks[:, :4] = np.array([[0, 1, 7, 8], [0x38, 0x7E, 0x7F, 0x80], [0x81, 0xFF, 0x40, 0x0F], blocks[3, :4]])
    return blocks


def values_of(name, blocks):
    if name == "Q8_K":  # gguf-py has none: a float scale and signed bytes
        return blocks[:, :4].copy().view(np.float32) * blocks[:, 4:260].view(np.int8).astype(np.float32)
    with np.errstate(over="ignore"):
        return quants.dequantize(blocks, Ggml[name])


def grid_of(name):
    quant = getattr(quants, name)
    quant.init_grid()
    return quant.grid.reshape(quant.grid_shape).astype(np.int8)


def grid_letters(name):
    """A point is a number whose digits are its levels, element 0 first. The points are sorted: letters are distances
    to the point before, A = 1 ... z = 52, and + moves on by 52."""
    levels = np.array(getattr(quants, name).grid_map)
    digits = np.searchsorted(levels, grid_of(name))
    numbers = (digits * len(levels) ** np.arange(digits.shape[1])).sum(1)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    text, before = "", -1
    for number in numbers:
        plus, letter = divmod(int(number) - before - 1, 52)
        text += "+" * plus + alphabet[letter]
        before = int(number)
    return text


def write(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        dtype = {"uint8": "U8", "int8": "I8", "int32": "I32", "float32": "F32"}[array.dtype.name]
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    if sys.argv[1:] == ["grids"]:
        for name in GRIDS:
            print(name)
            print("\n".join(f'    "{line}"' for line in textwrap.wrap(grid_letters(name), 100)))
        return
    rng = np.random.default_rng(7)
    tensors = {}
    # Wider elements first, so that every tensor is aligned.
    names = OTHERS + list(HALVES)
    blocks = {name: random_blocks(name, rng) for name in names}
    for name in names:
        tensors[f"{name.lower()}.values"] = values_of(name, blocks[name]).astype(np.float32)
    for name in names:
        traits = [Ggml[name].value, *GGML_QUANT_SIZES[Ggml[name]]]
        tensors[f"{name.lower()}.traits"] = np.array(traits, np.int32)
    for name in names:
        tensors[f"{name.lower()}.blocks"] = blocks[name]
    for name in GRIDS:
        tensors[f"{name.lower()}.grid"] = grid_of(name)
    write(Path(__file__).with_name("golden.safetensors"), tensors)


if __name__ == "__main__":
    main()
