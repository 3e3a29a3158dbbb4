"""Texts that are hard to stream: many scripts, long emoji, marks, control characters. Seeded, so a run can be repeated.

The parts are our own; ranges and emoji come from Unicode's structure. The kinds are those of the measurements in
`docs/explanation/streaming.md`.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

TEXTS_PER_CORPUS = 84
"""Twelve corpora of 84: 1,008 prompts a run."""
PARTS_PER_TEXT = (6, 24)
_REGIONAL_INDICATORS = range(0x1F1E6, 0x1F200)
_PEOPLE = (0x1F468, 0x1F469, 0x1F9D1, 0x1F466, 0x1F467)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FACES = range(0x1F600, 0x1F650)
_THINGS = (0x1F336, 0x1F680, 0x1F4A5, 0x1F525, 0x2764, 0x1F33E, 0x1F52C, 0x1F373)
_TAG_REGIONS = ("gbeng", "gbsct", "gbwls")


@cache
def _recipes() -> Mapping[str, Mapping[str, Any]]:
    text = resources.files("degarble.data").joinpath("tokenizer/corpora.json").read_text("utf-8")
    recipes: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return recipes


def corpus_names() -> tuple[str, ...]:
    """All corpora, in the order of tables."""
    return tuple(_recipes())


def make_corpus(name: str, seed: int = 0, count: int = TEXTS_PER_CORPUS) -> list[str]:
    """The texts of one corpus; the same for the same seed on every machine."""
    recipe = _recipes()[name]
    rng = random.Random(f"{name}:{seed}")
    return [_text(recipe, rng) for _ in range(count)]


def _text(recipe: Mapping[str, Any], rng: random.Random) -> str:
    parts = [_part(recipe, rng) for _ in range(rng.randint(*PARTS_PER_TEXT))]
    text = str(recipe["join"]).join(parts)
    return unicodedata.normalize(recipe["normal_form"], text) if "normal_form" in recipe else text


def _part(recipe: Mapping[str, Any], rng: random.Random) -> str:
    fixed: list[str] = recipe["parts"]
    if rng.random() < 0.8:
        if "ranges" in recipe:
            return "".join(_letter(recipe["ranges"], rng) for _ in range(rng.randint(1, 4)))
        if recipe.get("generator") == "emoji":
            return _emoji(rng)
    return rng.choice(fixed)


def _letter(ranges: list[list[int]], rng: random.Random) -> str:
    low, high = rng.choice(ranges)
    return chr(rng.randint(low, high))


def _emoji(rng: random.Random) -> str:
    """One of the ways in which emoji are built."""
    kind = rng.randrange(6)
    if kind == 0:
        return "".join(chr(rng.choice(_REGIONAL_INDICATORS)) for _ in range(2))
    if kind == 1:
        return "\u200d".join(chr(rng.choice(_PEOPLE)) for _ in range(rng.randint(2, 4)))
    if kind == 2:
        person = chr(rng.choice(_PEOPLE)) + chr(rng.choice(_SKIN_TONES))
        return f"{person}\u200d{chr(rng.choice(_THINGS))}"
    if kind == 3:
        return rng.choice("0123456789#*") + "\ufe0f\u20e3"
    if kind == 4:
        return "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in rng.choice(_TAG_REGIONS)) + "\U000e007f"
    return chr(rng.choice(_FACES)) + "\u2764\ufe0f\u200d\U0001f525"
