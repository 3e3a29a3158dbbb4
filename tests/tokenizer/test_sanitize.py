"""The sanitiser by example: what survives, what goes, where it was; and that time is linear."""

from __future__ import annotations

import time
import unicodedata
from typing import Any

import pytest

from degarble.errors import UsageError
from degarble.tokenizer.change_log import MAX_CHANGES
from degarble.tokenizer.sanitize import (
    Kind,
    Sanitized,
    SanitizePolicy,
    SanitizeRejected,
    TokenSanitizer,
    sanitize,
)
from degarble.tokenizer.sanitize_fields import sanitize_fields
from tests.tokenizer.hard_text import SPECIALS

SURVIVES = (
    "👨‍👩‍👧‍👦 ❤️‍🔥 👩🏽‍🔬 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩🇪 1️⃣",
    "می‌خواهم کتاب‌ها",
    "क्‍ष क्‌ष हिन्दी",
    "বাংলা ভাষা, தமிழ், ไทย, བོད་སྐད།",
    "tab\tline\r\nend",
    "שָׁלוֹם \u200fעברית\u200e",
    "葛󠄀 葛󠄁",
    "ｶﾞ ① ﷺ 〈｜〉",
    "\ue000 logo \uf8ff",
    "word\u200bword \ufeffx",
    "\ufffd is text",
    "",
)


