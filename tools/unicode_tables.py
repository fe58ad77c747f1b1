#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cpp from Python's unicodedata, and from PyPI's regex, which knows scripts and
properties.

    pip install regex
    tools/unicode_tables.py > src/text/unicode_tables.cpp

The Unicode version is the one of the Python that runs it (3.13: 15.1).
"""

import sys
import unicodedata

import regex

CATEGORIES = "Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
SCRIPTS = (
    "Arabic Armenian Bengali Bopomofo Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew "
    "Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Oriya Sinhala Tamil Telugu Thai Tibetan"
).split()
PROPERTIES = "Alphabetic Lowercase Uppercase".split()
ALL = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)  # composed by arithmetic


def category(code):
    return unicodedata.category(chr(code))


def property_ranges():
    """[(first, last, index of the name)]: scripts, then properties, which share characters with them."""
    rows = []
    for index, name in enumerate(SCRIPTS + PROPERTIES):
        members = regex.compile(rf"\p{{{'Script=' if name in SCRIPTS else ''}{name}}}")
        codes = [ord(c) for c in ALL if members.match(c) and unicodedata.category(c) != "Cn"]
        rows += ranges((code, index) for code in codes)
    return sorted(rows)


def ranges(pairs):
    """[(code, value)] in ascending order -> [[first, last, value]]."""
    result = []
    for code, value in pairs:
        if result and result[-1][1] == code - 1 and result[-1][2] == value:
            result[-1][1] = code
        else:
            result.append([code, code, value])
    return result


def lower_ranges():
    """[[first, last, step, delta]]: capitals that follow each other, or alternate with their small letters."""
    result = []
    for char in ALL:
        small = char.lower()
        if small == char:
            continue
        code, delta = ord(char), ord(small[0]) - ord(char)  # only U+0130 has a second character: see unicode.cpp
        last = result[-1] if result else None
        if last and last[3] == delta and code - last[1] in (1, 2) and (last[0] == last[1] or last[2] == code - last[1]):
            last[1], last[2] = code, code - last[1]
        else:
            result.append([code, code, 1, delta])
    return result


def decompositions(form):
    return {char: unicodedata.normalize(form, char) for char in ALL
            if ord(char) not in HANGUL and unicodedata.normalize(form, char) != char}


def emit(name, kind, rows):
    print(f"static constexpr {kind} {name}Data[] = {{")
    line = ""
    for row in rows:
        text = "{" + ",".join(str(field) for field in row) + "}," if len(row) > 1 else f"{row[0]},"
        if len(line) + len(text) > 118:
            print(line)
            line = ""
        line += text
    print(f"{line}}};\nconst std::span<const {kind}> k{name}({name}Data);\n")


def main():
    canonical, compatible = decompositions("NFD"), decompositions("NFKD")
    pool = ""
    for text in sorted({*canonical.values(), *compatible.values()}, key=lambda text: (-len(text), text)):
        if text not in pool:
            pool += text
    place = lambda text: (pool.index(text), len(text))
    pairs = []
    for char in ALL:
        fields = unicodedata.decomposition(char).split()
        if len(fields) == 2 and fields[0][0] != "<" and unicodedata.normalize("NFC", char) == char:
            pairs.append((int(fields[0], 16), int(fields[1], 16), ord(char)))

    print(f"""// Made by tools/unicode_tables.py from Unicode {unicodedata.unidata_version}.
// clang-format off
#include "text/unicode_tables.h"

namespace weft::unicode {{
""")
    emit("CategoryStarts", "CategoryStart",
         [(first, CATEGORIES.index(value)) for first, _, value in ranges((c, category(c)) for c in range(0x110000))])
    emit("LowerRanges", "LowerRange", lower_ranges())
    emit("PropertyRanges", "ValueRange", property_ranges())
    emit("CombiningClasses", "ValueRange",
         [row for row in ranges((ord(c), unicodedata.combining(c)) for c in ALL) if row[2]])
    emit("Canonical", "Decomposition", [(ord(c), *place(text)) for c, text in canonical.items()])
    emit("Compatible", "Decomposition",
         [(ord(c), *place(text)) for c, text in compatible.items() if canonical.get(c) != text])
    emit("Compositions", "Composition", sorted(pairs))
    emit("DecompositionPool", "char32_t", [(ord(c),) for c in pool])
    emit("PropertyNames", "std::string_view", [(f'"{name}"',) for name in SCRIPTS + PROPERTIES])
    print("}  // namespace weft::unicode")


if __name__ == "__main__":
    sys.exit(main())
