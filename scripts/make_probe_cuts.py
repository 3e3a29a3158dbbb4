"""Remake src/degarble/data/tokenizer/probe_cuts.json: what the probe texts become in published tokenizers.

Usage: make_probe_cuts.py FAMILY=PATH...     PATH: a folder with tokenizer.json, or a .gguf file
FAMILY is one of FAMILIES below; several paths of one family add vocabularies, the first one gives the cuts. Ids of a
tokenizer.json come from the tokenizers library, those of a GGUF file from our own encoder, since no library reads it;
that one is held against llama.cpp's expected ids in `tests/tokenizer/test_bpe_encoder.py`. Cuts and ids are facts about
the files; no vocabulary is written down, only its digest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import msgspec

from degarble.errors import EvidenceUnjudged
from degarble.tokenizer.bpe_encoder import BpeEncoder, bpe_of
from degarble.tokenizer.cut_families import ordinary_pieces, vocabulary_digest
from degarble.tokenizer.cuts import cutter_of, gguf_pretokenizers
from degarble.tokenizer.encode import library_tokenizer
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer

OUT = ROOT / "src" / "degarble" / "data" / "tokenizer" / "probe_cuts.json"
PROBES = (
    "t \u2028it \u2028\u1ebf\u3000I'm \u20283.14159 ? ",
    "\u0e15\u0e23\u0e35\u0e21 \u0936\u094d\u0930\u0943\u0902\u0916\u0932\u093e "
    "\u0e19\u0e49\u0e33\u0e43\u0e08\u0e44\u0e17\u0e22 \u0e01",
    "1234567 rfid501.go x != y\n\n  def f(a):\n\treturn a  # 12,345",
    "客单价是3.5元，普洱茶100斤。\r\nカタカナとひらがな 한국어",
    "HelloWorld's eBay pH DON'T don't we'LL nai\u0308ve cafe\u0301 ½ m²",
    "👨‍👩‍👧 🌶🌶  \u00a0x ．．． --- /* */ </div>",
)
"""The first two tell all 27 wrong pairs of four vocabularies and seven cuts apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is known about a family beside its files."""

    known_as: tuple[str, ...] = ()
    gguf_name: str | None = None


FAMILIES: Mapping[str, Kind] = {
    "deepseek-v3": Kind(known_as=("DeepSeek V3", "DeepSeek R1", "DeepSeek V4"), gguf_name="deepseek-v3"),
    "qwen2": Kind(known_as=("Qwen 3", "Qwen 2.5", "Qwen 2", "DeepSeek R1-Distill-Qwen"), gguf_name="qwen2"),
    "llama-3": Kind(known_as=("Llama 3", "DeepSeek R1-Distill-Llama"), gguf_name="llama-bpe"),
    "gpt-oss": Kind(known_as=("GPT-OSS",), gguf_name="gpt-4o"),
    "gemma-3": Kind(known_as=("Gemma 3",)),
    "llama-2": Kind(known_as=("Llama 2", "Mistral v1")),
    "smollm": Kind(known_as=("SmolLM2",), gguf_name="smollm"),
    "deepseek-llm": Kind(known_as=("DeepSeek LLM",), gguf_name="deepseek-llm"),
    "deepseek-coder": Kind(known_as=("DeepSeek Coder",), gguf_name="deepseek-coder"),
    "gpt-2": Kind(gguf_name="gpt-2"),
    "gpt-neox": Kind(gguf_name="mpt"),
    "starcoder": Kind(gguf_name="starcoder"),
    "command-r": Kind(gguf_name="command-r"),
    "falcon": Kind(gguf_name="falcon"),
}


def entry_of(name: str, paths: list[Path]) -> dict[str, Any]:
    """All facts of one family."""
    kind = FAMILIES[name]
    tokenizers = [load_tokenizer(path) for path in paths]
    first = tokenizers[0]
    known = gguf_pretokenizers()[kind.gguf_name] if kind.gguf_name else None
    return {
        "known_as": list(kind.known_as),
        "size": len(ordinary_pieces(first)),
        "gguf_name": kind.gguf_name,
        "gguf_cuts": known.cuts if known else None,
        "needs_ignore_merges": needs_ignore_merges(first),
        "is_from_json": first.file.endswith(".json"),
        "cuts": cuts_of(first),
        "vocabularies": merged([vocabulary_of(tokenizer) for tokenizer in tokenizers]),
    }


def needs_ignore_merges(tokenizer: Tokenizer) -> bool:
    """Whether some piece is reached only because whole words are looked up first."""
    if not bpe_of(tokenizer).ignore_merges:
        return False
    bpe = msgspec.structs.replace(bpe_of(tokenizer), ignore_merges=False)
    return any(len(bpe.encode(piece)) > 1 for piece in ordinary_pieces(tokenizer))


def cuts_of(tokenizer: Tokenizer) -> list[list[str]]:
    """Cuts of all probes; none where the regexes behind a GGUF name are not known."""
    try:
        return [cutter_of(tokenizer).cuts(probe) for probe in PROBES]
    except EvidenceUnjudged:
        return []


def vocabulary_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Digests, and ids of all probes."""
    try:
        own = [BpeEncoder(tokenizer).encode(probe) for probe in PROBES]
    except EvidenceUnjudged:
        own = []
    if tokenizer.file.endswith(".json"):
        library = library_tokenizer(tokenizer)
        ids = [list(library.encode(probe, add_special_tokens=False).ids) for probe in PROBES]
        assert ids == own, "our encoder and the library disagree"
    return {
        "digest": vocabulary_digest(ordinary_pieces(tokenizer)),
        "merges": [tokenizer.merges.digest],
        "ids": own,
    }


def merged(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each vocabulary, with all spellings of its merges; ids of the first, GGUF files do not normalise."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        same = found.setdefault(entry["digest"], entry)
        same["merges"] = sorted({*same["merges"], *entry["merges"]})
    return list(found.values())


def written(table: Mapping[str, Any]) -> str:
    """JSON with one line for each fact, so that a change can be read."""
    lines = ["{", f'  "probes": {json.dumps(table["probes"])},', '  "families": {']
    blocks = []
    for name, entry in table["families"].items():
        plain = [f"      {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items() if key not in LISTS]
        lists = []
        for key in LISTS:
            rows = ",\n".join(f"        {json.dumps(row, ensure_ascii=False)}" for row in entry[key])
            lists.append(f"      {json.dumps(key)}: [\n{rows}\n      ]" if rows else f"      {json.dumps(key)}: []")
        blocks.append(f"    {json.dumps(name)}: {{\n" + ",\n".join([*plain, *lists]) + "\n    }")
    return "\n".join([*lines, ",\n".join(blocks), "  }", "}", ""])


LISTS = ("cuts", "vocabularies")


def main() -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="FAMILY=PATH")
    paths: dict[str, list[Path]] = {}
    for source in parser.parse_args().sources:
        name, _, path = source.partition("=")
        if name not in FAMILIES:
            parser.error(f"{name!r}: one of {', '.join(FAMILIES)}")
        paths.setdefault(name, []).append(Path(path))
    table = {
        "probes": list(PROBES),
        "families": {name: entry_of(name, paths[name]) for name in FAMILIES if name in paths},
    }
    OUT.write_text(written(table), "utf-8")
    print(f"{OUT.relative_to(ROOT)}: {len(table['families'])} families")
    return 0


if __name__ == "__main__":
    sys.exit(main())
