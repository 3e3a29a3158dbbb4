"""Runs functions of the user's on prepared arrays, in a process of its own. Started by foreign.py with a folder:

    request.json   {"functions": ["module:function", …], "memory_bytes": …, "cpu_seconds": …, "path": user's folder}
    inputs.npy     [runs, …] what the first function is given, one run after the other
    step_<n>.npy   [runs, …] written: what function n gave
    result.json    written last: {} or {"error": …, "function": …}

Imports nothing of degarble: it is run as a file, and whatever the user's module does stays here.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def limit(memory_bytes: int, cpu_seconds: int) -> None:
    """Cap address space, processor time and file size, where the system knows such limits."""
    try:
        import resource
    except ImportError:
        return
    for kind, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, memory_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (wanted, hard))
        except (ValueError, OSError):  # macOS refuses a limit on address space
            continue


def load(name: str) -> Callable[[Any], Any]:
    """`package.module:function` or `folder/file.py:function`."""
    place, _, path = name.rpartition(":")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None:
            raise ImportError(f"{place} is no Python file")
        found: Any = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found
        spec.loader.exec_module(found)
    else:
        found = importlib.import_module(place)
    for part in path.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name} is no function")
    return found  # type: ignore[no-any-return]


def as_array(value: Any) -> Any:
    """numpy's array, or a tensor that can become one. Raises TypeError for anything else."""
    for method in ("detach", "cpu", "numpy"):
        if not isinstance(value, np.ndarray) and hasattr(value, method):
            value = getattr(value, method)()
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(f"returned {type(value).__name__}, not an array")
    return array


def work(folder: Path, request: dict[str, Any]) -> dict[str, str]:
    """All functions over all runs; the answer for result.json."""
    sys.path.insert(0, request["path"])
    states = list(np.load(folder / "inputs.npy"))
    for number, name in enumerate(request["functions"]):
        try:
            function = load(name)
            states = [as_array(function(state.copy())) for state in states]
            if len({(state.shape, state.dtype.str) for state in states}) > 1:
                raise ValueError("shape or dtype of the result depends on the codes")
            np.save(folder / f"step_{number}.npy", np.stack(states))
        except BaseException as error:  # SystemExit too: whatever the user's code does is an answer
            return {"function": name, "error": f"{type(error).__name__}: {error}"}
    return {}


def main() -> None:
    """Do what the folder asks for."""
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_text())
    limit(request["memory_bytes"], request["cpu_seconds"])
    (folder / "result.json").write_text(json.dumps(work(folder, request)))


if __name__ == "__main__":
    main()
