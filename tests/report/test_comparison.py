"""The table of a comparison: what it shows, and that nothing in a file can break it."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.report.comparison import comparison_lines
from degarble.report.interface import Report, Target
from degarble.report.text import WIDTH, render

WHOLE: dict[str, Any] = {
    "tokens": 128, "texts": "built-in texts", "precision": "fp32", "kl_divergence": 0.42, "noise_kl": 0.0003,
    "top1_agreement": 0.61,
    "layers": [{"layer": n, "local_error": 0.1, "inherited_error": 0.2, "noise_floor": 0.001} for n in range(30)],
    "modules": [{"module": f"model.layers.{n}.mlp.up_proj", "sqnr_db": 20.0 - n, "relative_l2": 0.1, "z": 1.0, "row_z": None}
                for n in range(30)],
}  # fmt: skip


def test_the_worst_modules_and_some_layers_are_shown() -> None:
    lines = list(comparison_lines(WHOLE))
    assert "KL divergence 0.42 nats" in lines[1] and "61.0%" in lines[1]
    assert sum("model.layers" in line for line in lines) == 8 and "model.layers.29." in lines[16]
    assert max(map(len, lines)) <= WIDTH
    assert [line.split()[0] for line in lines[3:15]][::11] == ["0", "29"]


@pytest.mark.parametrize(
    "found",
    [{}, {"layers": 5, "modules": "x"}, {"layers": [1, None], "modules": [{"sqnr_db": "a"}]}, {"kl_divergence": "NaN"},
     {"layers": [{"layer": None, "local_error": True}]}, {"modules": [{"sqnr_db": 3}]}],
)  # fmt: skip
def test_anything_may_stand_in_a_file(found: dict[str, Any]) -> None:
    assert list(comparison_lines(found))


def test_the_text_report_has_it() -> None:
    assert "lowest SQNR" in render(Report(target=Target(path="x", kind="hf-folder"), comparison=WHOLE))
