"""Quantised tiny models, each made once."""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from pathlib import Path

from degarble.report.interface import Report
from degarble_engine.quantize.quantizing import quantize
from degarble_engine.quantize.recipe import Recipe
from tests.degarble_engine.tiny_models import folder

LAYERS = 2
GROUP = 32


@cache
def calibration_file(sequences: int = 24, tokens: int = 32) -> str:
    """Ids by chance."""
    source = random.Random(3)
    rows = [{"ids": [source.randrange(320) for _ in range(tokens)]} for _ in range(sequences)]
    rows[0]["ids"] = rows[0]["ids"][:9]  # one is shorter: padding
    file = Path(tempfile.mkdtemp(prefix="degarble-calibration.")) / "ids.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return str(file)


def source_of(family: str) -> Path:
    """The plain model."""
    return folder(family, num_hidden_layers=LAYERS)


@cache
def made(family: str, scheme: str, method: str, group_size: int = GROUP) -> tuple[Path, Report]:
    """A folder and the report of its making."""
    out = Path(tempfile.mkdtemp(prefix=f"degarble-{family}-{scheme}.")) / "out"
    return out, quantize(str(source_of(family)), str(out), recipe_of(scheme, method, group_size))


def recipe_of(scheme: str, method: str, group_size: int = GROUP) -> Recipe:
    """With the text above."""
    is_grouped = scheme.endswith(("A16", "ASYM"))
    return Recipe(
        scheme=scheme, method=method, group_size=group_size if is_grouped else None, calibration=calibration_file()
    )
