"""What holds of any text: as slow as one likes it is the same, chunked is whole, twice is once, and places are right."""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.tokenizer.change_log import MAX_CHANGES, Change
from degarble.tokenizer.sanitize import (
    Kind,
    Sanitized,
    SanitizePolicy,
    SanitizeRejected,
    SanitizerStream,
    TokenSanitizer,
)
from tests.tokenizer.hard_text import ALPHABET, SPECIALS, hard_text
from tests.tokenizer.sanitize_reference import sanitize_slowly

POLICIES = {
    "normalise": SanitizePolicy(special_tokens=SPECIALS),
    "drop": SanitizePolicy.preset("drop", special_tokens=SPECIALS),
    "replace": SanitizePolicy.preset("replace", special_tokens=SPECIALS),
    "mixed": SanitizePolicy(
        control="replace",
        hidden="replace",
        bidi="keep",
        special_token="replace",
        max_private_use=1,
        keep_controls="\x07",
        special_tokens=SPECIALS,
    ),
    "harmless": SanitizePolicy(zero_width="replace", private_use="keep", hidden="keep", control="keep", nfc="keep"),
}
SANITIZERS = {name: TokenSanitizer(policy) for name, policy in POLICIES.items()}
REJECT = TokenSanitizer(SanitizePolicy.preset("reject", special_tokens=SPECIALS))
cuts = st.lists(st.integers(0, 200), max_size=12)


def applied(text: str, changes: Iterable[Change]) -> str:
    """The input with the changes put in that are not inside another one."""
    out, done = "", 0
    for change in changes:
        if change.start >= done:
            out += text[done : change.start] + change.new
            done = change.end
    return out + text[done:]


def chunked(sanitizer: TokenSanitizer, text: str, at: Iterable[int]) -> tuple[str, SanitizerStream]:
    stream = sanitizer.stream()
    out, done = "", 0
    for cut in sorted(at):
        out += stream.push(text[done:cut]) if cut > done else ""
        done = max(done, cut)
        assert stream.num_held <= 31 + 7 + max(map(len, SPECIALS))
    return out + stream.finish(text[done:]), stream


def check(sanitizer: TokenSanitizer, text: str, at: Iterable[int]) -> Sanitized:
    """Everything that is promised of a text that is not rejected."""
    policy = sanitizer.policy
    whole = sanitizer.sanitize(text)
    assert whole.text == sanitize_slowly(text, policy)
    whole.text.encode()
    if policy.nfc != "keep":
        assert unicodedata.is_normalized("NFC", whole.text)
    assert len(whole.text) <= len(text if policy.nfc == "keep" else unicodedata.normalize("NFC", text))
    out, stream = chunked(sanitizer, text, at)
    assert out == whole.text
    assert stream.counts.keys() == whole.counts.keys()
    assert tuple(stream.special_texts) == whole.special_texts
    for special in whole.special_texts:
        assert whole.text[special.start : special.end] == special.token
    for changes, counts in ((whole.changes, whole.counts), (stream.changes, stream.counts)):
        assert applied(text, changes) == whole.text
        assert Counter(change.kind for change in changes) == counts
    again = sanitizer.sanitize(whole.text)
    assert again.text == whole.text
    assert set(again.counts) <= {Kind.SPECIAL_TOKEN}
    return whole


@pytest.mark.parametrize("name", SANITIZERS)
@settings(max_examples=60, deadline=None)
@given(text=hard_text, at=cuts)
def test_hard_text(name: str, text: str, at: list[int]) -> None:
    check(SANITIZERS[name], text, at)


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(), max_size=60), at=cuts)
def test_any_text(text: str, at: list[int]) -> None:
    for sanitizer in SANITIZERS.values():
        check(sanitizer, text, at)


@settings(max_examples=200, deadline=None)
@given(text=hard_text, at=cuts)
def test_a_rejection_names_a_place_that_would_have_been_changed(text: str, at: list[int]) -> None:
    changes = SANITIZERS["normalise"].sanitize(text).changes
    try:
        clean = REJECT.sanitize(text).text
    except SanitizeRejected as rejected:
        place = rejected.position
        assert any(change.kind == rejected.kind and change.start <= place < change.end for change in changes)
        assert str(rejected).startswith(f"position {place}: {rejected.kind}: U+")
        with pytest.raises(SanitizeRejected):
            chunked(REJECT, text, at)
    else:
        assert {change.kind for change in changes} <= {Kind.SURROGATE}  # pairs are joined, not rejected
        assert chunked(REJECT, text, at)[0] == clean


def random_text(rng: random.Random) -> str:
    """Up to some hundred characters: hard ones, any ones, marks in a row, special tokens."""
    kinds: tuple[Callable[[], str], ...] = (
        lambda: rng.choice(ALPHABET),
        lambda: chr(rng.randrange(0x110000)),
        lambda: chr(rng.randrange(0x3400)),
        lambda: rng.choice(SPECIALS),
        lambda: rng.choice(("\u0301", "\u0344", "e\u0301\u0323", "\u1112\u1161")) * rng.randint(1, 20),
        lambda: "\U0001f3f4" + "\U000e0067" * rng.randint(0, 7) + "\U000e007f",
    )
    weights = [rng.random() ** 3 for _ in kinds]
    return "".join(kind() for kind in rng.choices(kinds, weights, k=rng.randint(0, rng.choice((5, 40, 100)))))


def fuzz(seed: int, count: int) -> None:
    rng = random.Random(seed)
    sanitizers = list(SANITIZERS.values())
    for _ in range(count):
        text = random_text(rng)
        at = [rng.randint(0, len(text)) for _ in range(rng.choice((0, 1, 3, 8)))]
        check(rng.choice(sanitizers), text, at)
        try:
            REJECT.sanitize(text)
        except SanitizeRejected as rejected:
            assert 0 <= rejected.position < len(text)


def test_two_thousand_strings() -> None:
    fuzz(1, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_thousand_strings(seed: int) -> None:
    fuzz(100 + seed, 10_000)


def test_changes_of_a_long_text_are_counted_and_the_first_placed() -> None:
    """Longer than a block, with more edits than a stream remembers, under a policy that needs all positions."""
    policy = SanitizePolicy(bidi="reject")
    text = "\x00ae\u0301\ud83d\ude00" * 40_000
    result = TokenSanitizer(policy).sanitize(text)
    assert result.text == "aé😀" * 40_000
    assert len(result.changes) == MAX_CHANGES
    out, stream = chunked(TokenSanitizer(policy), text + "e", range(0, len(text), 1000))
    assert out == result.text + "e"
    assert stream.counts[Kind.CONTROL] == 40_000
    with pytest.raises(SanitizeRejected) as rejected:
        TokenSanitizer(policy).sanitize(text + "\u202e")
    assert rejected.value.position == len(text)


def test_a_letter_that_waits_while_much_is_dropped_keeps_its_place() -> None:
    stream = TokenSanitizer().stream()
    assert stream.push("xe") == "x"
    for _ in range(900):
        assert stream.push("\x00") == ""
    assert len(stream._stages[1].origins) < 10  # removals in a row are remembered as one
    assert stream.finish("\u0301") == "é"
    assert stream.changes[0] == Change("nfc", 1, 903, "e\u0301", "é")
