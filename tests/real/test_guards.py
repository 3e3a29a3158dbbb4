"""Healthy answers of the real model trip no guard as damage; as many as the time allows, on top of those that are kept."""

from __future__ import annotations

import os

import pytest

from tests.real.conftest import WORK
from tests.real.healthy import extend, summary

SECONDS = float(os.environ.get("DEGARBLE_HEALTHY_SECONDS", "120"))

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_no_healthy_answer_is_called_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    lines = extend(WORK.parent / "guards-healthy.jsonl", SECONDS)
    found = summary(lines)
    with capsys.disabled():
        print(found)
    assert found["answers"] >= 8 and found["tokens"] >= 256 * found["answers"]
    damaged = [line for line in lines if any(trip["kind"] == "damage" for trip in line["trips"])]
    assert damaged == []
    own = [line for line in lines if any(trip["kind"] == "own" for trip in line["trips"])]
    assert len(own) < len(lines) / 2
