"""Writes the models of this folder: tiny ones with random weights, and what they give in transformers.

    python make.py FOLDER [LLAMA_CPP]

One folder per model: config.json, model.safetensors (bf16), expect.safetensors (input_ids, logits of the
same weights in f32, the tokens that follow). Weights are large enough that no part can be left out without
being noticed. With a checkout of llama.cpp, its converter also writes model.gguf where `GGUF` says so.
"""

import json
import math
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, BertConfig, BertModel

VOCABULARY, TEXTS, LENGTH, FOLLOW = 64, 2, 16, 8
COMMON = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
              tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def rope(kind, **rest):
    return dict(rope_type=kind, rope_theta=10000.0, **rest)


def longrope(original):
    factors = dict(short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 1.7, 2.4, 3.1])
    return dict(original_max_position_embeddings=original,
                rope_parameters=rope("longrope", original_max_position_embeddings=original, **factors))


YARN = rope("yarn", factor=4.0, original_max_position_embeddings=32)
LINEAR = dict(num_hidden_layers=3, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
              linear_num_value_heads=4, linear_conv_kernel_dim=4,
              layer_types=["linear_attention", "full_attention", "linear_attention"])
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16)
SHARED = dict(EXPERTS, shared_expert_intermediate_size=24)
MLA = dict(num_key_value_heads=4, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
           n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=16, first_k_dense_replace=1,
           routed_scaling_factor=1.5)
ONE_KV = dict(num_key_value_heads=None)
TIED = dict(tie_word_embeddings=True)

