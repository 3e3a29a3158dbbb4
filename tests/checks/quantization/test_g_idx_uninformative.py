"""QNT113: indices that look odd and are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from degarble.finding import Severity
from tests.checks.quantization.judging import judge, quantization

SYMMETRIC = "gptqmodel-gptq-sym-g128"
ORDERED = "gptqmodel-gptq-asym-actorder-g64"
INDEX = "model.layers.0.mlp.down_proj.g_idx"


def test_declared_order_over_a_rising_index_is_an_info(golden: Path) -> None:
    """The flag is idle: it costs time and changes nothing."""
    found = judge("QNT113", golden / SYMMETRIC, lambda w: quantization(w).update(desc_act=True))
    assert [finding.severity for finding in found] == [Severity.INFO]
    assert found[0].location.key == "quantization_config.desc_act"


def test_index_that_was_never_set_is_silent(golden: Path) -> None:
    """compressed-tensors fills it with -1."""
    assert judge("QNT113", golden / SYMMETRIC, lambda w: w.set(INDEX, np.full(512, -1, np.int32))) == []


def test_one_group_may_be_all_zero(golden: Path) -> None:
    """With one scale per row an index of zeros is right."""

    def one_group(workspace):
        quantization(workspace)["group_size"] = -1
        for name in list(workspace.shard("model.safetensors").tensors):
            if name.endswith(".g_idx"):
                columns = workspace.shard("model.safetensors").tensors[name].shape[0]
                workspace.set(name, np.zeros(columns, np.int32))
            if name.endswith((".scales", ".qzeros")):
                slot = workspace.shard("model.safetensors").tensors[name]
                data = np.zeros((1, slot.shape[1]), np.float16 if slot.dtype == "F16" else np.int32)
                workspace.set(name, data)

    assert judge("QNT113", golden / SYMMETRIC, one_group) == []


def test_shuffled_index_is_silent_where_it_is_declared(golden: Path) -> None:
    """Activation order, as the tool wrote it."""
    assert judge("QNT113", golden / ORDERED) == []


def test_first_wrong_input_is_named(golden: Path) -> None:
    """A reader wants the place and the bound."""
    index = (np.arange(512) // 128).astype(np.int32)
    index[37] = 9
    (found,) = judge("QNT113", golden / SYMMETRIC, lambda w: w.set(INDEX, index))
    assert (found.measured, found.bound) == ({"first_input": 37, "value": 9}, {"groups": 4})
    assert found.location.tensor == INDEX
