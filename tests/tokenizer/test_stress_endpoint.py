"""The pressure test against servers of our own: a good one, and two that damage text in known ways."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from degarble.errors import TargetError
from degarble.tokenizer.stress_endpoint import INSTRUCTION, sse_lines, stress_endpoint


class Echo(BaseHTTPRequestHandler):
    """Repeats the text; how it streams is the class's `damage`."""

    damage = "none"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(json.dumps({"data": [{"id": "echo"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][0]["content"].removeprefix(INSTRUCTION)
        if not body.get("stream"):
            self._send(json.dumps({"choices": [{"message": {"content": text}}]}).encode())
            return
        data = text.encode()
        parts = [data[at : at + 5] for at in range(0, len(data), 5)]
        if self.damage == "per-chunk":
            deltas = [part.decode("utf-8", "replace") for part in parts]
        else:
            deltas = [text[at : at + 3] for at in range(0, len(text), 3)]
        lines = [json.dumps({"choices": [{"delta": {"content": delta}}]}, ensure_ascii=False) for delta in deltas]
        sent = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
        self._send(sent.replace("客".encode(), b"\xe5\xae") if self.damage == "raw" else sent)

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        for at in range(0, len(content), 7):
            self.wfile.write(content[at : at + 7])


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a server with the damage that the test names."""
    handler = type("Handler", (Echo,), {"damage": request.param})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize("server", ["none"], indirect=True)
def test_a_good_server(server: str) -> None:
    rows = stress_endpoint(f"{server}/v1", count=2)
    assert all((row.percent_damaged, row.percent_equal, row.num_answered) == (0, 100, 2) for row in rows)


@pytest.mark.parametrize("server", ["per-chunk"], indirect=True)
def test_a_server_that_decodes_each_chunk(server: str) -> None:
    damaged = {row.corpus: row.percent_damaged for row in stress_endpoint(server, "echo", count=2)}
    assert damaged["chinese"] == damaged["emoji"] == 100


@pytest.mark.parametrize("server", ["raw"], indirect=True)
def test_a_server_that_sends_half_characters(server: str) -> None:
    damaged = {row.corpus: row.percent_damaged for row in stress_endpoint(server, "echo", count=3)}
    assert damaged["chinese"] > 0


def test_nobody_there() -> None:
    with pytest.raises(TargetError):
        stress_endpoint("http://127.0.0.1:9", "x", count=1)


def test_lines_cut_anywhere() -> None:
    data = "data: 你\r\n\ndata: 🌶\ntail".encode()
    for size in range(1, len(data)):
        chunks = (data[at : at + size] for at in range(0, len(data), size))
        assert list(sse_lines(chunks)) == ["data: 你", "", "data: 🌶", "tail"]
