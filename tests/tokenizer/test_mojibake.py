"""Traces of wrong decoding."""

from __future__ import annotations

import pytest

from degarble.tokenizer.byte_alphabet import bytes_to_letters
from degarble.tokenizer.corpora import corpus_names, make_corpus
from degarble.tokenizer.mojibake import MAX_TRACES, find_mojibake, num_spurious


@pytest.mark.parametrize(
    ("text", "kind", "likely"),
    [
        ("a\ufffd\ufffdb", "replacement-char", None),
        ("x <0xE4><0xBD><0xA0>", "byte-token", "你"),
        ("▁the▁cat", "metaspace", " "),
        (bytes_to_letters("over the café\n\nnew".encode()), "byte-alphabet", " the"),
        ("café".encode().decode("latin-1"), "double-encoding", "é"),
        ("“你好”".encode().decode("cp1252", "replace").replace("\ufffd", ""), "double-encoding", None),
        ("naïve – yes".encode().decode("cp1252"), "double-encoding", "ï"),
    ],
)
def test_each_kind_is_named(text: str, kind: str, likely: str | None) -> None:
    traces = [trace for trace in find_mojibake(text) if trace.kind == kind]
    if likely is not None:
        assert traces and (likely in (traces[0].likely or ""))
    for trace in traces:
        assert text[trace.start : trace.end] == trace.text


@pytest.mark.parametrize("name", [n for n in corpus_names() if n not in ("control-mixed", "random-unicode")])
def test_healthy_text_has_no_trace(name: str) -> None:
    for text in make_corpus(name):
        assert find_mojibake(text) == []


def test_spurious_means_more_than_the_text_has() -> None:
    assert num_spurious("a\ufffd\ufffd", "a\ufffd") == 1
    assert num_spurious("", "\ufffd") == 0


def test_the_list_is_bounded() -> None:
    assert len(find_mojibake("\ufffda" * 5000)) == MAX_TRACES