@pytest.mark.parametrize("text", SURVIVES)
def test_what_must_survive(text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    assert sanitize(text) == Sanitized(text=text)
    assert TokenSanitizer(SanitizePolicy.preset("reject")).sanitize(text).text == text


REMOVED = (
    ("a\x00b\x1b\x7f\x85", Kind.CONTROL, "ab"),
    ("\u202eabc\u202c \u2066x\u2069", Kind.BIDI, "abc x"),
    ("a\ud83d b\ude00", Kind.SURROGATE, "a b"),
    ("\ufdd0a\uffff\U0010ffff", Kind.NONCHARACTER, "a"),
    ("\ue000\ue001\ue002\U000f0000", Kind.PRIVATE_USE, "\ue000\ue001"),
    ("a\u200b\u200c\u200db", Kind.ZERO_WIDTH, "a\u200bb"),
    ("x\U000e0048\U000e0069", Kind.HIDDEN, "x"),
    ("x\ufe00\ufe01\ufe02", Kind.HIDDEN, "x\ufe00"),
    ("\U0001f3f4\U000e0067", Kind.HIDDEN, "\U0001f3f4"),
    ("e\u0301", Kind.NFC, "é"),
    ("\u212b \u0958 \u1112\u1161\u11ab", Kind.NFC, "Å \u0915\u093c 한"),
    ("a" + "\u0301" * 40, Kind.NFC, "á" + "\u0301" * 29),
)


@pytest.mark.parametrize(("text", "kind", "clean"), REMOVED)
def test_what_is_removed(text: str, kind: Kind, clean: str) -> None:
    result = sanitize(text)
    assert result.text == clean
    assert set(result.counts) == {kind}
    with pytest.raises(SanitizeRejected) as rejected:
        TokenSanitizer(SanitizePolicy.preset("reject")).sanitize("ok " + text)
    assert rejected.value.kind == kind
    assert rejected.value.position >= 3
    assert str(rejected.value).startswith(f"position {rejected.value.position}: {kind}: U+")


def test_replace_keeps_the_length() -> None:
    policy = SanitizePolicy.preset("replace", special_tokens=SPECIALS)
    assert sanitize("a\x00\x01\u200b\u200b<K>", policy).text == "a\ufffd\ufffd\u200b\ufffd\ufffd"


def test_drop_rewrites_nothing() -> None:
    assert sanitize("e\u0301\x00", SanitizePolicy.preset("drop")).text == "e\u0301"


def test_a_pair_becomes_its_character() -> None:
    result = sanitize("\ud83d\ude00\x00")
    assert result.text == "😀"
    assert [(change.kind, change.start, change.end, change.new) for change in result.changes] == [
        ("surrogate", 0, 2, "😀"),
        ("control", 2, 3, ""),
    ]


def test_positions_are_those_of_the_input() -> None:
    text = "\x00ab\x00e\u0301 \ud83d\ude00 <K> \u202ex"
    result = sanitize(text, SanitizePolicy(special_tokens=SPECIALS))
    for change in result.changes:
        assert (
            unicodedata.normalize("NFC", text[change.start : change.end].replace("\x00", ""))
            in (
                change.new,
                change.old,
                "",
                "\u202e",
            )
            or change.new == "😀"
        ), change
    special = next(change for change in result.changes if change.kind == Kind.SPECIAL_TOKEN)
    assert text[special.start : special.end] == "<K>"
    with pytest.raises(SanitizeRejected) as rejected:
        sanitize("\ud83d\ude00" * 3 + "e\u0301", SanitizePolicy(nfc="reject"))
    assert rejected.value.position == 6


def test_special_tokens_hidden_behind_normalisation() -> None:
    """U+212A is the Kelvin sign; composed it is a K, and the token is there."""
    result = sanitize("<\u212a>", SanitizePolicy(special_tokens=SPECIALS))
    assert [special.token for special in result.special_texts] == ["<K>"]
    assert "<" in sanitize("<<\x00K>K>", SanitizePolicy.preset("replace", special_tokens=SPECIALS)).text


def test_only_one_character_waits_in_ordinary_text() -> None:
    stream = TokenSanitizer().stream()
    assert stream.push("Hello") == "Hell"
    assert stream.push(" wor") == "o wo"
    assert stream.push("ld.") == "rld."
    assert stream.push("你好") == "你好"
    assert stream.push("e") == ""
    assert stream.push("\u0301") == ""
    assert stream.push("!") == "é!"
    assert stream.finish() == ""
    with pytest.raises(UsageError):
        stream.push("x")


def test_reordered_marks_across_chunks() -> None:
    stream = TokenSanitizer().stream()
    assert stream.push("a\u0301") + stream.push("\u0323") + stream.finish() == unicodedata.normalize(
        "NFC", "a\u0323\u0301"
    )


def test_policies_that_make_no_sense() -> None:
    arguments: tuple[dict[str, Any], ...] = (
        {"control": "normalise"},
        {"surrogate": "keep"},
        {"nfc": "drop"},
        {"special_token": "drop"},
        {"max_private_use": -1},
        {"special_tokens": ("",)},
    )
    for wrong in arguments:
        with pytest.raises(UsageError):
            SanitizePolicy(**wrong)
    with pytest.raises(UsageError):
        SanitizePolicy.preset("other")


def test_kinds_can_be_kept() -> None:
    policy = SanitizePolicy(
        control="keep", zero_width="keep", hidden="keep", private_use="keep", bidi="keep", nfc="keep"
    )
    text = "a\x00\u200b\u200b\ufe00\ufe00\U000e0041\ue000\ue000\ue000\u202ee\u0301"
    assert sanitize(text, policy).text == text


def test_control_characters_can_be_chosen() -> None:
    assert sanitize("a\tb\nc\rd", SanitizePolicy(keep_controls="\n")).text == "ab\ncd"


def test_many_changes_are_counted_and_the_first_listed() -> None:
    result = sanitize("\x00a" * 5000)
    assert result.counts == {"control": 5000}
    assert len(result.changes) == MAX_CHANGES
    stream = TokenSanitizer().stream()
    for _ in range(100):
        stream.push("\x00ae\u0301" * 100)
    stream.finish()
    assert stream.counts == {"control": 10_000, "nfc": stream.counts["nfc"]}
    assert stream.counts["nfc"] >= 100  # close ones are reported as one


DENSE = {
    "a control after each letter": "a\x00",
    "decomposed": "e\u0301",
    "marks out of order": "a\u0301\u0323",
    "one run of marks": "\u0301\u0323\u0316",
    "zero width": "a\u200b\u200c\u200c",
    "private use": "\ue000",
    "compatibility ideographs": "\uf900\U0002f800",
    "halves of pairs": "a\ud800",
    "flags": "\U0001f3f4\U000e0067\U000e007f",
    "special tokens": "<|a|>",
    "almost special tokens": "<|",
}


@pytest.mark.parametrize("name", DENSE)
def test_a_change_at_every_character_is_linear_and_fast(name: str) -> None:
    """Arrays, not Python, at each edit: the bound is a sixth of what is wanted, for machines with other work."""
    sanitizer = TokenSanitizer(SanitizePolicy(special_tokens=SPECIALS))

    def bytes_per_second(count: int) -> float:
        text = DENSE[name] * (count // len(DENSE[name]))
        seconds = []
        for _ in range(3):
            start = time.process_time()
            sanitizer.sanitize(text)
            seconds.append(time.process_time() - start)
        return len(text.encode("utf-8", "surrogatepass")) / min(seconds)

    sanitizer.sanitize(DENSE[name])
    assert bytes_per_second(100_000) > 2.5e6
    assert bytes_per_second(800_000) > 2.5e6


def test_fields_of_a_request() -> None:
    request = {
        "model": "m\x00",
        "authorization": "Bearer e\u0301\x00",
        "messages": [{"role": "user", "content": "e\u0301\x00"}, {"content": [{"type": "text", "text": "ok"}]}],
        "prompt": ["a\x00", "b"],
        "n": 1,
    }
    clean, changed = sanitize_fields(request, TokenSanitizer())
    assert clean["authorization"] == request["authorization"] and clean["model"] == "m\x00"
    assert clean["messages"][0]["content"] == "é"
    assert clean["prompt"] == ["a", "b"]
    assert set(changed) == {"messages[0].content", "prompt[0]"}
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    with pytest.raises(UsageError):
        sanitize_fields({"content": deep}, TokenSanitizer())
