#!/usr/bin/env python3
"""Writes hf/: small tokenizer.json files of every kind, and suites with the ids the tokenizers library has for them.

    pip install tokenizers
    make_hf.py TEXTS.json        # a suite whose texts are taken
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders as D
from tokenizers import models as M
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P
from tokenizers import processors
from tokenizers import trainers as T

OUT = Path(__file__).parent / "hf"
SPECIAL = ["<unk>", "<s>", "</s>", "<mask>"]
ADDED = ["the fox <mask> jumps", "new New newer New", "ab <x>  cd", "\n\n\n\nx", "Hello <s> world </s>"]
CAMEL = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def trained(model, trainer, normalizer, pre_tokenizer, decoder, texts):
    result = Tokenizer(model)
    if normalizer:
        result.normalizer = normalizer
    if pre_tokenizer:
        result.pre_tokenizer = pre_tokenizer
    result.decoder = decoder
    result.train_from_iterator(texts, trainer)
    return result


def all_of(texts):
    bpe = lambda **more: T.BpeTrainer(special_tokens=SPECIAL, show_progress=False, **more)
    byte_level = bpe(vocab_size=400, initial_alphabet=P.ByteLevel.alphabet())
    yield "wordpiece", trained(
        M.WordPiece(unk_token="<unk>", max_input_chars_per_word=20),
        T.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False),
        N.BertNormalizer(), P.BertPreTokenizer(), D.WordPiece(), texts)
    yield "unigram", trained(
        M.Unigram(), T.UnigramTrainer(vocab_size=300, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False),
        N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace(), D.Metaspace(), texts)
    yield "fallback", trained(
        M.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
        T.BpeTrainer(vocab_size=500, special_tokens=SPECIAL + BYTES, limit_alphabet=60, show_progress=False),
        N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), None,
        D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]), texts)
    yield "suffix", trained(
        M.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), bpe(vocab_size=300, end_of_word_suffix="</w>"),
        N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase(), N.Strip()]),
        P.Sequence([P.Split(Regex(r"'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True)]),
        D.BPEDecoder(suffix="</w>"), texts)
    yield "camel", trained(M.BPE(), byte_level, None,
                           P.Sequence([P.Split(Regex(CAMEL), "isolated"), P.ByteLevel(False, use_regex=False)]),
                           D.ByteLevel(), texts)
    yield "pieces", trained(
        M.BPE(ignore_merges=True), byte_level, N.NFKD(),
        P.Sequence([P.Digits(True), P.Punctuation("contiguous"), P.Split("e", "merged_with_next"), P.ByteLevel(True)]),
        D.ByteLevel(), texts)
    added = trained(M.BPE(), byte_level, N.Lowercase(), P.ByteLevel(False), D.ByteLevel(), texts)
    added.add_tokens([AddedToken("New", single_word=True), AddedToken("\n\n", normalized=False),
                      AddedToken("<x>", rstrip=True, normalized=False)])
    added.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    added.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    yield "added", added
    yield "words", trained(M.WordLevel(unk_token="<unk>"),
                           T.WordLevelTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False),
                           N.StripAccents(), P.Whitespace(), D.Fuse(), texts)


def main(texts_file):
    texts = [case["text"] for case in json.loads(Path(texts_file).read_text())["cases"]] + ADDED
    OUT.mkdir(exist_ok=True)
    for name, tokenizer in all_of(texts):
        description = json.loads(tokenizer.to_str())
        description["added_tokens"] = [each for each in description["added_tokens"] if each["content"] not in BYTES]
        (OUT / f"{name}-tokenizer.json").write_text(json.dumps(description, separators=(",", ":")) + "\n")
        tokenizer.encode_special_tokens = True
        cases = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in texts]
        # Where the library makes a control token of a text all the same, weft does not.
        cases = [case for case in cases if not {1, 2, 3} & set(case["ids"])]
        suite = {"format": 1, "kind": "tokenizer", "name": name, "vocab": f"{name}-tokenizer.json", "cases": cases}
        (OUT / f"{name}.json").write_text(json.dumps(suite, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
