"""Configs of EXL2 and EXL3."""

from __future__ import annotations

from degarble.methods.exl import ExlMethod


def test_widths_are_means_and_not_promised() -> None:
    raw = {"quant_method": "exl3", "version": "0.0.1", "bits": 4.25, "head_bits": 6}
    found = ExlMethod().declare(raw, file="config.json", key="quantization_config")
    assert found.method == "exl3" and found.version == "0.0.1" and found.notes == {"mean_bits": 4.25, "head_bits": 6}
    assert found.default is not None and found.default.num_bits is None and found.default.type == "codebook"
    assert found.ill_typed == ()


def test_hostile_values() -> None:
    found = ExlMethod().declare({"quant_method": "EXL2", "bits": "4", "head_bits": True}, file="config.json", key="q")
    assert found.method == "exl2" and found.ill_typed == ("q.bits", "q.head_bits")
