"""The three commands, as a user types them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from degarble.cli import tokenizer as command
from degarble.errors import DegarbleError, TargetError, UsageError
from tests.tokenizer import small_tokenizers as small


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.stored(tmp_path, small.byte_level())
    return tmp_path


def run(*arguments: str) -> int:
    app = typer.Typer()
    command.register(app)
    app.callback()(lambda: None)
    status = app(args=["tokenizer", *arguments], standalone_mode=False)
    return status if isinstance(status, int) else 0


def test_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", str(folder), "--count", "2") == 0
    shown = capsys.readouterr().out
    assert "byte-level" in shown and "naive first disagrees in" in shown
    assert run("verify", str(folder), "--count", "2", "--decoder", "naive", "--format", "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "tokenizer verify" and document["schema_version"] == 1
    assert document["decoders"][0]["first"]["reason"]


def test_verify_with_a_reference(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", str(folder), "--reference", str(folder), "--decoder", "exact", "--count", "1") == 0
    document = small.byte_level()
    document["added_tokens"][0]["special"] = False
    small.stored(folder / "other", document)
    assert run("verify", str(folder / "other"), "--reference", str(folder), "--decoder", "exact", "--count", "1") == 1
    assert "special: id" in capsys.readouterr().out


def test_verify_of_a_gguf_file_skips_what_cannot_read_it(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(golden / "llama.cpp-q4_0" / "model-Q4_0.gguf")
    assert run("verify", target, "--count", "1") == 0
    assert "decode-stream skipped" in capsys.readouterr().out
    with pytest.raises(DegarbleError):
        run("verify", target, "--count", "1", "--decoder", "whole")


def test_stress(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("stress", str(folder), "--count", "2") == 0
    assert "chinese-and-code" in capsys.readouterr().out
    written = tmp_path / "stress.json"
    assert run("stress", str(folder), "--count", "1", "--format", "json", "--output", str(written)) == 0
    rows = json.loads(written.read_text())["rows"]
    assert {row["num_different"] for row in rows} == {0}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["stress"], UsageError),
        (["stress", "x", "--endpoint", "http://127.0.0.1:9"], UsageError),
        (["stress", "--endpoint", "http://127.0.0.1:9", "--model", "m"], TargetError),
        (["stress", "x", "--format", "xml"], UsageError),
        (["verify", "x", "--count", "0"], UsageError),
        (["verify", "no-such-folder"], TargetError),
        (["sanitize", "no-such-file"], UsageError),
        (["sanitize", "no-such-file", "--policy", "other"], UsageError),
    ],
)
def test_wrong_usage(arguments: list[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        run(*arguments)


class Input:
    """Standard input of bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def sanitized(
    data: bytes, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any, *arguments: str
) -> tuple[int, bytes, bytes]:
    monkeypatch.setattr(sys, "stdin", Input(data))
    status = run("sanitize", *arguments)
    shown = capfdbinary.readouterr()
    return status, shown.out, shown.err


def test_sanitize_as_a_filter(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = "e\u0301\r\n".encode() + b"\x00\xff<|end|>"
    status, out, err = sanitized(data, monkeypatch, capfdbinary, "--tokenizer", str(folder))
    assert (status, out) == (0, "é\r\n<|end|>".encode())
    assert b"control 1, nfc 1, special-token 1, surrogate 1" in err
    status, out, err = sanitized(data, monkeypatch, capfdbinary, "--policy", "reject")
    assert (status, out) == (1, b"")
    assert b"rejected: position 4: control: U+0000" in err
    assert sanitized(b"plain", monkeypatch, capfdbinary) == (0, b"plain", b"")
    assert sanitized(b"a\tb\n", monkeypatch, capfdbinary, "--keep-controls", r"\n")[1] == b"ab\n"


def test_sanitize_a_file_with_a_report(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a\x00\xffb")
    arguments = ("--report", str(tmp_path / "report.json"), "--output", str(tmp_path / "out.txt"))
    assert run("sanitize", str(tmp_path / "in.txt"), *arguments) == 0
    assert (tmp_path / "out.txt").read_bytes() == b"ab"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["counts"] == {"control": 1, "surrogate": 1}
    assert report["changes"][1] == {"kind": "surrogate", "start": 2, "end": 3, "old": "\\udcff", "new": ""}
