"""Makes recipes.json beside this file: which type llama-quantize gives to each tensor of a few models.

  pip install gguf
  LD_LIBRARY_PATH=FOLDER python make_recipes.py FOLDER    # with libllama.so of a llama.cpp release

  letters   type: letter
  models    architecture, layers, experts, heads, kv_heads, row;
            tensors: [name, shape]; types: for each recipe one letter per tensor;
            important: the same with an importance matrix
"""

import ctypes
import json
import math
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

RECIPES = dict(f32=0, f16=1, bf16=32, q8_0=7, q6_k=18, q5_k_m=17, q5_k_s=16, q5_1=9, q5_0=8, q4_k_m=15, q4_k_s=14,
               q4_1=3, q4_0=2, iq4_nl=25, iq4_xs=30, mxfp4_moe=38, iq3_m=27, iq3_s=26, q3_k_l=13, q3_k_m=12, q3_k_s=11, q2_k=10,
               tq2_0=37, tq1_0=36)  # fmt: skip
IMPORTANT = dict(iq3_xs=22, iq3_xxs=23, iq2_m=29, iq2_s=28, iq2_xs=20, iq2_xxs=19, iq1_m=31, iq1_s=24,
                 iq4_nl=25, iq4_xs=30, q4_0=2, q5_0=8, q4_k_m=15, iq3_m=27)  # fmt: skip
MODELS = [
    dict(architecture="llama", layers=16, experts=0, heads=8, kv_heads=2, row=256),
    dict(architecture="llama", layers=80, experts=0, heads=8, kv_heads=2, row=256, only=["attn_v"]),
    dict(architecture="llama", layers=5, experts=0, heads=8, kv_heads=8, row=256, tied=True),
    dict(architecture="llama", layers=16, experts=8, heads=8, kv_heads=2, row=256),
    dict(architecture="qwen3moe", layers=10, experts=4, heads=8, kv_heads=2, row=256),
    dict(architecture="falcon", layers=16, experts=0, heads=8, kv_heads=2, row=256, only=["attn_qkv", "attn_output"]),
    dict(architecture="falcon", layers=16, experts=0, heads=8, kv_heads=2, row=256, only=["ffn_up", "ffn_down"]),
    dict(architecture="qwen2", layers=2, experts=0, heads=8, kv_heads=2, row=96, tied=True),
    dict(architecture="qwen2", layers=1, experts=0, heads=4, kv_heads=1, row=40),
]


class Importance(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_float)), ("size", ctypes.c_size_t)]


class Params(ctypes.Structure):
    _fields_ = [("threads", ctypes.c_int32), ("file_type", ctypes.c_int32), ("types", ctypes.c_int32 * 2),
                ("flags", ctypes.c_bool * 6), ("importance", ctypes.POINTER(Importance)),
                ("rest", ctypes.c_uint8 * 512)]  # fmt: skip


def importance_of(tensors):
    """Every element is as important as any other."""
    ones = (ctypes.c_float * 65536)(*[1.0] * 65536)
    rows = [(name.encode(), ones, math.prod(shape) // shape[-2]) for name, shape in tensors.items() if len(shape) > 1]
    return (Importance * (len(rows) + 1))(*rows)


def tensors_of(model):
    row, experts = model["row"], model["experts"]
    tensors = {"token_embd.weight": [4, row], "output_norm.weight": [row]}
    if not model.get("tied"):
        tensors["output.weight"] = [4, row]
    names = model.get("only") or ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_down", "ffn_up"]
    for layer in range(model["layers"]):
        for name in names:
            of_experts = experts and name.startswith("ffn")
            shape = [row] if "norm" in name else [experts, 2, row] if of_experts else [2, row]
            tensors[f"blk.{layer}.{name}{'_exps' if of_experts else ''}.weight"] = shape
        if experts:
            tensors[f"blk.{layer}.ffn_gate_inp.weight"] = [experts, row]
    return tensors


def write(path, model, tensors):
    writer = gguf.GGUFWriter(path, model["architecture"])
    writer.add_block_count(model["layers"])
    writer.add_context_length(128)
    writer.add_embedding_length(model["row"])
    writer.add_feed_forward_length(model["row"])
    writer.add_head_count(model["heads"])
    writer.add_head_count_kv(model["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(32)
    if model["experts"]:
        writer.add_expert_count(model["experts"])
        writer.add_expert_used_count(2)
    for name, shape in tensors.items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    library = ctypes.CDLL(next(str(path) for path in sorted(Path(sys.argv[1]).glob("libllama*.so")) if "common" not in path.name))
    library.llama_model_quantize_default_params.restype = Params
    letters, models = {}, []
    with tempfile.TemporaryDirectory() as folder:
        source, target = f"{folder}/in.gguf", f"{folder}/out.gguf"
        for model in MODELS:
            tensors = tensors_of(model)
            write(source, model, tensors)

            def types_of(recipes, importance):
                types = {}
                for recipe, number in recipes.items():
                    params = library.llama_model_quantize_default_params()
                    params.file_type, params.importance = number, importance
                    assert library.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)) == 0
                    chosen = {tensor.name: tensor.tensor_type.name.lower()
                              for tensor in gguf.GGUFReader(target).tensors}
                    types[recipe] = "".join(letters.setdefault(chosen[n], chr(97 + len(letters))) for n in tensors)
                return types

            facts = {key: model[key] for key in ("architecture", "layers", "experts", "heads", "kv_heads")}
            models.append(facts | {"tensors": list(tensors.items()), "types": types_of(RECIPES, None),
                                   "important": types_of(IMPORTANT, importance_of(tensors))})
    text = json.dumps({"letters": letters, "models": models}, separators=(",", ":"))
    Path(__file__).with_name("recipes.json").write_text(text.replace('{"architecture"', '\n{"architecture"') + "\n")


main()
