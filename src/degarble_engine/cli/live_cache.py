"""`degarble kv compare-dump FILE --model TARGET`: a live request's pages beside what the checkpoint gives."""

from __future__ import annotations

from degarble_engine.cli.library_log import only_errors
from degarble_engine.cli.walk_progress import WalkProgress


def run(path: str, model: str, format: str, output: str | None, quiet: bool) -> int:
    """Judge and write the report; the exit status. Raises UsageError, TargetError and MalformedFile."""
    from degarble.cli.output import destinations, write_report
    from degarble.errors import MissingExtra

    places = destinations(format, [output] if output else None)
    try:
        from degarble_engine.live_cache.question import judge_request
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    only_errors()
    report = judge_request(path, model, None if quiet else WalkProgress())
    write_report(report, places, detail=1)
    return report.exit_code("error")
