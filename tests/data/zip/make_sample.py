"""Makes sample.zip beside this file: members of every kind that src/io/zip.cpp reads."""

import random
import zipfile
from pathlib import Path

random.seed(4)
text = "".join(random.choice("the model reads a row of blocks \n") for _ in range(3000))
members = {
    "pkg/model/words.txt": (text, zipfile.ZIP_DEFLATED),  # dynamic codes
    "pkg/model/deep/short.txt": ("abcabcabcabc", zipfile.ZIP_DEFLATED),  # fixed codes
    "pkg/model/run.txt": ("r" * 100_000, zipfile.ZIP_DEFLATED),  # copies that overlap themselves, windows
    "pkg/stored.txt": ("as it is", zipfile.ZIP_STORED),
    "pkg/empty.txt": ("", zipfile.ZIP_DEFLATED),
}
with zipfile.ZipFile(Path(__file__).with_name("sample.zip"), "w") as archive:
    archive.mkdir("pkg/folder")
    for name, (content, method) in members.items():
        archive.writestr(zipfile.ZipInfo(name), content, method, 9)
