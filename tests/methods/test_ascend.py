"""Ascend's description file."""

from __future__ import annotations

from degarble.methods.ascend import AscendMethod

FILE = "quant_model_description.json"


def test_kinds() -> None:
    found = AscendMethod().declare(
        {
            "model_quant_type": "W8A8",
            "version": "1.0.0",
            "a.weight": "W8A8",
            "a.deq_scale": "W8A8",
            "b.weight": "W8A8_DYNAMIC",
            "c.weight": "FLOAT",
            "d.weight": "W8A16",
            "e.weight": "W4A8_DYNAMIC",
        },
        file=FILE,
        key="",
    )
    assert [found.scheme_for(name).activations for name in "abde"] == ["static", "dynamic", None, "dynamic"]  # type: ignore[union-attr]
    assert found.scheme_for("c") is None and found.scheme_for("z") is None
    assert found.scheme_for("e").num_bits == 4  # type: ignore[union-attr]
    assert found.version == "1.0.0" and found.sidecar and found.ill_typed == ()


def test_hostile_values_are_noted() -> None:
    found = AscendMethod().declare(
        {"a.weight": 8, "b.weight": None, "c.weight": "W999A8", "d.weight": ["W8A8"], "version": 3}, file=FILE, key=""
    )
    assert found.ill_typed == ("a.weight", "b.weight", "c.weight", "d.weight") and found.version is None
    assert found.rules == ()
