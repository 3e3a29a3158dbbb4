"""`degarble fix`: repair a copy, prove it, and take it back if wanted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from degarble.cli.flags import NO_FLAGS, ConfigurationFlags, with_configuration
from degarble.errors import UsageError

if TYPE_CHECKING:
    from degarble.evidence import Settings
    from degarble.policy.configuration import Configuration
    from degarble.repairing.fix import Outcome


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("fix")(fix)


@with_configuration(
    select="Repair what these rules find (id or prefix).",
    ignore="Leave alone what these rules find.",
    fail_on="error (default), warning or info: what may not be left.",
    waivers="Waivers with reasons: left alone.",
    baseline="Findings that are known: left alone.",
)
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
    flags: ConfigurationFlags = NO_FLAGS,
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
    from degarble.registry import rules
    from degarble.repairing.fix import fix as repair

    configured = flags.load()
    threshold = _threshold(configured)
    outcome = repair(
        target,
        None if plan else out,
        reference=reference,
        unsafe=unsafe,
        replay=replay,
        settings=_settings(configured, target, quiet=quiet),
        select_rules=configured.get("select"),
        ignore_rules=(*configured.get("ignore"), *configured.switched_off),
        policy=configured.policy(rules),
        fail_on=threshold,
    )
    _write(outcome, threshold, as_json=format == "json")
    return outcome.exit_code(threshold)


def _threshold(configured: Configuration) -> str:
    """What may not be left; `partial` is no severity."""
    threshold = str(configured.get("fail-on"))
    if threshold not in ("error", "warning", "info"):
        raise UsageError(f"{configured.settings['fail-on'].origin} {threshold!r}: error, warning or info")
    return threshold


def _settings(configured: Configuration, target: str, *, quiet: bool) -> Settings:
    """As `check` would have them."""
    from dataclasses import replace

    from degarble.api import path_is_hub, settings_from
    from degarble.cli.progress import terminal_progress

    settings = settings_from(
        configured.get("level") or ("header" if path_is_hub(target) else "content"),
        *map(configured.get, ("engine", "tp", "ep", "dtype", "known-issues")),
    )
    return replace(settings, progress=terminal_progress(quiet))


def _write(outcome: Outcome, threshold: str, *, as_json: bool) -> None:
    if as_json:
        from degarble.repairing.document import document

        _write_json(document(outcome, threshold))
        return
    from degarble.repairing.text import render

    sys.stdout.write(render(outcome))


def _undo(repaired: str, out: str | None, target: str | None, *, as_json: bool) -> int:
    """Give the original bytes back."""
    from degarble.repairing.fix import undo

    if out is None or target is not None:
        raise UsageError("give --undo FIXED --out DIR")
    changed = undo(repaired, out)
    if as_json:
        _write_json({"schema_version": 1, "status": "undone", "out": out, "changed": list(changed)})
    else:
        again = "1 file is again what it was" if len(changed) == 1 else f"{len(changed)} files are again what they were"
        sys.stdout.write(f"wrote {out}: {again} before the repair\n")
    return 0


def _write_json(value: object) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
