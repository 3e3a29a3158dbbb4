"""`degarble inject`: plant a fault, to see that it is found."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from degarble.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inject")(inject)


def inject(
    fault: Annotated[str | None, typer.Argument(help="Name of a fault, or a rule id.")] = None,
    target: Annotated[
        str | None, typer.Argument(help="A healthy checkpoint or KV-cache trace (.jsonl); it is not changed.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", help="New folder for the copy; of a trace, the new file.", metavar="OUT")
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses among the places where it could be planted.")] = 0,
    at: Annotated[
        int | None,
        typer.Option(help="In a trace: at the first event from this counter on, not a random one.", min=0, metavar="N"),
    ] = None,
    list_faults: Annotated[bool, typer.Option("--list", help="List all faults.")] = False,
) -> int:
    """Write a copy of TARGET with exactly one planted fault; unchanged weights are hard links."""
    from degarble import injection, trace_injection

    if list_faults:
        _list()
        return 0
    if not fault or not target or not out:
        raise UsageError("give a fault, a target and --out OUT (or --list)")
    if trace_injection.is_trace(target):
        place = trace_injection.inject_trace(fault, target, out, seed=seed, moment=at)
        sys.stdout.write(f"planted {fault} at event {place.line}\nnow try: degarble trace {out}\n")
        return 0
    if at is not None:
        raise UsageError("--at is for traces: a checkpoint has no moments")
    place = injection.inject(fault, target, out, seed=seed)
    planted = injection.find_fault(fault)
    words = f"compare {out} {target}" if planted.needs_forward_pass else f"check {out} {planted.options}".strip()
    words = f"overflow {out}" if planted.needs_range_walk else words
    sys.stdout.write(f"planted {fault} at {place.name()}\nnow try: degarble {words}\n")
    return 0


def _list() -> None:
    from degarble.faults.interface import faults
    from degarble.trace_faults.interface import trace_faults

    lines = [(fault.rule, fault.name, fault.summary) for fault in faults()]
    lines += [(fault.rule, fault.name, fault.summary) for fault in trace_faults()]
    for rule, name, summary in lines:
        sys.stdout.write(f"{rule}  {name:<42} {summary}\n"[:100].rstrip() + "\n")
