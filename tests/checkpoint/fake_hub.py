"""A hub in a thread: the routes, redirects and moods that the real one and its mirrors have. No network."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

COMMIT = "a" * 40


@dataclass
class Mood:
    """What the server does wrong, and what it saw."""

    files: dict[str, bytes]
    ignore_range: bool = False
    wrong_range: bool = False
    redirect_large: str | None = None
    """Base address of another host that large files are redirected to."""
    redirect_loop: bool = False
    fail_first: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Answers for the next requests, before it works again."""
    truncate: bool = False
    stall_s: float = 0.0
    status: tuple[int, str] | None = None
    """Every request: this status and X-Error-Code."""
    listing: bytes | None = None
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    sent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    mood: Mood

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""

    def do_GET(self) -> None:
        mood = self.mood
        with mood.lock:
            mood.seen.append((self.path, dict(self.headers)))
            planned = mood.fail_first.pop(0) if mood.fail_first else None
        if planned is not None:
            return self.answer(planned[0], b"busy", planned[1])
        if mood.status is not None:
            return self.answer(mood.status[0], b"no", {"X-Error-Code": mood.status[1]} if mood.status[1] else {})
        if mood.redirect_loop:
            return self.answer(302, b"", {"Location": self.path})
        if self.path.startswith("/api/models/"):
            return self.answer(200, mood.listing if mood.listing is not None else listing(mood.files), {})
        match = re.fullmatch(r"/[^?]*?/resolve/[^/]+/(.+)", self.path) or re.fullmatch(r"/cdn/(.+)", self.path)
        name = unquote(match[1]) if match else ""
        if name not in mood.files:
            return self.answer(404, b"no", {"X-Error-Code": "EntryNotFound"})
        if mood.redirect_large and not self.path.startswith("/cdn/") and name.endswith(".safetensors"):
            return self.answer(302, b"", {"Location": f"{mood.redirect_large}/cdn/{name}"})
        self.send_file(mood.files[name])

    def send_file(self, data: bytes) -> None:
        mood = self.mood
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if match is None or mood.ignore_range:
            return self.answer(200, data, {})
        start, end = int(match[1]), min(int(match[2]) + 1, len(data))
        shown = start + 1 if mood.wrong_range else start
        self.answer(206, data[start:end], {"Content-Range": f"bytes {shown}-{end - 1}/{len(data)}"})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        mood = self.mood
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if mood.truncate and status in (200, 206) and not self.path.startswith("/api/"):
            body = body[: len(body) // 2]
        if mood.stall_s:
            time.sleep(mood.stall_s)
        try:
            for at in range(0, len(body), 65_536):
                self.wfile.write(body[at : at + 65_536])
                with mood.lock:
                    mood.sent += len(body[at : at + 65_536])
        except OSError:
            pass  # the reader had enough


def listing(files: dict[str, bytes]) -> bytes:
    """What /api/models/…/revision/…?blobs=true says."""
    siblings = []
    for name, data in files.items():
        entry: dict[str, object] = {"rfilename": name, "size": len(data)}
        if name.endswith((".safetensors", ".gguf")):
            entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 135}
        siblings.append(entry)
    return json.dumps({"id": "org/name", "sha": COMMIT, "siblings": siblings}).encode()


@contextmanager
def fake_hub(mood: Mood) -> Iterator[str]:
    """Serve; gives the address."""
    handler = type("BoundHandler", (Handler,), {"mood": mood})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
