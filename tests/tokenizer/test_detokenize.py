"""The exact stream: every cut, every grouping, every policy, against the slow twin and Python's own decoder."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.errors import UsageError
from degarble.tokenizer import detokenize
from degarble.tokenizer.byte_table import ByteTable, partial_ids
from degarble.tokenizer.detokenize import Detokenizer, StreamBatch, StreamState, detokenize_reference
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.special_tokens import KEEP, SpecialTokenPolicy
from degarble.tokenizer.stress import num_late, oracle_deltas
from tests.tokenizer import small_tokenizers as small

KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "byte-level": small.byte_level,
    "byte-fallback": small.byte_fallback,
    "strip 3": lambda: small.byte_fallback(strip=3),
    "metaspace": small.unigram,
    "wordpiece": small.wordpiece,
}


@pytest.fixture(params=KINDS, scope="module")
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One small tokenizer of each kind."""
    return small.stored(tmp_path_factory.mktemp("tokenizer"), KINDS[request.param]())


@pytest.fixture(scope="module")
def bytes_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The byte-level one."""
    return small.stored(tmp_path_factory.mktemp("bytes"), small.byte_level())


def id_lists(tokenizer: Tokenizer, count: int, longest: int) -> list[list[int]]:
    """Random ids: valid, partial, special, out of range."""
    rng = random.Random(7)
    partial = partial_ids(tokenizer.table) or [0]
    pools = [range(tokenizer.num_ids), partial, partial, [-1, tokenizer.num_ids, 1 << 40]]
    return [
        [rng.choice(rng.choices(pools, (6, 3, 3, 1))[0]) for _ in range(rng.randint(0, longest))] for _ in range(count)
    ]


def test_every_delta_is_the_slow_twin_s(tokenizer: Tokenizer) -> None:
    for special in (KEEP, SpecialTokenPolicy()):
        detokenizer = Detokenizer(tokenizer, special=special)
        for ids in id_lists(tokenizer, 150, 14):
            stream = detokenizer.stream()
            deltas = [*map(stream.push, ids), stream.finish()]
            assert deltas == detokenize_reference(tokenizer.table, ids, detokenizer.hidden), ids
            assert "".join(deltas) == tokenizer.table.join(ids, detokenizer.hidden).decode("utf-8", "replace")


def test_nothing_is_late(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer, special=KEEP)
    for ids in id_lists(tokenizer, 200, 60):
        stream = detokenizer.stream()
        assert num_late([*map(stream.push, ids), stream.finish()], oracle_deltas(tokenizer.table, ids)) == 0


def test_all_groupings_of_ten_ids(bytes_tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(bytes_tokenizer)
    data = "é🌶客 x".encode()[:10]
    whole = detokenizer.decode(data_ids := [bytes_tokenizer.table.pieces.index(bytes([byte])) for byte in data])
    for cuts in itertools.product((False, True), repeat=len(data_ids) - 1):
        stream = detokenizer.stream()
        steps: list[list[int]] = [[data_ids[0]]]
        for token_id, cut in zip(data_ids[1:], cuts, strict=True):
            if cut:
                steps.append([])
            steps[-1].append(token_id)
        assert "".join([stream.push_many(step) for step in steps]) + stream.finish() == whole


def test_every_cut_with_a_saved_state(tokenizer: Tokenizer) -> None:
    """A stream that is saved after any id, sent as JSON, and resumed elsewhere gives the same text."""
    detokenizer = Detokenizer(tokenizer, special=KEEP)
    for ids in id_lists(tokenizer, 40, 12):
        whole = detokenizer.decode(ids)
        for cut in range(len(ids) + 1):
            stream = detokenizer.stream()
            text = stream.push_many(ids[:cut])
            sent = msgspec.json.encode(stream.state())
            other = Detokenizer(tokenizer, special=KEEP).stream(state=msgspec.json.decode(sent, type=StreamState))
            assert text + other.push_many(ids[cut:]) + other.finish() == whole


@given(st.lists(st.text(max_size=4), max_size=8))
def test_text_spelled_in_any_bytes_comes_back(parts: list[str]) -> None:
    table = ByteTable(pieces=[bytes([byte]) for byte in range(256)])
    stream = Detokenizer(table).stream()
    for text in parts:
        assert stream.push_many(text.encode()) == text
    assert stream.finish() == ""


def test_a_replacement_character_that_the_model_writes_is_text(bytes_tokenizer: Tokenizer) -> None:
    token_id = bytes_tokenizer.table.pieces.index("\ufffd".encode())
    assert Detokenizer(bytes_tokenizer).stream().push(token_id) == "\ufffd"


def test_an_unfinished_character_at_the_end(bytes_tokenizer: Tokenizer) -> None:
    stream = Detokenizer(bytes_tokenizer).stream()
    index = bytes_tokenizer.table.pieces.index
    assert stream.push(index(b"a")) == "a"
    assert stream.push(index("🌶".encode()[:2])) == ""
    assert stream.num_pending_bytes == 2
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""


def test_a_stream_after_a_prompt_does_not_repeat_it(tmp_path: Path) -> None:
    tokenizer = small.stored(tmp_path, small.byte_fallback())
    ids = [tokenizer.ids_by_piece[piece] for piece in ("the", "▁Paris")]
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.stream(after=ids[:1]).push(ids[1]) == " Paris"
    assert detokenizer.stream().push(ids[1]) == "Paris"
    chili = [byte + 3 for byte in "🌶".encode()]
    assert detokenizer.stream(after=[*ids, *chili[:3]]).push(chili[3]) == "🌶"


def test_the_leading_space_is_dropped_once(tmp_path: Path) -> None:
    tokenizer = small.stored(tmp_path, small.byte_fallback())
    ids = [tokenizer.ids_by_piece[piece] for piece in ("<s>", "▁", "▁the", "\n", "▁▁▁▁x")]
    assert Detokenizer(tokenizer).decode(ids) == " the\n    x"
    assert Detokenizer(tokenizer, special=KEEP).decode(ids) == "<s>  the\n    x"


def test_special_tokens_inside_a_character(bytes_tokenizer: Tokenizer) -> None:
    """Hidden ids are left out before anything else, as the library does, so the character is whole."""
    first, last = (bytes_tokenizer.table.pieces.index(part) for part in ("é".encode()[:1], "é".encode()[1:]))
    end = bytes_tokenizer.ids_by_piece["<|end|>"]
    assert Detokenizer(bytes_tokenizer).decode([first, end, last]) == "é"
    assert Detokenizer(bytes_tokenizer, special=KEEP).decode([first, end, last]) == "\ufffd<|end|>\ufffd"


def test_ids_without_a_string(tmp_path: Path) -> None:
    bytes_tokenizer = small.stored(tmp_path, small.byte_level(hole=1))
    hole = bytes_tokenizer.ids_by_piece["<tool>"] + 1
    assert bytes_tokenizer.pieces[hole] is None
    half = bytes_tokenizer.table.pieces.index("é".encode()[:1])
    stream = Detokenizer(bytes_tokenizer).stream()
    assert stream.push_many([hole, -1, 1 << 50, 65]) == "A"
    assert stream.num_without_text == 3
    shown = Detokenizer(bytes_tokenizer, without_text="replace").stream()
    assert shown.push_many([half, hole, 65]) == "\ufffd\ufffdA"
    with pytest.raises(UsageError, match=f"id {hole} has no string"):
        Detokenizer(bytes_tokenizer, without_text="raise").stream().push(hole)


def test_a_state_of_another_tokenizer(bytes_tokenizer: Tokenizer) -> None:
    for state in (StreamState(pending=b"1234"), StreamState(strip=1), StreamState(strip=-1)):
        with pytest.raises(UsageError, match="state"):
            Detokenizer(bytes_tokenizer).stream(state=state)


def test_interleaved_streams_do_not_touch_each_other(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer, special=KEEP)
    sequences = [ids for ids in id_lists(tokenizer, 40, 20) if len(ids) > 5]
    length = min(map(len, sequences))
    batch = StreamBatch(detokenizer)
    keys = list(range(len(sequences)))
    texts = [""] * len(keys)
    for key in keys:
        batch.open(key)
    for at in range(length):
        for key, delta in zip(keys, batch.step(keys, [ids[at] for ids in sequences]), strict=True):
            texts[key] += delta
    rest = batch.step_many({key: sequences[key][length:] for key in keys})
    texts = [text + rest[key] for key, text in zip(keys, texts, strict=True)]
    assert batch.state(0) == detokenizer.stream(after=sequences[0]).state()
    texts = [text + batch.close(key) for key, text in zip(keys, texts, strict=True)]
    assert texts == [detokenizer.decode(ids) for ids in sequences]
    batch.open(0)
    with pytest.raises(UsageError, match="open already"):
        batch.open(0)


def test_a_full_memory_changes_nothing(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [Detokenizer(tokenizer).decode(ids) for ids in id_lists(tokenizer, 20, 30)]
    monkeypatch.setattr(detokenize, "MAX_REMEMBERED_STEPS", 3)
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.decode(ids) for ids in id_lists(tokenizer, 20, 30)] == expected
