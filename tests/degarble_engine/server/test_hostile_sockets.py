"""Clients below HTTP: garbage, half requests, connections that are torn down in the middle, and templates as text."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from degarble_engine.server.service import Service
from tests.degarble_engine.server.served import is_free, opened, run, serving
from tests.degarble_engine.server.test_process import listening

BODY = b'{"prompt": "abc", "max_tokens": 200, "ignore_eos": true, "stream": true}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
GARBAGE: list[bytes] = [
    b"\x00\xff\xfe" * 50 + b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 200 + b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    HEAD + b"Content-Length: 99999999\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\nabc\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFFFF\r\n",
]


def connected(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def told(address: str, data: bytes) -> bytes:
    """What comes back before the end."""
    with connected(address) as link:
        try:
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            return link.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return b""


def torn(address: str, rng: random.Random) -> None:
    """A request that ends in a reset: before, in the middle of, or after it was sent."""
    link = connected(address)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    try:
        sent = WHOLE[: rng.randrange(len(WHOLE)) if rng.random() < 0.5 else len(WHOLE)]
        link.sendall(sent)
        if sent == WHOLE and rng.random() < 0.3:
            link.recv(200)
    except (OSError, TimeoutError):
        pass
    link.close()


def until_free(service: Service, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not is_free(service) and time.monotonic() < end:
        time.sleep(0.01)
    return is_free(service)


def num_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_garbage_gets_an_answer_of_its_own_or_none() -> None:
    with listening() as (_, address, service):
        for data in GARBAGE:
            answer = told(address, data)
            assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200")), (data[:60], answer[:60])
        assert httpx.get(f"{address}/health").status_code == 200 and is_free(service)


@pytest.mark.parametrize("count", [120, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files by /proc")
def test_torn_connections_leave_nothing(count: int) -> None:
    rng = random.Random(count)
    with listening(num_gpu_blocks=600) as (_, address, service):
        torn(address, rng)
        before = num_open_files()
        for _ in range(count):
            torn(address, rng)
        assert until_free(service, 120)
        assert service.loop.failure is None and service.loop.num_failed_steps == 0
        body = {"prompt": "abc", "max_tokens": 3, "ignore_eos": True}
        assert httpx.post(f"{address}/v1/completions", json=body, timeout=60).status_code == 200
        service.model.engine.manager.check_integrity()
        assert num_open_files() < before + 20


def test_many_who_speak_slowly_hold_nobody_up() -> None:
    with listening(header_seconds=1.0) as (_, address, _service):
        slow = [connected(address) for _ in range(100)]
        for link in slow:
            link.sendall(b"POST /v1/completions HTTP/1.1\r\nX: ")
        assert httpx.get(f"{address}/health", timeout=5).status_code == 200
        assert [link.recv(10) for link in slow] == [b""] * len(slow), "all of them are closed"
        for link in slow:
            link.close()


INJECTIONS = [
    "{{ 7 * 7 }}",
    "{% for x in range(10**9) %}a{% endfor %}",
    "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{# comment #}{% raw %}",
]


def test_templates_in_messages_are_text() -> None:
    for text in INJECTIONS:
        ids = opened().prompter.encode_chat([{"role": "user", "content": text}], None, {"x": {"__class__": text}})
        assert text in opened().showing.decode(ids)

    async def asked() -> list[tuple[int, str]]:
        messages = [{"role": "user", "content": "a"}]
        wrong: list[dict[str, Any]] = [
            {"messages": messages, "chat_template": "{{ 7 * 7 }}"},
            {"messages": messages, "chat_template_kwargs": {"messages": []}},
            {"messages": [{"role": {"x": "{{ 7 }}"}, "content": "a"}]},
        ]
        async with serving() as (client, _):
            answers = [await client.post("/v1/chat/completions", json=one) for one in wrong]
            return [(answer.status_code, str(answer.json()["error"]["param"])) for answer in answers]

    assert run(asked) == [(400, "chat_template"), (400, "chat_template_kwargs"), (400, "messages.0.role")]
