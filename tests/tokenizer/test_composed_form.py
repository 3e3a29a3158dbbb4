"""Streamed NFC against Python's own, and the tables it rests on."""

from __future__ import annotations

import random
import re
import sys
import unicodedata

from degarble.tokenizer.composed_form import ASTRAL_STRETCHES, CJK_PLANES_END, MAX_MARKS, ComposedForm, tables


def streamed(text: str, cuts: list[int]) -> str:
    stage = ComposedForm(lambda text, taken, edits: None, reject=False)
    out, done = "", 0
    for cut in [*sorted(cuts), len(text)]:
        out += stage.push(text[done:cut]) if cut > done else ""
        done = max(done, cut)
    return out + stage.finish()


def test_every_character_that_normalisation_touches_is_in_the_tables() -> None:
    stretches = re.compile(f"[{ASTRAL_STRETCHES}]")
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        touched = unicodedata.combining(char) or not unicodedata.is_normalized("NFC", char)
        if touched or char in tables().extenders:
            assert code < CJK_PLANES_END
            assert code < 0x10000 or stretches.match(char), f"U+{code:04X}"


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
        stage = ComposedForm(lambda text, taken, edits: None, reject=False)
        if stage.push(char):
            alone = unicodedata.normalize("NFC", char)
            for second in seconds[:: 1 + code % 7]:
                assert unicodedata.normalize("NFC", char + second).startswith(alone), ascii(char + second)


def test_the_limit_is_unicode_s() -> None:
    assert MAX_MARKS == 30
