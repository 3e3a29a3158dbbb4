"""The `degarble` command. `--version` answers before anything heavy is imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its status."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from degarble.version import __version__

        sys.stdout.write(f"degarble {__version__}\n")
        return
    from degarble.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
