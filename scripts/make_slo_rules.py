"""Turn deploy/prometheus/slo.sloth.yaml into plain Prometheus rules: `python scripts/make_slo_rules.py [--check]`.

Sloth's own generator is a Go program that a CI without containers cannot have, so its two pages of arithmetic are here:
the ratio of bad events over seven windows, and alerts that want a fast and a slow window to burn at once.

    burn rate b over a window = ratio of bad events / (1 - objective): 1 uses up a budget of 30 days in 30 days
    page    1 h and 5 min > 14.4 (2 % of the budget in an hour), or 6 h and 30 min > 6 (5 % in six hours)
    ticket  1 d and 2 h > 3 (10 % in a day), or 3 d and 6 h > 1 (10 % in three days)

Source of the numbers: The Site Reliability Workbook, chapter 5, table 5-8.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "prometheus"
SPEC, RULES = FOLDER / "slo.sloth.yaml", FOLDER / "slo.rules.yaml"
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
BURNS = {
    "page": (("1h", "5m", Fraction("14.4")), ("6h", "30m", Fraction(6))),
    "ticket": (("1d", "2h", Fraction(3)), ("3d", "6h", Fraction(1))),
}
"""Severity -> long window, short window, least burn rate."""
RUNBOOK = "docs/how-to/deploy.md#alerts"
NOTICE = "# Made of slo.sloth.yaml by scripts/make_slo_rules.py; edit that.\n"


class Literal(str):
    """A text that YAML shows line by line."""


class Dumper(yaml.SafeDumper):
    """Writes such texts as blocks."""


Dumper.add_representer(
    Literal, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")
)


def rules_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Groups of rules: one of ratios and one of alerts for each promise."""
    groups: list[dict[str, Any]] = []
    for slo in spec["slos"]:
        groups.append({"name": f"slo-{slo['name']}", "rules": [*_ratios(spec["service"], slo), *_alerts(slo)]})
    return {"groups": groups}


def _ratios(service: str, slo: dict[str, Any]) -> list[dict[str, Any]]:
    events = slo["sli"]["events"]
    return [
        {
            "record": f"slo:sli_error:ratio_rate{window}",
            "expr": Literal(
                f"(\n{events['error_query']})\n/\n(\n{events['total_query']})\n".replace("{{.window}}", window)
            ),
            "labels": {"service": service, "slo": slo["name"]},
        }
        for window in WINDOWS
    ]


def _alerts(slo: dict[str, Any]) -> list[dict[str, Any]]:
    alerting = slo["alerting"]
    return [
        {
            "alert": alerting["name"],
            "expr": Literal("\nor\n".join(_burns(slo, *burn) for burn in BURNS[severity]) + "\n"),
            "labels": alerting[f"{severity}_alert"]["labels"],
            "annotations": {**alerting["annotations"], "runbook": RUNBOOK},
        }
        for severity in BURNS
    ]


def _burns(slo: dict[str, Any], long: str, short: str, least: Fraction) -> str:
    budget = 1 - Fraction(str(slo["objective"])) / 100
    bound = float(least * budget)
    both = [f'slo:sli_error:ratio_rate{window}{{slo="{slo["name"]}"}} > {bound:.6g}' for window in (long, short)]
    return f"({both[0]} and {both[1]})"


def written() -> str:
    """The file."""
    spec = yaml.safe_load(SPEC.read_text(encoding="utf-8"))
    return NOTICE + yaml.dump(rules_of(spec), Dumper=Dumper, sort_keys=False, width=1000)


def main() -> int:
    """Write it, or say that it is stale."""
    if "--check" in sys.argv[1:]:
        return int(RULES.read_text(encoding="utf-8") != written())
    RULES.write_text(written(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
