"""QNT115: the bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.checkpoint.workspace import Workspace
from tests.checks.quantization.judging import judge, write
from tests.checks.quantization.test_stored_plain_but_declared_quantized import make_plain

LINEARS = tuple(
    f"{block}.{name}_proj"
    for block, names in (("self_attn", "q k v o"), ("mlp", "gate up down"))
    for name in names.split()
)


@pytest.mark.parametrize(("layers", "number"), [((0,), 0), ((0, 1), 1)])
def test_half_of_the_model_is_enough(golden: Path, layers: tuple[int, ...], number: int) -> None:
    def edit(workspace: Workspace) -> None:
        plain = [f"model.layers.{layer}.{name}" for layer in layers for name in LINEARS]
        for module in plain:
            make_plain(workspace, module)
        write(workspace, "ignore", ["lm_head", *plain])

    found = judge("QNT115", golden / "llm-compressor-w8a8-int8", edit)
    assert len(found) == number
    assert all(finding.measured["quantized_share"] == 0 for finding in found)
