"""Which metrics an expression names, and which there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
TELEMETRY = ROOT / "src" / "degarble_engine" / "telemetry"
KNOWN: dict[str, list[str]] = yaml.safe_load((DEPLOY / "prometheus" / "metrics.yaml").read_text(encoding="utf-8"))
LISTED = {name for names in KNOWN.values() for name in names}
SPELT = LISTED | {name.replace(":", "_") for name in LISTED}
HISTOGRAM = re.compile(r"_(bucket|count|sum)$")
WORD = re.compile(r"[a-zA-Z_:][\w:]*")
STRING = re.compile(r'"(?:\\.|[^"\\])*"')
BY_LABELS = re.compile(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^()]*\)")
SELECTOR, WINDOW = re.compile(r"\{[^{}]*\}"), re.compile(r"\[[^\[\]]*\]")
FUNCTIONS = {
    "and", "or", "unless", "bool", "sum", "max", "min", "avg", "count", "rate", "increase", "time", "clamp_max",
    "histogram_quantile", "min_over_time",
}  # fmt: skip


def metrics_of(expression: str) -> set[str]:
    """Names of metrics and of recorded series."""
    bare = BY_LABELS.sub(" ", WINDOW.sub(" ", SELECTOR.sub(" ", STRING.sub('""', expression))))
    return {word for word in WORD.findall(bare) if word not in FUNCTIONS}


def is_known(name: str, recorded: set[str]) -> bool:
    """In the frozen list, in either spelling, or recorded by a rule."""
    return name in recorded or name in SPELT or HISTOGRAM.sub("", name) in SPELT


@cache
def rule_files() -> dict[str, dict[str, Any]]:
    """File -> what it holds."""
    found = sorted((DEPLOY / "prometheus").glob("*.rules.yaml"))
    return {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in found}


@cache
def rules() -> list[dict[str, Any]]:
    """All of them."""
    return [rule for held in rule_files().values() for group in held["groups"] for rule in group["rules"]]


@cache
def recorded() -> set[str]:
    """Names of series that rules make."""
    return {rule["record"] for rule in rules() if "record" in rule}


def strings_in(path: Path) -> set[str]:
    """All texts of a Python file, which is read and not imported: what it imports is large."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
