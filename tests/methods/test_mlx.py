"""MLX's `quantization` object."""

from __future__ import annotations

from typing import Any

from degarble.methods.interface import Declaration
from degarble.methods.mlx import MlxMethod


def declare(raw: dict[str, Any]) -> Declaration:
    return MlxMethod().declare(raw, file="config.json", key="quantization")


def test_overrides() -> None:
    found = declare(
        {
            "group_size": 64,
            "bits": 4,
            "mode": "affine",
            "model.layers.0.mlp.down_proj": {"bits": 8},
            "model.layers.1.mlp.down_proj": {"bits": 8},
            "model.layers.0.mlp.up_proj": True,
            "lm_head": False,
        }
    )
    assert len(found.rules) == 3 and found.ill_typed == ()
    down = found.scheme_for("model.layers.1.mlp.down_proj")
    assert down is not None and (down.num_bits, down.group_size) == (8, 64)
    assert found.scheme_for("model.layers.0.mlp.up_proj") == found.default
    assert found.scheme_for("lm_head") is None
    other = found.scheme_for("model.layers.0.self_attn.q_proj")
    assert other is not None and (other.num_bits, other.type, other.symmetric) == (4, "int", False)


def test_modes() -> None:
    scheme = declare({"mode": "nvfp4"}).default
    assert scheme is not None and (scheme.type, scheme.num_bits, scheme.group_size) == ("float", 4, 16)


def test_hostile_values() -> None:
    found = declare({"group_size": "x", "bits": -1, "mode": 3, "a.b": 7, "c.d": {"bits": []}})
    assert set(found.ill_typed) == {f"quantization.{key}" for key in ("group_size", "bits", "mode", "a.b", "c.d.bits")}
    assert found.default is not None and found.default.strategy is None