# Folder: model_type, what differs from COMMON (None: not there).
MODELS = {
    "llama": ("llama", dict(head_dim=12, attention_bias=True, mlp_bias=True,
                            rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                 original_max_position_embeddings=16))),
    "llama-dynamic": ("llama", dict(max_position_embeddings=12, rope_parameters=rope("dynamic", factor=4.0))),
    "llama-linear": ("llama", dict(rope_parameters=rope("linear", factor=4.0))),
    "mixtral": ("mixtral", dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None)),
    "qwen2": ("qwen2", dict(rope_parameters=YARN, use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen2moe": ("qwen2_moe", dict(SHARED, norm_topk_prob=False, decoder_sparse_step=2)),
    "qwen3moe": ("qwen3_moe", dict(EXPERTS, norm_topk_prob=False, mlp_only_layers=[0], head_dim=12)),
    "gemma": ("gemma", dict(TIED, head_dim=12, num_key_value_heads=1)),
    "gemma2": ("gemma2", dict(TIED, head_dim=12, sliding_window=6, query_pre_attn_scalar=12,
                              attn_logit_softcapping=5.0, final_logit_softcapping=6.0)),
    "gemma3": ("gemma3_text", dict(TIED, num_hidden_layers=6, head_dim=12, sliding_window=6, query_pre_attn_scalar=12,
                                   rope_parameters=dict(
                                       full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                       sliding_attention=rope("default")))),
    "phi2": ("phi", dict(partial_rotary_factor=0.5, num_key_value_heads=4)),
    "phi2-normed": ("phi", dict(TIED, partial_rotary_factor=0.5, num_key_value_heads=4, qk_layernorm=True)),
    "phi3": ("phi3", dict(longrope(8), sliding_window=9)),
    "phi3-border": ("phi3", dict(longrope(20), sliding_window=None)),  # between what is given and what follows
    "granite": ("granite", dict(embedding_multiplier=1.5, attention_multiplier=0.3, residual_multiplier=0.7,
                                logits_scaling=2.0)),
    "olmo2": ("olmo2", {}),
    "smollm3": ("smollm3", dict(TIED, num_hidden_layers=3, no_rope_layers=[1, 0, 1])),
    "stablelm": ("stablelm", dict(partial_rotary_factor=0.5, use_parallel_residual=True, qk_layernorm=True)),
    "starcoder2": ("starcoder2", dict(TIED, sliding_window=6, use_bias=True)),
    "gpt2": ("gpt2", dict(TIED, n_embd=32, n_head=4, n_layer=2, n_positions=64, num_key_value_heads=None,
                          intermediate_size=None)),
    "gpt2-unscaled": ("gpt2", dict(TIED, n_embd=32, n_head=4, n_layer=2, n_positions=64, num_key_value_heads=None,
                                   intermediate_size=None, scale_attn_weights=False)),
    "gptneox": ("gpt_neox", dict(ONE_KV, rotary_pct=0.5, use_parallel_residual=False)),
    "bloom": ("bloom", dict(TIED, hidden_size=48, n_head=6, n_layer=2, num_key_value_heads=None,
                            intermediate_size=None)),
    "falcon": ("falcon", dict(TIED, **ONE_KV, multi_query=True, bias=False)),
    "falcon-grouped": ("falcon", dict(ONE_KV, new_decoder_architecture=True, bias=False, num_kv_heads=2)),
    "cohere": ("cohere", dict(TIED, logit_scale=0.25, use_qk_norm=True)),
    "cohere2": ("cohere2", dict(TIED, logit_scale=0.25, num_hidden_layers=4, sliding_window=6)),
    "glm4": ("glm4", dict(head_dim=12, attention_bias=True, partial_rotary_factor=0.5)),
    "deepseek2": ("deepseek_v2", dict(MLA, q_lora_rank=None, n_shared_experts=2, topk_method="greedy", n_group=1,
                                      topk_group=1, head_dim=4)),
    "deepseek3": ("deepseek_v3", dict(MLA, q_lora_rank=12, n_shared_experts=1, norm_topk_prob=True, n_group=4,
                                      topk_group=2, scoring_func="sigmoid",
                                      rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek3-halves": ("deepseek_v3", dict(MLA, q_lora_rank=None, n_shared_experts=1, n_group=1, topk_group=1,
                                             rope_interleave=False)),
    "gptoss": ("gpt_oss", dict(head_dim=12, num_local_experts=4, num_experts_per_tok=2, sliding_window=6)),
    "gptoss-limit": ("gpt_oss", dict(head_dim=12, num_local_experts=4, num_experts_per_tok=2, sliding_window=6,
                                     swiglu_limit=1.0, swiglu_alpha=1.5)),
    "nemotron": ("nemotron", dict(head_dim=8, partial_rotary_factor=0.5)),
    "exaone4": ("exaone4", dict(num_hidden_layers=4, sliding_window=6, sliding_window_pattern=4)),
    "lfm2": ("lfm2", dict(TIED, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3,
                          block_auto_adjust_ff_dim=True, block_multiple_of=8)),
    "qwen3next": ("qwen3_next", dict(SHARED, **LINEAR, head_dim=8, partial_rotary_factor=0.5)),
    "qwen35": ("qwen3_5_text", dict(LINEAR, head_dim=16)),
    "qwen35moe": ("qwen3_5_moe_text", dict(SHARED, **LINEAR, head_dim=16)),
}
GGUF = ["llama", "mixtral", "bloom", "gptneox", "exaone4", "deepseek2", "deepseek3", "lfm2", "qwen3next", "qwen35",
        "qwen35moe"]
LESS_ONE = ("gemma", "nemotron", "qwen3_next", "qwen3_5")  # norms are stored less 1


def fill(model, kind, generator):
    def normal(p, scale):
        p.copy_(torch.randn(p.shape, generator=generator) * scale)

    biases = [(name, p) for name, p in model.named_buffers() if name.endswith("correction_bias")]
    for name, p in [*model.named_parameters(), *biases]:
        if "norm" in name.lower() or "ln_" in name or ".ln" in name:
            normal(p, 0.3)
            if not name.endswith("bias") and (not kind.startswith(LESS_ONE) or "linear_attn" in name):
                p.add_(1)
        elif name.endswith("A_log") or p.ndim == 1:
            normal(p, 0.3)
        elif "embed" in name or "wte" in name or "wpe" in name:
            normal(p, 0.15 if kind.startswith("gemma") else 1)
        elif "conv" in name and p.ndim == 3:
            normal(p, 0.6)
        else:
            transposed = (kind == "gpt2" and "c_" in name) or (kind == "gpt_oss" and "experts" in name)
            inner = p.shape[-2] if transposed else p.shape[-1]
            sharp = any(word in name for word in ("q_proj", "k_proj", "c_attn", "query_key_value", "q_b_proj", "kv_b"))
            normal(p, (2.2 if sharp else 1.2) / math.sqrt(inner))
        p.copy_(p.bfloat16())


def follow(model, ids):
    """The likeliest tokens behind ids, and by how much the closest of them won."""
    margin = math.inf
    for _ in range(FOLLOW):
        last = model(ids, use_cache=False).logits[:, -1]
        best = last.topk(2).values
        margin = min(margin, (best[:, 0] - best[:, 1]).min().item())
        ids = torch.cat([ids, last.argmax(-1, keepdim=True)], 1)
    return ids[:, -FOLLOW:], margin


def save(model, folder, expected):
    model.to(torch.bfloat16).save_pretrained(folder)
    os.remove(f"{folder}/generation_config.json")
    save_file({name: value.contiguous() for name, value in expected.items()}, f"{folder}/expect.safetensors")


@torch.no_grad()
def make(folder, kind, own):
    config = {key: value for key, value in dict(COMMON, **own).items() if value is not None or key not in COMMON}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config), attn_implementation="eager",
                                             dtype=torch.float32).eval()
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        fill(model, kind, generator)
        ids = torch.randint(3, VOCABULARY, (TEXTS, LENGTH), generator=generator)
        model(ids[:, :1], use_cache=False)  # dynamic frequencies start anew
        logits = model(ids, use_cache=False).logits
        following, margin = follow(model, ids)
        if margin > 0.05:
            break
    print(f"{folder}: logits {logits.std():.2f}, margin {margin:.3f}")
    expected = dict(input_ids=ids.int(), logits=logits.float(), greedy_ids=following.int())
    if "dynamic" in folder:  # what follows depends on whether keys are kept
        del expected["greedy_ids"]
    save(model, folder, expected)


