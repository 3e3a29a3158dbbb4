"""Drives a user's allocator in a process of its own: `python -P stress_worker.py FOLDER`, see foreign_allocator.py.

request.json   {"allocator": "module:function", "setting": {…}, "seeds": [first, last], "num_operations": …, …}
result.json    written last: {"result": {…}} or {"error": …}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from degarble.kvcache.allocator import Allocator
from degarble.kvcache.stress import stress
from degarble.kvcache.stress_memory import Setting
from degarble.repack.worker import limit, load


def work(request: dict[str, Any]) -> dict[str, Any]:
    """The answer for result.json."""
    sys.path.insert(0, request["path"])
    try:
        build: Any = load(request["allocator"])
        setting = Setting(**request["setting"])
        first, last = request["seeds"]
        result = stress(
            lambda one: made(build, one), setting, seeds=range(first, last), num_operations=request["num_operations"]
        )
    except BaseException as error:  # SystemExit too: whatever the user's code does is an answer
        return {"error": f"{type(error).__name__}: {error}"}
    return {"result": msgspec.to_builtins(result)}


def made(build: Any, setting: Setting) -> Allocator:
    """One allocator; options that are not set are not passed."""
    options = {
        name: value
        for name in ("window", "trash_block", "num_host_blocks")
        if (value := getattr(setting, name)) not in (None, 0) or (name == "trash_block" and value == 0)
    }
    allocator: Allocator = build(setting.num_blocks, setting.block_size, **options)
    return allocator


def main() -> None:
    """Do what the folder asks for."""
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_text())
    limit(request["memory_bytes"], request["cpu_seconds"])
    (folder / "result.json").write_text(json.dumps(work(request)))


if __name__ == "__main__":
    main()
