"""`degarble serve` for one conversation: a process that is ended with it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from degarble.errors import TargetError

READY = re.compile(r"ready at (http://\S+)")
END_SECONDS = 10


@contextmanager
def own_server(target: str, say: Callable[[str], None]) -> Iterator[str]:
    """Its address. What it says until it is ready is passed on. Raises TargetError if it never is."""
    command = [sys.executable, "-m", "degarble", "serve", target, "--port", "0"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)  # not our Ctrl-C
    assert running.stderr is not None
    try:
        for line in running.stderr:
            if found := READY.search(line):
                yield found[1]
                return
            say(line.rstrip())
        raise TargetError(f"{target}: could not be served")
    finally:
        running.terminate()
        try:
            running.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        running.stderr.close()