@torch.no_grad()
def make_bert(folder):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = "[PAD] [UNK] [CLS] [SEP] a the cat dog mat sits runs on over ##s ##ing , .".split()
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(words[:4])
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    model = BertModel(BertConfig(vocab_size=len(words), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                 num_attention_heads=4, max_position_embeddings=24), add_pooling_layer=False).eval()
    fill(model, "bert", torch.Generator().manual_seed(0))
    cases = []
    for text in ("The cat sits on the mat.", "dogs", "a dog running over cats, " * 8):
        ids = tokenizer.encode(text).ids
        ids = ids if len(ids) <= 20 else ids[:19] + ids[-1:]
        mean = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
        cases.append(dict(text=text, embedding=[round(x, 7) for x in (mean / mean.norm()).tolist()]))
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save(f"{folder}/tokenizer.json")
    os.makedirs(f"{folder}/1_Pooling", exist_ok=True)
    for name, value in {"expect.json": cases, "1_Pooling/config.json": dict(pooling_mode_mean_tokens=True),
                        "sentence_bert_config.json": dict(max_seq_length=20),
                        "tokenizer_config.json": dict(tokenizer_class="BertTokenizer")}.items():
        with open(f"{folder}/{name}", "w") as file:
            json.dump(value, file, indent=1)


def convert(folder, llama_cpp):
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import gguf
    from pathlib import Path
    from conversion import get_model_class
    from conversion.base import ModelBase, ModelType, get_model_architecture

    def no_words(self):
        self.gguf_writer.add_tokenizer_model("none")

    kind = get_model_class(get_model_architecture(ModelBase.load_hparams(Path(folder), False), ModelType.TEXT),
                           mmproj=False)
    kind.set_vocab, kind.no_mtp = no_words, True
    writer = kind(Path(folder), gguf.LlamaFileType.MOSTLY_BF16, Path(folder) / "model.gguf")
    rotary = writer.hparams.get("rope_parameters") or {}
    writer.hparams.setdefault("rotary_pct", rotary.get("partial_rotary_factor", 1.0))
    writer.write()


def main():
    torch.set_num_threads(1)
    out = sys.argv[1]
    for name, (kind, own) in MODELS.items():
        make(f"{out}/{name}", kind, own)
    make_bert(f"{out}/bert")
    if len(sys.argv) > 2:
        for name in GGUF:
            convert(f"{out}/{name}", sys.argv[2])
    cases = [dict(name=f"{name}/{route}", model=name + file, expect=f"{name}/expect.safetensors", max=0.005, top1=1)
             for name in MODELS for route, file in (("hf", ""), ("gguf", "/model.gguf"))
             if os.path.exists(f"{out}/{name}{file}")]
    with open(f"{out}/suite.json", "w") as file:
        json.dump(dict(format=1, kind="model", cases=cases), file, indent=1)


if __name__ == "__main__":
    main()
