"""`degarble fix`: repair a copy, prove it, and take it back if wanted."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from degarble.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("fix")(fix)


def fix(
    target: Annotated[
        str | None, typer.Argument(help="Folder, .safetensors or .gguf file, or hf:org/name. Never changed.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="A healthy copy that exact copies are taken from.", metavar="DIR")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", help="New folder for the repaired copy.", metavar="DIR")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show the steps and write nothing.")] = False,
    unsafe: Annotated[
        bool, typer.Option("--unsafe/--safe", help="Also steps that are a judgement; --safe is the default.")
    ] = False,
    replay: Annotated[
        str | None, typer.Option("--replay", help="Make the steps of another copy's record.", metavar="FILE")
    ] = None,
    undo: Annotated[
        str | None, typer.Option("--undo", help="Put together what a repaired copy was made from.", metavar="FIXED")
    ] = None,
    level: Annotated[str | None, typer.Option(help="header or content, as in check.", show_default=False)] = None,
    engine: Annotated[str | None, typer.Option(help="Judge for one engine, NAME[@VERSION].")] = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel degree.")] = None,
    ep: Annotated[int | None, typer.Option("--ep", help="Expert-parallel degree.")] = None,
    dtype: Annotated[str | None, typer.Option(help="The dtype it is served in.")] = None,
    select: Annotated[list[str] | None, typer.Option(help="Repair what these rules find (id or prefix).")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Leave alone what these rules find.")] = None,
    fail_on: Annotated[str, typer.Option(help="error, warning or info: what may not be left.")] = "error",
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Repair a copy of TARGET with steps that leave one answer, check the result, and say what has to be fetched."""
    if format not in ("text", "json"):
        raise UsageError(f"--format {format!r}: text or json")
    if fail_on not in ("error", "warning", "info"):
        raise UsageError(f"--fail-on {fail_on!r}: error, warning or info")
    if undo is not None:
        return _undo(undo, out, target, as_json=format == "json")
    if target is None or (out is None and not plan):
        raise UsageError("give a target and --out DIR, or --plan, or --undo FIXED --out DIR")
    from dataclasses import replace

    from degarble.api import path_is_hub, settings_from
    from degarble.cli.progress import terminal_progress
    from degarble.repairing.fix import fix as repair

    settings = settings_from(level or ("header" if path_is_hub(target) else "content"), engine, tp, ep, dtype, None)
    outcome = repair(
        target,
        None if plan else out,
        reference=reference,
        unsafe=unsafe,
        replay=replay,
        settings=replace(settings, progress=terminal_progress(quiet)),
        select_rules=_split(select),
        ignore_rules=_split(ignore),
        fail_on=fail_on,
    )
    if format == "json":
        from degarble.repairing.document import document

        _write_json(document(outcome, fail_on))
    else:
        from degarble.repairing.text import render

        sys.stdout.write(render(outcome))
    return outcome.exit_code(fail_on)


def _undo(repaired: str, out: str | None, target: str | None, *, as_json: bool) -> int:
    """Give the original bytes back."""
    from degarble.repairing.fix import undo

    if out is None or target is not None:
        raise UsageError("give --undo FIXED --out DIR")
    changed = undo(repaired, out)
    if as_json:
        _write_json({"schema_version": 1, "status": "undone", "out": out, "changed": list(changed)})
    else:
        sys.stdout.write(f"wrote {out}: {len(changed)} files are again what they were before the repair\n")
    return 0


def _write_json(value: object) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def _split(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]
