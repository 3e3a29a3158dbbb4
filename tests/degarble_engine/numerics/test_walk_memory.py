"""Memory of a walk on the shapes of an 8B Llama: below 2.5 layers whatever the depth. The weights are holes in a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "layer_walk.py"
MOST_LAYERS, MOST_GROWTH = 2.5, 0.3


@pytest.mark.slow
def test_a_walk_takes_less_than_two_and_a_half_layers_at_any_depth() -> None:
    command = [sys.executable, str(BENCHMARK), "--memory-only", "--deep", "6"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert [row["layers"] for row in rows] == [2, 6]
    assert all(0.9 < row["peak_in_layers"] < MOST_LAYERS for row in rows), rows
    assert rows[1]["peak_in_layers"] - rows[0]["peak_in_layers"] < MOST_GROWTH, rows
