"""`degarble verify-repack`: the user's function in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from degarble.cli.app import run as run_command

FUNCTIONS = """
import os
import numpy as np

def classic(w): return np.clip(w << 4, -8, 7)
def shift(w): return w << 4
def clip(w): return np.clip(w, -8, 7)
def keep(w): return w
def turn(w): return np.ascontiguousarray(w.T)
SHIFTS = np.arange(0, 32, 4, dtype=np.int32)
def pack(w): return np.bitwise_or.reduce((w.astype(np.int32) & 15).reshape(len(w), -1, 8) << SHIFTS, axis=-1)
def unpack(w): return ((w[:, :, None] >> SHIFTS) & 15).reshape(len(w), -1)
def differences(w): return np.concatenate([w[:, :1], w[:, 1:] ^ w[:, :-1]], axis=1)
def change_input(w):
    w += 1
    return w - 1
def chatty(w):
    print("hello")
    return w
class Tensor:
    def __init__(self, array): self.array = array
    def numpy(self): return self.array
def tensor(w): return Tensor(w)
def endless(w):
    while True: pass
def greedy(w): return np.ones(1 << 36, np.uint8)
def failing(w): raise RuntimeError("no such luck")
def leaving(w): raise SystemExit(0)
def vanishing(w): os._exit(7)
def nothing(w): return None
def growing(w): return np.zeros(1 + int(w.sum()))
number = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    return "mine:"


def run(*arguments: str) -> int:
    return run_command(["verify-repack", *arguments])


def test_the_classic_error_is_named(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mine + "classic", "--signed") == 1
    text = capsys.readouterr().out
    assert "lost: mine:classic" in text and "16 codes become 3" in text
    assert "-8..-1 -> -8" in text and "1..7 -> 7" in text


def test_json(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mine + "shift", mine + "clip", "--signed", "--format", "json") == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["status"], facts["outcome"], facts["step"]) == ("findings", "lost", "mine:clip")
    assert facts["collisions"] == [
        {"codes": list(range(-8, 0)), "value": -8},
        {"codes": [0], "value": 0},
        {"codes": list(range(1, 8)), "value": 7},
    ]
    assert facts["lost_codes"] == [code for code in range(-8, 8) if code]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["shift", "--signed"], "lossless"),
        (["keep", "--to", "codes"], "identity"),
        (["mine.py:keep", "--to", "codes", "--bits", "3"], "identity"),
        (["turn", "--layout", "gptq", "--to", "compressed-tensors", "--bits", "8"], "identity"),
        (["pack", "--to", "compressed-tensors", "--signed"], "identity"),
        (["pack", "--inverse", "mine:unpack"], "identity"),
        (["keep", "--layout", "compressed-tensors", "--to", "awq-gemv", "--shape", "8x64"], "identity"),
        (["change_input", "--to", "codes"], "identity"),
        (["chatty", "--to", "codes"], "identity"),
        (["tensor", "--to", "codes"], "identity"),
    ],
)
def test_healthy(mine: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = arguments[0] if ":" in arguments[0] else mine + arguments[0]
    assert run(first, *arguments[1:]) == 0
    assert capsys.readouterr().out.startswith(says)


def test_wrong_order(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mine + "keep", "--layout", "gptq", "--to", "exllama") == 1
    assert capsys.readouterr().out.startswith("misplaced")
    assert run(mine + "shift", "--to", "codes") == 1
    assert capsys.readouterr().out.startswith("altered")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["failing"], "RuntimeError: no such luck"),
        (["leaving"], "SystemExit"),
        (["vanishing"], "status 7"),
        (["nothing"], "not an array"),
        (["growing"], "depends on the codes"),
        (["absent"], "no attribute"),
        (["number"], "is no function"),
        (["endless", "--timeout", "1"], "did not finish within 1 second"),
        (["keep", "--layout", "nope"], "no layout is called"),
        (["keep", "--layout", "marlin", "--bits", "2"], "marlin knows 4, 8 bits"),
        (["keep", "--shape", "3"], "--shape"),
        (["keep", "--shape", "5x8"], "multiples"),
        (["keep", "--to", "gptq"], "cannot be read as gptq"),
        (["keep", "--to", "gptq", "--inverse", "mine:keep"], "not both"),
        (["keep", "--format", "yaml"], "text or json"),
        (["differences"], "could not be judged"),
    ],
)
def test_status_2(mine: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mine + arguments[0], *arguments[1:]) == 2
    caught = capsys.readouterr()
    assert says in caught.err and not caught.out


def test_memory_is_limited(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("resource")
    assert run(mine + "greedy", "--memory", "2048") == 2
    assert "greedy could not be run" in capsys.readouterr().err


def test_names_must_be_complete(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("mine") == 2
    assert "module:function" in capsys.readouterr().err
    assert run("nosuchmodule:f", "--format", "json") == 2
    assert json.loads(capsys.readouterr().out)["status"] == "error"


def test_output_file(mine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mine + "keep", "--to", "codes", "--format", "json", "--output", "out.json") == 0
    assert capsys.readouterr().out == ""
    assert json.loads((tmp_path / "out.json").read_text())["outcome"] == "identity"
