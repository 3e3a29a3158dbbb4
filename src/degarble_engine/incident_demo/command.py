"""What `degarble demo incident` runs; joined by the entry point group `degarble.demos`."""

from __future__ import annotations

from collections.abc import Callable

from degarble.report.interface import Report


def run(model: str | None, seed: int, say: Callable[[str], None]) -> Report:
    """The report of the diagnosis, with proof by answers. Raises MissingExtra without the extras `engine` and `serve`."""
    from degarble.errors import MissingExtra

    try:
        from degarble_engine.incident_demo.play import play
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    from degarble_engine.cli.library_log import only_errors

    only_errors()
    return play(model, seed, say)
