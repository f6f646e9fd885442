"""Make the text that contexts are cut from: Python's library sources and its documentation.

Usage: python scripts/make_corpus.py LIB DOCS   (Python 3.11: ``Lib``, and ``_sources`` of its documentation)
Writes src/draftmark/workload/data/corpus.json.xz, a list of [name, text].
"""

import json
import lzma
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

OUT = Path(__file__).parents[1] / "src/draftmark/workload/data/corpus.json.xz"
CODE = (
    ".", "asyncio", "collections", "concurrent/futures", "dbm", "email", "html", "http", "importlib", "json",
    "logging", "multiprocessing", "sqlite3", "tomllib", "unittest", "urllib", "wsgiref", "xml/dom",
    "xml/etree", "xml/sax", "zoneinfo",
)  # fmt: skip
PROSE = ("extending", "faq", "howto", "library", "reference", "tutorial", "using")
SMALLEST, LARGEST = 4_000, 120_000
"""Characters; below there is little to ask about."""
UNFIT = re.compile(r"copyright|</?s>|<\|\w+\|>", re.IGNORECASE)
"""A licence of its own, or what a tokenizer may take for the mark of a message."""


def documents(root: Path, folders: Sequence[str], pattern: str, shown: str) -> Iterator[tuple[str, str]]:
    """(name, text) of the fit files in some folders."""
    for path in (path for folder in folders for path in sorted((root / folder).glob(pattern))):
        text = path.read_text(encoding="utf-8")
        if SMALLEST <= len(text) <= LARGEST and not UNFIT.search(text):
            yield f"{shown}/{path.relative_to(root)}".removesuffix(".txt"), text


def main() -> None:
    """Write the file and say how much is in it."""
    lib, docs = map(Path, sys.argv[1:])
    code = list(documents(lib, CODE, "[!_]*.py", "Lib"))
    prose = list(documents(docs, PROSE, "*.rst.txt", "Doc"))
    raw = json.dumps(code + prose, ensure_ascii=False, separators=(",", ":")).encode()
    OUT.write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))
    for kind, found in (("code", code), ("prose", prose)):
        print(f"{kind}: {len(found)} files, {sum(len(text) for _, text in found):,} characters")
    print(f"{OUT.name}: {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
