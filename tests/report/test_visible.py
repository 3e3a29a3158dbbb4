"""What cannot be seen is spelled out, what is too long is cut, and the rest is left alone."""

from __future__ import annotations

import pytest

from degarble.report.visible import MAX_NAME, visible, visible_finding, visible_lines, visible_report
from tests.report.samples import HOSTILE, finding, hostile, layered


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain.weight", "plain.weight"),
        ("größe 模型 🙂", "größe 模型 🙂"),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\u202egnp", "\\u202egnp"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\U000e0041"),
        ("\u2028\u00a0", "\\u2028\\xa0"),
    ],
)
def test_characters(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_long_name_keeps_both_ends_and_says_its_length() -> None:
    shown = visible("begin" + "x" * 10_000 + "end")
    assert len(shown) == MAX_NAME
    assert shown.startswith("begin") and shown.endswith("end") and "10,008 characters" in shown
    assert visible(shown) == shown


def test_a_message_keeps_its_lines() -> None:
    assert visible_lines("one\ntwo\x00") == "one\ntwo\\x00"
    assert len(visible_lines("x\n" * 1_000_000)) < 10_000


def test_ordinary_findings_are_not_copied() -> None:
    plain = finding(measured={"a": 1, "b": 0.5}, bound={"a": 0})
    assert visible_finding(plain) is plain


@pytest.mark.parametrize("case", HOSTILE)
def test_twice_is_once(case: str) -> None:
    once = visible_report(hostile(HOSTILE[case]))
    assert visible_report(once) == once


def test_the_fingerprint_is_of_the_true_name() -> None:
    odd = finding(fold="x\u202e", message="\x00")
    assert visible_finding(odd).message == "\\x00"
    assert visible_finding(odd).fingerprint == odd.fingerprint


def test_nothing_of_an_ordinary_report_changes() -> None:
    report = layered()
    assert visible_report(report) == report
