"""The texts that endpoints are asked, from `data/probe/prompts.toml`."""

from __future__ import annotations

import random
import tomllib
from functools import cache
from importlib.resources import files

import msgspec


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt of ordinary use."""

    label: str
    text: str
    repeats: str | None = None
    """What a good answer holds, where the prompt says it word for word."""


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """All texts."""

    words: tuple[str, ...]
    """Common words, from which long prompts are drawn."""
    counted: tuple[str, ...]
    """Short texts that tokenizers cut differently."""
    questions: tuple[Question, ...]


@cache
def prompts() -> Prompts:
    """Read once."""
    raw = files("degarble").joinpath("data", "probe", "prompts.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(raw), Prompts)


def draw_words(rng: random.Random, count: int) -> list[str]:
    """Words without order or meaning: nothing but the prompt itself tells which comes next."""
    return rng.choices(prompts().words, k=count)
