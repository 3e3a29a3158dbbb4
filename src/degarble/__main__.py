"""The `degarble` command. `--version` answers before anything heavy is imported."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> None:
    """Run the command line and leave with its status."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from degarble.version import __version__

        sys.stdout.write(f"degarble {__version__}\n")
        return
    from degarble.cli.app import run

    _leave(run(sys.argv[1:]))


def _leave(status: int) -> NoReturn:
    """End at once: to take 200,000 objects apart first costs a fifth of a second, an eighth of a header check.

    What torch, Ray and others register for the end of a process still runs, as nothing else is registered by the core.
    """
    if {"torch", "ray", "coverage"} & set(sys.modules):
        sys.exit(status)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads any more
        status = status or 2
    os._exit(status)


if __name__ == "__main__":
    main()
