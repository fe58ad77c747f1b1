#!/usr/bin/env python3
"""Makes a small vocabulary out of a real one, for a tokenizer suite.

    make_small.py VOCAB.gguf SUITE.json OUT_FOLDER

Kept are the tokens that occur in the suite's texts, bytes, and tokens that are not plain text; merges whose tokens are
kept. The texts then have the same tokens as before, under new ids.
"""

import json
import struct
import sys
from pathlib import Path

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST, NORMAL = 8, 9, 1


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind):
        return struct.unpack("<" + FORMATS[kind], self.take(SIZES[kind]))[0]

    def value(self, kind):
        return self.take(self.number(10)) if kind == TEXT else self.number(kind)

    def metadata(self):
        self.take(16)  # magic, version, tensors
        result = {}
        for _ in range(self.number(10)):
            key, kind = self.value(TEXT).decode(), self.number(4)
            if kind == LIST:
                inner = self.number(4)
                result[key] = (LIST, inner, [self.value(inner) for _ in range(self.number(10))])
            else:
                result[key] = (kind, None, self.value(kind))
        return result


def written(metadata):
    def value(kind, it):
        return struct.pack("<Q", len(it)) + it if kind == TEXT else struct.pack("<" + FORMATS[kind], it)

    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata))
    for key, (kind, inner, it) in metadata.items():
        out += value(TEXT, key.encode()) + struct.pack("<I", kind)
        if kind == LIST:
            out += struct.pack("<IQ", inner, len(it)) + b"".join(value(inner, each) for each in it)
        else:
            out += value(kind, it)
    return out


def byte_alphabet():
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def spellings(text):
    """The ways in which vocabularies spell a text."""
    alphabet = byte_alphabet()
    spaced = "\u2581" + text.replace(" ", "\u2581")
    return ["".join(alphabet[byte] for byte in text.encode()), spaced, spaced.lower(), "\u2581".join(["", *text.lower()])]


def main(vocab, suite_file, folder):
    metadata = Reader(Path(vocab).read_bytes()).metadata()
    suite = json.loads(Path(suite_file).read_text())
    field = lambda name: metadata.get(f"tokenizer.ggml.{name}", (None, None, []))[2]
    haystack = "\0".join(way for case in suite["cases"] for way in spellings(case["text"]))
    used = {token for case in suite["cases"] for token in case["ids"]}
    tokens, kinds = [token.decode(errors="replace") for token in field("tokens")], field("token_type")
    special_ids = {it for key, (_, _, it) in metadata.items() if key.endswith("_token_id")}
    keep = [i for i, text in enumerate(tokens)
            if i in used or i in special_ids or (kinds and kinds[i] != NORMAL and "unused" not in text and i < 100000)
            or len(text) == 1 and ord(text) < 0x144 or text in haystack]
    place = {old: new for new, old in enumerate(keep)}
    kept_texts = {tokens[i] for i in keep}

    small = {}
    for key, (kind, inner, it) in metadata.items():
        if not key.startswith(("tokenizer.ggml.", "general.architecture", "general.name")):
            continue
        if key in ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
            it = [it[i] for i in keep]
        elif key == "tokenizer.ggml.merges":
            def parts(merge):
                left, right = merge.decode().split(" ", 1) if merge[:1] != b" " else (" ", merge.decode()[2:])
                return left, right, left + right
            it = [merge for merge in it if all(part in kept_texts for part in parts(merge))]
        elif key.endswith("_token_id"):
            it = place[it]
        small[key] = (kind, inner, it)
    suite["vocab"] = Path(vocab).name
    for case in suite["cases"]:
        case["ids"] = [place[i] for i in case["ids"]]
    out = Path(folder)
    (out / suite["vocab"]).write_bytes(written(small))
    (out / (suite["name"] + ".json")).write_text(json.dumps(suite, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
