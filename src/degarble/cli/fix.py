"""`degarble fix`: repair a copy, prove it, and take it back if wanted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
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
    fail_on: Annotated[str | None, typer.Option(help="error (default), warning or info: what may not be left.")] = None,
    waivers: Annotated[str | None, typer.Option(help="Waivers with reasons: left alone.", metavar="FILE")] = None,
    baseline: Annotated[str | None, typer.Option(help="Findings that are known: left alone.", metavar="FILE")] = None,
    config: Annotated[Path | None, typer.Option(help="Read this degarble.toml and no other.", metavar="FILE")] = None,
    isolated: Annotated[bool, typer.Option("--isolated", help="Read no configuration file.")] = False,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Repair a copy of TARGET with steps that leave one answer, check the result, and say what has to be fetched."""
    if format not in ("text", "json"):
        raise UsageError(f"--format {format!r}: text or json")
    if undo is not None:
        return _undo(undo, out, target, as_json=format == "json")
    if target is None or (out is None and not plan):
        raise UsageError("give a target and --out DIR, or --plan, or --undo FIXED --out DIR")
    from dataclasses import replace

    from degarble.api import path_is_hub, settings_from
    from degarble.cli.output import split_rules
    from degarble.cli.progress import terminal_progress
    from degarble.policy.configuration import load_configuration
    from degarble.registry import rules
    from degarble.repairing.fix import fix as repair

    flags = {
        "select": split_rules(select) or None,
        "ignore": split_rules(ignore) or None,
        "level": level,
        "engine": engine,
        "tp": tp,
        "ep": ep,
        "dtype": dtype,
        "fail-on": fail_on,
        "waivers": waivers,
        "baseline": baseline,
    }
    configured = load_configuration(flags, os.environ, folder=Path.cwd(), file=config, is_isolated=isolated)
    threshold = configured.get("fail-on")
    if threshold not in ("error", "warning", "info"):
        raise UsageError(f"{configured.settings['fail-on'].origin} {threshold!r}: error, warning or info")
    settings = settings_from(
        configured.get("level") or ("header" if path_is_hub(target) else "content"),
        configured.get("engine"),
        configured.get("tp"),
        configured.get("ep"),
        configured.get("dtype"),
        configured.get("known-issues"),
    )
    outcome = repair(
        target,
        None if plan else out,
        reference=reference,
        unsafe=unsafe,
        replay=replay,
        settings=replace(settings, progress=terminal_progress(quiet)),
        select_rules=configured.get("select"),
        ignore_rules=(*configured.get("ignore"), *configured.switched_off),
        policy=configured.policy(rules),
        fail_on=threshold,
    )
    if format == "json":
        from degarble.repairing.document import document

        _write_json(document(outcome, threshold))
    else:
        from degarble.repairing.text import render

        sys.stdout.write(render(outcome))
    return outcome.exit_code(threshold)


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
