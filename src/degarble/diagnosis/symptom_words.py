"""What people say, matched to the rows of the table: English and Chinese, by concepts and not by sentences.

A text means a row if it has all concepts of one of the row's combinations; the rows with the longest combination win. Words
that belong to no concept are returned as unknown, so that nobody takes a word that was not understood for one that was.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache

import msgspec

from degarble.diagnosis.hypothesis import read_data, symptoms
from degarble.errors import UsageError

MAX_CHARACTERS = 2_000
MAX_UNKNOWN = 20
_TOKEN = re.compile(r"[^\W_]+(?:[-_./@'’|+<>=][^\W_]+)*|![!]*|<\|\w+\|>|�", re.UNICODE)
_LATIN = re.compile(r"[a-zA-Z0-9]")
_HAN = re.compile(r"[\u3400-\u9fff]+")


class _Concepts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    ignored: frozenset[str]
    concept: dict[str, tuple[str, ...]]


class Understood(msgspec.Struct, frozen=True, kw_only=True):
    """What a text says."""

    rows: tuple[int, ...]
    """Rows it means, all equally well."""
    concepts: tuple[str, ...]
    unknown: tuple[str, ...]
    """Words that nothing was known of."""


def understand(text: str) -> Understood:
    """Match a text to the table. Raises UsageError for one that is too long to be a description."""
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"--symptom: {len(text)} characters; describe it in at most {MAX_CHARACTERS}")
    plain = unicodedata.normalize("NFKC", text).casefold()
    tokens = _TOKEN.findall(plain)
    concepts, used = _concepts_in(plain, tokens)
    weights = {number: _depth(row.said, concepts) for number, row in symptoms().items()}
    best = max(weights.values(), default=0)
    rows = tuple(number for number, weight in weights.items() if weight == best and weight)
    unknown = dict.fromkeys(word for word in _words(tokens, used) if not _is_ignored(word))
    return Understood(rows=rows, concepts=tuple(sorted(concepts)), unknown=tuple(unknown)[:MAX_UNKNOWN])


@cache
def _table() -> _Concepts:
    return read_data(_Concepts, "concepts.toml")


@cache
def _patterns() -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Concept -> forms, each as the tokens it consists of."""
    return {name: tuple(_form(one) for one in forms) for name, forms in _table().concept.items()}


def _form(text: str) -> tuple[str, ...]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return (plain,) if _HAN.search(plain) else tuple(plain.split())


def _concepts_in(plain: str, tokens: list[str]) -> tuple[set[str], set[str]]:
    """Concepts that a text has, and what of it they were recognised by."""
    found: set[str] = set()
    used: set[str] = set()
    for name, forms in _patterns().items():
        for form in forms:
            hit = _hits(form, plain, tokens)
            if hit:
                found.add(name)
                used |= hit
    return found, used


def _hits(form: tuple[str, ...], plain: str, tokens: list[str]) -> set[str]:
    """Chinese is not cut into words, so a form may stand anywhere."""
    if _HAN.search(form[0]):
        return {form[0]} if form[0] in plain else set()
    return _tokens_of(form, tokens)


def _tokens_of(form: tuple[str, ...], tokens: list[str]) -> set[str]:
    """The tokens of a text that are this form, one after another."""
    for start in range(len(tokens) - len(form) + 1):
        piece = tokens[start : start + len(form)]
        if all(_is_form(word, wanted) for word, wanted in zip(piece, form, strict=True)):
            return set(piece)
    return set()


def _is_form(word: str, wanted: str) -> bool:
    return word.startswith(wanted[:-1]) if wanted.endswith("*") else word == wanted


def _depth(said: tuple[tuple[str, ...], ...], concepts: set[str]) -> int:
    """Length of the longest combination that the text has all of."""
    return max((len(one) for one in said if concepts.issuperset(one)), default=0)


def _words(tokens: list[str], used: set[str]) -> list[str]:
    """What is left of a text: Latin words that were not used, and of Chinese what no form covers."""
    left: list[str] = []
    for token in tokens:
        if token in used:
            continue
        rest = token
        for form in sorted((one for one in used if _HAN.search(one)), key=len, reverse=True):
            rest = rest.replace(form, " ")
        for word in sorted((one for one in _table().ignored if _HAN.search(one)), key=len, reverse=True):
            rest = rest.replace(word, " ")
        left += rest.split()
    return left


def _is_ignored(word: str) -> bool:
    return word in _table().ignored or not (_LATIN.search(word) or _HAN.search(word))
