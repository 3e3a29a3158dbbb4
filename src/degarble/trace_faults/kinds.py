"""Kinds of KV-cache faults as public reports have them (KC01 to KC30), and which rules see which of them offline.

The table is data (`data/kv_kinds.toml`); the page docs/kv-kinds.md is made of it, and the blame test plants every kind.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

import msgspec


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault."""

    id: str
    name: str
    seen: str
    """trace, meta, forward or no."""
    rules: tuple[str, ...]
    faults: tuple[str, ...]
    """Names of the trace faults that plant it."""
    blind: str
    """What of it no trace shows; '' where a full trace shows all."""

    @property
    def is_seen_offline(self) -> bool:
        """Whether a trace or its first line shows it."""
        return self.seen in ("trace", "meta")


def kinds() -> tuple[Kind, ...]:
    """All kinds, in order."""
    data = tomllib.loads(files("degarble.data").joinpath("kv_kinds.toml").read_text(encoding="utf-8"))
    return msgspec.convert(data["kind"], tuple[Kind, ...])


SEEN = {
    "trace": "the events of a trace",
    "meta": "the first line of a trace, or a declaration",
    "forward": "outputs of a model; a declaration may carry them",
    "no": "**not offline**",
}


def page() -> str:
    """The table as Markdown."""
    rows = ["| kind | fault | seen in | rules | planted by | not visible |", "|---|---|---|---|---|---|"]
    for kind in kinds():
        rules = ", ".join(f"[{rule}](rules/{rule}.md)" for rule in kind.rules) or "none"
        faults = ", ".join(f"`{name}`" for name in kind.faults) or "none"
        rows.append(
            f"| {kind.id} | {kind.name} | {SEEN[kind.seen]} | {rules} | {faults} | {kind.blind or 'nothing known'} |"
        )
    seen = sum(kind.is_seen_offline for kind in kinds())
    return (
        "# Kinds of KV-cache faults\n\n"
        f"Thirty kinds of faults that public reports describe; {seen} of them show in a trace or in its first line. Each of "
        "these is planted at random moments of random healthy traces (`degarble inject FAULT TRACE --out NEW`; the test is\n"
        "tests/trace/test_blame.py), and the first violating event is the planted one.\n\n" + "\n".join(rows) + "\n"
    )
