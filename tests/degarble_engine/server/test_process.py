"""The command as a process: refused checkpoints, an answer over a socket, SIGTERM in the middle of one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.errors import TargetError
from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.server.admission import admit
from tests.conftest import unpacked_golden

CODE = "import sys, typer; from degarble_engine.cli.serve import register; app = typer.Typer(); register(app); app()"
"""The command alone, so that the test needs no entry point."""


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """A server, its address, and what it said until it was ready."""
    command = [sys.executable, "-c", CODE, *arguments, "--port", "0"]
    running = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )  # fmt: skip
    try:
        assert running.stderr is not None
        said: list[str] = []
        for line in running.stderr:
            said.append(line)
            if found := re.search(r"ready at (http://\S+)", line):
                break
        else:
            pytest.fail("".join(said))
        yield running, found[1], said
    finally:
        running.kill()
        running.wait()


def test_sigterm_lets_an_answer_finish() -> None:
    target = str(unpacked_golden() / "base-bf16")
    with process(target, "--served-model-name", "small", "--dtype", "fp32") as (running, address, said):
        assert any("checked: " in line for line in said)
        host, port = address.removeprefix("http://").split(":")
        silent = socket.create_connection((host, int(port)))  # says nothing, and must not hold the end up
        body = {"model": "small", "prompt": "once", "max_tokens": 300, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=30) as response:
            chunks = response.iter_lines()
            first = next(chunks)
            running.send_signal(signal.SIGTERM)
            rest = [line for line in chunks if line]
        assert json.loads(first.removeprefix("data: "))["model"] == "small"
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        silent.close()
        assert running.wait(timeout=20) == 0


def test_a_broken_checkpoint_is_refused_unless_it_is_wanted(tmp_path: Path) -> None:
    shutil.copytree(unpacked_golden() / "base-bf16", tmp_path / "model")
    source = open_target(tmp_path / "model")
    work = Workspace(source)
    weight = next(module for name, module in Evidence(source, Settings()).get("modules").by_canonical.items()
                  if name.endswith("mlp.up_proj"))  # fmt: skip
    values = weight.dequantize().copy()
    values[3, 5] = float("nan")
    for tensor, array in weight.replace(codes=values).items():
        work.set(tensor, array)
    said: list[str] = []
    with pytest.raises(TargetError, match=r"is broken \(.*\) and is not served"):
        admit(Evidence(work.source(), Settings()), said.append, allow_broken=False)
    assert any(line.startswith("error ") for line in said)
    admit(Evidence(work.source(), Settings()), said.append, allow_broken=True)
    assert said[-1] == "checked: findings, and served all the same"
