"""Streamed NFC against Python's own, and the tables it rests on."""

from __future__ import annotations

import random
import sys
import unicodedata

from degarble.tokenizer.change_log import ChangeLog
from degarble.tokenizer.composed_form import ComposedForm
from degarble.tokenizer.mark_limit import MAX_MARKS
from degarble.tokenizer.normal_form_tables import CHANGES, EXTENDS, MOVES, PLANES_END, SIZE, tables
from degarble.tokenizer.sanitize_policy import SanitizePolicy


def new_stage() -> ComposedForm:
    return ComposedForm(SanitizePolicy(), ChangeLog())


def streamed(text: str, cuts: list[int]) -> str:
    stage = new_stage()
    out, done = "", 0
    for cut in [*sorted(cuts), len(text)]:
        out += stage.push(text[done:cut]) if cut > done else ""
        done = max(done, cut)
    return out + stage.finish()


def test_traits_of_every_character() -> None:
    for code, traits in enumerate(tables().traits[:PLANES_END].tolist()):
        char = chr(code)
        composed, decomposed = unicodedata.normalize("NFC", char), unicodedata.normalize("NFD", char)
        assert traits & SIZE == len(decomposed), f"U+{code:04X}"
        assert bool(traits & CHANGES) == (composed != char), f"U+{code:04X}"
        assert bool(traits & MOVES) == (composed != char and len(composed) == 1), f"U+{code:04X}"
        assert bool(traits & EXTENDS) == (char in tables().extenders)
        assert not traits & MOVES or chr(tables().moved[code]) == composed
    rest = "".join(map(chr, range(PLANES_END, sys.maxunicode + 1)))
    assert not any(map(unicodedata.combining, rest))
    assert unicodedata.is_normalized("NFD", rest) and unicodedata.is_normalized("NFC", rest)
    assert tables().traits[PLANES_END:].tolist() == [1] * len(rest)


def test_segments_stay_segments() -> None:
    """One begins where one began, however it is normalised: what lets old and new ones be matched by counting."""
    extenders = tables().extenders
    for code in range(PLANES_END):
        char = chr(code)
        for form in ("NFC", "NFD"):
            text = unicodedata.normalize(form, char)
            assert (text[0] in extenders) == (char in extenders), f"U+{code:04X}"
            assert extenders.issuperset(text[1:]), f"U+{code:04X}"


def test_characters_and_marks_in_any_cut() -> None:
    rng = random.Random(5)
    table = tables()
    extenders, holders = sorted(table.extenders), sorted(table.holders)
    for _ in range(3000):
        pools = (extenders, holders, ["a", " ", "你", "\u1100", "\u1161", "\u11a8", "가"])
        text = "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 9)))
        cuts = [rng.randint(0, len(text)) for _ in range(rng.randint(0, 4))]
        assert streamed(text, cuts) == unicodedata.normalize("NFC", text), ascii(text)


def test_every_extender_after_every_kind_of_holder() -> None:
    """Pairs cut in the middle: the holder has to wait."""
    rng = random.Random(6)
    holders = sorted(tables().holders)
    for extender in sorted(tables().extenders):
        for holder in rng.sample(holders, 3):
            text = holder + extender
            assert streamed(text, [1]) == unicodedata.normalize("NFC", text)


def test_a_released_character_is_never_changed_by_what_follows() -> None:
    extenders = sorted(tables().extenders)
    seconds = [char for char in extenders if not unicodedata.combining(char)] + extenders[:200]
    for code in range(0x3100):
        char = chr(code)
        stage = new_stage()
        if stage.push(char):
            alone = unicodedata.normalize("NFC", char)
            for second in seconds[:: 1 + code % 7]:
                assert unicodedata.normalize("NFC", char + second).startswith(alone), ascii(char + second)


def test_the_limit_is_unicode_s() -> None:
    assert MAX_MARKS == 30
