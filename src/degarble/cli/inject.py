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
    target: Annotated[str | None, typer.Argument(help="A healthy checkpoint; it is not changed.")] = None,
    out: Annotated[str | None, typer.Option("--out", help="New folder for the copy.", metavar="DIR")] = None,
    seed: Annotated[int, typer.Option(help="Chooses among the places where it could be planted.")] = 0,
    list_faults: Annotated[bool, typer.Option("--list", help="List all faults.")] = False,
) -> int:
    """Write a copy of TARGET with exactly one planted fault; unchanged weights are hard links."""
    from degarble import injection
    from degarble.faults.interface import faults

    if list_faults:
        for known in faults():
            sys.stdout.write(f"{known.rule}  {known.name:<42} {known.summary}\n"[:100].rstrip() + "\n")
        return 0
    if not fault or not target or not out:
        raise UsageError("give a fault, a target and --out DIR (or --list)")
    place = injection.inject(fault, target, out, seed=seed)
    planted = injection.find_fault(fault)
    words = f"compare {out} {target}" if planted.needs_forward_pass else f"check {out} {planted.options}".strip()
    words = f"overflow {out}" if planted.needs_range_walk else words
    sys.stdout.write(f"planted {fault} at {place.name()}\nnow try: degarble {words}\n")
    return 0
