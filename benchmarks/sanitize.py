"""Throughput of the sanitiser on every kind of text, the worst included, beside two of Python's own calls.

Target: 15 MB/s of UTF-8 each, on one core. The peers do a part of the work: `unicodedata.normalize` (in pieces of 4,096
characters, as it takes quadratic time for long runs of marks) and `str.translate` with control characters to drop. One
JSON row a line; seconds are of processor time, the best of the rounds, the ways taking turns.

    python benchmarks/sanitize.py [--chars 400000] [--piece 400000] [--rounds 7] [--only emoji,mixed]

`--piece 2000` cleans texts of that length one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import unicodedata
from collections.abc import Callable, Mapping

from degarble.tokenizer.corpora import corpus_names, make_corpus
from degarble.tokenizer.sanitize import SanitizePolicy, TokenSanitizer

POLICY = SanitizePolicy(special_tokens=("<|im_start|>", "<|im_end|>"))
CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160)])
PEER_PIECE = 4096
VIETNAMESE = "Tất cả mọi người sinh ra đều được hưởng tự do và bình đẳng về nhân phẩm và quyền lợi. "
REPEATED: Mapping[str, str] = {
    "ascii, clean": "def check(path: str) -> Report:  # one line of many\n",
    "ascii, some edits": "A line of text with e\u0301 and \x00 in it, like any other. ",
    "all controls": "\x00",
    "a control after each letter": "a\x00",
    "controls and overrides": "\x00\u202e",
    "zero width after each letter": "a\u200b",
    "zero width in a row": "a\u200b\u200c\u200c",
    "joiners and selectors": "\u200b\ufe0f",
    "private use": "\ue000a",
    "non-characters": "\uffff\U0010ffffa",
    "tags": "x\U000e0041",
    "flags": "\U0001f3f4\U000e0067\U000e007f",
    "lone surrogates": "a\ud800",
    "surrogate pairs": "\ud83d\ude00",
    "decomposed, each letter": "e\u0301",
    "decomposed Vietnamese": unicodedata.normalize("NFD", VIETNAMESE),
    "a mark on each emoji": "\U0001f600\u0301",
    "special tokens": "<|im_end|>",
    "beginnings of special tokens": "<|im_en",
}
MIXED = [
    *"a é\u0301\x00\u200b\u200d\ufe0f\ue000\u202e\ud800\udc00\uffff😀中가\u212b\u0958\U0002f800\U000e0041",
    *("e\u0301", "\u1112\u1161\u11ab", "<|im_end|>"),
]


def texts(num_chars: int) -> dict[str, str]:
    """Name -> text of about that many characters; the corpora are joined from what they have."""
    rng = random.Random(3)
    marks = [chr(code) for code in range(0x300, 0x370) if unicodedata.combining(chr(code))]
    syllables = [chr(code) for code in range(0xAC00, 0xD7A4)]
    extension_b = [chr(code) for code in range(0x20000, 0x2A6D6)]
    compatibility = [chr(code) for code in (*range(0xF900, 0xFA0E), *range(0x2F800, 0x2FA1E))]

    def drawn(units: list[str], count: int = num_chars) -> str:
        return "".join(rng.choices(units, k=count))

    def stacked(height: int) -> str:
        return "".join("a" + drawn(marks, height) for _ in range(num_chars // (height + 1)))

    made = {name: "\n".join(make_corpus(name, count=800)) for name in corpus_names()}
    made["english, decomposed"] = unicodedata.normalize("NFD", made["english"])
    made.update((name, unit * (num_chars // len(unit))) for name, unit in REPEATED.items())
    return made | {
        "decomposed Hangul": unicodedata.normalize("NFD", drawn(syllables))[:num_chars],
        "CJK extension B": drawn(extension_b),
        "CJK extension B, some marks": drawn([*extension_b, *["e\u0301"] * 2000]),
        "CJK compatibility": drawn(compatibility),
        "20 marks on each letter": stacked(20),
        "40 marks on each letter": stacked(40),
        "100,000 marks on one letter": "a" + drawn(marks, 100_000),
        "mixed": drawn(MIXED),
    }


def measure(text: str, piece_chars: int, rounds: int) -> dict[str, float]:
    """Megabytes of UTF-8 a second."""
    sanitizer = TokenSanitizer(POLICY)
    pieces = [text[at : at + piece_chars] for at in range(0, len(text), piece_chars)]
    small = [text[at : at + PEER_PIECE] for at in range(0, len(text), PEER_PIECE)]
    ways: dict[str, Callable[[], object]] = {
        "sanitize": lambda: [sanitizer.sanitize(piece).counts for piece in pieces],
        "normalize": lambda: [unicodedata.normalize("NFC", piece) for piece in small],
        "translate": lambda: text.translate(CONTROLS),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.process_time()
            way()
            best[name] = min(best[name], time.process_time() - start)
    size = len(text.encode("utf-8", "surrogatepass"))
    return {name: round(size / max(seconds, 1e-9) / 1e6, 1) for name, seconds in best.items()}


def main() -> None:
    """One row for each text, the slowest last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chars", type=int, default=400_000)
    parser.add_argument("--piece", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None}))
    chosen = set(filter(None, arguments.only.split(",")))
    slowest = ("", float("inf"))
    for name, text in texts(arguments.chars).items():
        if chosen and name not in chosen:
            continue
        row = measure(text, arguments.piece, arguments.rounds)
        counts = TokenSanitizer(POLICY).sanitize(text).counts
        ratio = {peer: round(row["sanitize"] / row[peer], 2) for peer in ("normalize", "translate")}
        print(json.dumps({"text": name, "mb_per_s": row, "ratio": ratio, "changes": sum(counts.values())}), flush=True)
        slowest = min(slowest, (name, row["sanitize"]), key=lambda named: named[1])
    print(json.dumps({"slowest": slowest[0], "mb_per_s": slowest[1]}))


if __name__ == "__main__":
    main()
