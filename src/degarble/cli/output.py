"""Where results go: standard output or files (atomically), failures to standard error or into the one JSON document."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from degarble.errors import UsageError


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--format json` was asked for, also on a command line that could not be parsed."""
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)


def write_failure(message: str, *, as_json: bool) -> None:
    """Say why nothing was done."""
    if as_json:
        from degarble.report.interface import Report, Target
        from degarble.report.json import render

        sys.stdout.write(render(Report(target=Target(path="", kind="unknown"), failure=message)))
    sys.stderr.write(f"degarble: {message}\n")


def write_text(text: str, output: str | None) -> None:
    """To standard output, or to a file that appears complete or not at all."""
    if output is None or output == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    import tempfile

    target = Path(output)
    try:
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(partial, 0o644)
        os.replace(partial, target)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}") from None
