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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from degarble.checkpoint.workspace import Workspace
from degarble.errors import TargetError
from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.server import process
from degarble_engine.server.admission import admit
from degarble_engine.server.app import application
from degarble_engine.server.limits import Limits
from degarble_engine.server.service import Service
from tests.conftest import unpacked_golden
from tests.degarble_engine.server.served import fresh_model, is_free

CODE = "import sys, typer; from degarble_engine.cli.serve import register; app = typer.Typer(); register(app); app()"
"""The command alone, so that the test needs no entry point."""


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """A server, its address, and what it said until it was ready."""
    line = [sys.executable, "-c", CODE, *arguments, "--port", "0"]
    running = subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )  # fmt: skip
    try:
        assert running.stderr is not None
        said: list[str] = []
        for told in running.stderr:
            said.append(told)
            if found := re.search(r"ready at (http://[^\s\"]+)", told):
                break
        else:
            pytest.fail("".join(said))
        yield running, found[1], said
    finally:
        running.kill()
        running.wait()


@contextmanager
def listening(
    header_seconds: float = 15.0,
    change: Callable[[Starlette], None] = lambda app: None,
    limits: Limits | None = None,
    **options: Any,
) -> Iterator[tuple[process.DrainingServer, str, Service]]:
    """The same server in a thread of this process, at a port of its own; `change` may add to the application."""
    service = Service(fresh_model(**options), limits or Limits())
    app = application(service)
    change(app)
    made = process.server(app, service.loop, host="127.0.0.1", port=0, header_seconds=header_seconds, drain_seconds=10)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        while not made.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = made.servers[0].sockets[0].getsockname()[1]
        yield made, f"http://127.0.0.1:{port}", service
    finally:
        made.should_exit = True
        thread.join(timeout=20)
    assert not thread.is_alive()
    assert is_free(service)


LONG = {"prompt": "once", "max_tokens": 80, "ignore_eos": True, "stream": True}


def test_the_end_waits_for_an_answer() -> None:
    with listening() as (made, address, service):
        with httpx.stream("POST", f"{address}/v1/completions", json=LONG, timeout=30) as response:
            chunks = response.iter_lines()
            next(chunks)
            made.handle_exit(signal.SIGTERM, None)
            rest = [line for line in chunks if line]
        assert not service.loop.is_ready
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"


def test_a_closed_connection_ends_its_answer() -> None:
    with listening() as (_, address, service):
        with httpx.stream(
            "POST", f"{address}/v1/completions", json={**LONG, "max_tokens": 400}, timeout=30
        ) as response:
            next(response.iter_lines())
        until = time.monotonic() + 10
        while not is_free(service) and time.monotonic() < until:
            time.sleep(0.01)
        assert is_free(service)
        shown = httpx.get(f"{address}/metrics").text
        assert 'degarble_disconnected_requests_total{model_name="tiny",engine="0"} 1' in shown


def test_those_who_never_ask_are_closed() -> None:
    with listening(header_seconds=0.1) as (_, address, _service):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as slow:
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nX-Slow: ")
            assert slow.recv(100) == b""
        assert httpx.get(f"{address}/health").status_code == 200


@pytest.mark.slow
def test_sigterm_lets_an_answer_finish() -> None:
    target = str(unpacked_golden() / "base-bf16")
    with command(target, "--served-model-name", "small", "--dtype", "fp32") as (running, address, said):
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


@pytest.mark.slow
def test_everything_that_is_said_is_json_where_it_is_asked_for() -> None:
    target = str(unpacked_golden() / "base-bf16")
    with command(target, "--log-format", "json", "--dtype", "fp32") as (running, address, said):
        body = {"prompt": "once", "max_tokens": 3, "ignore_eos": True}
        answer = httpx.post(f"{address}/v1/completions", json=body, headers={"x-request-id": "my-7"}, timeout=60)
        assert answer.headers["x-request-id"] == "my-7" and answer.json()["id"] == "cmpl-my-7"
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=20) == 0
        assert running.stderr is not None
        lines = [json.loads(line) for line in (*said, *running.stderr)]
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    assert any(line["message"].startswith("checked: ") for line in lines)
    (request,) = [line for line in lines if line["logger"] == "degarble.requests"]
    assert (request["request_id"], request["status"], request["completion_tokens"]) == ("my-7", 200, 3)


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
