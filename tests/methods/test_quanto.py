"""Config and sidecar of quanto."""

from __future__ import annotations

import json
from pathlib import Path

from degarble.methods.quanto import QuantoMethod


def test_sidecar(golden: Path) -> None:
    raw = json.loads((golden / "quanto-int8" / "quanto_qmap.json").read_bytes())
    found = QuantoMethod().declare(raw, file="quanto_qmap.json", key="")
    assert found.sidecar and found.ill_typed == () and len(found.rules) == 1 and found.default is None
    scheme = found.scheme_for("model.layers.0.mlp.up_proj")
    assert scheme is not None and (scheme.type, scheme.num_bits, scheme.activations) == ("int", 8, None)
    assert found.scheme_for("lm_head") is None


def test_config() -> None:
    raw = {"quant_method": "quanto", "weights": "int4", "activations": "int8", "modules_to_not_convert": ["lm_head"]}
    found = QuantoMethod().declare(raw, file="config.json", key="quantization_config")
    assert found.default is not None and (found.default.num_bits, found.default.activations) == (4, "static")
    assert not found.sidecar and found.skips[0].entries == ("lm_head",)


def test_hostile_values() -> None:
    raw = {"a": {"weights": "qint8", "activations": 3}, "b": [], "c": {"weights": "none"}, "d": {"weights": "qfloat8"}}
    found = QuantoMethod().declare(raw, file="quanto_qmap.json", key="")
    assert found.ill_typed == ("a", "b")
    scheme = found.scheme_for("d")
    assert scheme is not None and scheme.type == "float" and found.scheme_for("c") is None
    wrong = QuantoMethod().declare({"quant_method": "quanto", "weights": 8}, file="config.json", key="q")
    assert wrong.ill_typed == ("q.weights",)
