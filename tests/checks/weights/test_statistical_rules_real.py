"""Statistical rules on the real model: 30 layers are peers, and trained weights have partners."""

from __future__ import annotations

import pytest

from degarble.faults.interface import faults
from tests.planting import assert_first_cause
from tests.real.conftest import model_path

pytestmark = pytest.mark.real

CASES = (
    ("awq", "pack-order-of-a-layer"),
    ("awq", "pack-order-everywhere"),
    ("gptq", "zero-points-of-the-other-version"),
    ("gptq", "activation-order-lost"),
    ("awq", "group-size-misdeclared"),
    ("awq", "scale-outlier"),
    ("fp8", "scale-of-a-block"),
    ("bf16", "module-exchanged"),
    ("bf16", "gate-and-up-exchanged-everywhere"),
    ("gguf", "rotary-rows-of-one-layer"),
    ("bf16", "rotary-rows-of-keys"),
    ("bf16", "gate-and-up-interleaved"),
    ("awq", "fold-not-inverse"),
    ("fp8", "weights-differ-beyond-format"),
)
"""Those that golden checkpoints of two layers cannot show, each in one form: seconds, not minutes."""


@pytest.mark.parametrize(("form", "name"), CASES)
def test_fault_is_the_first_cause(form: str, name: str) -> None:
    """See planting.assert_first_cause."""
    assert_first_cause(next(fault for fault in faults() if fault.name == name), model_path(form))
