"""The value statistics of `--profile`: what pictures are drawn from."""

from __future__ import annotations

from typing import Any

import msgspec

from degarble.evidence import Evidence

LISTED_ROWS = 64
"""Dead rows listed for one module; the number of all stands beside."""


def profile_of(evidence: Evidence) -> dict[str, Any]:
    """Module -> layer, kind, format, sample, values, codes and scales. Empty where values were not read."""
    modules, profiles = evidence.find("modules"), evidence.find("module_profiles")
    found: dict[str, Any] = {}
    if modules is None or profiles is None:
        return found
    for name, profile in profiles.items():
        module = modules[name]
        row = msgspec.to_builtins(profile)
        row.pop("name")
        row["values"].pop("log_row_rms")
        row["dead_rows"] = row["dead_rows"][:LISTED_ROWS]
        found[name] = {"layer": module.layer, "kind": module.kind, "format": module.form.format} | row
    return found
