"""Nested config objects."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.methods.auto_round import AutoRoundMethod
from degarble.methods.awq import AwqMethod
from degarble.methods.compressed_tensors import CompressedTensorsMethod
from degarble.methods.fields import Fields
from degarble.methods.gptq import GptqMethod
from degarble.methods.interface import Method
from degarble.methods.modelopt import ModelOptMethod

METHODS: list[Method] = [GptqMethod(), AwqMethod(), AutoRoundMethod(), CompressedTensorsMethod(), ModelOptMethod()]


def test_paths_of_nested_objects() -> None:
    fields = Fields({"a": {"b": {"c": "x"}, "d": 1}, "n": 70}, file="f", key="q")
    ((name, inner),) = fields.objects("a")
    assert (name, inner.num_bits("c"), fields.num_bits("n")) == ("b", None, None)
    assert fields.faults == ("q.a.d", "q.a.b.c", "q.n")


@pytest.mark.parametrize(("value", "size"), [(-1, -1), (128, 128), (0, None), (-2, None), (True, None), ("128", None)])
def test_group_size(value: object, size: int | None) -> None:
    fields = Fields({"group_size": value}, file="f", key="")
    assert fields.group_size("group_size") == size
    assert bool(fields.faults) == (size is None)


KEYS = [
    "bits", "w_bit", "group_size", "q_group_size", "sym", "zero_point", "desc_act", "version", "checkpoint_format",
    "dynamic", "lm_head", "meta", "quantizer", "modules_to_not_convert", "modules_in_block_to_quantize", "extra_config",
    "packing_format", "data_type", "act_bits", "config_groups", "targets", "weights", "input_activations", "num_bits",
    "strategy", "type", "symmetric", "actorder", "block_structure", "ignore", "kv_cache_scheme", "quant_algo",
    "quantization", "quantized_layers", "exclude_modules", "kv_cache_quant_algo", "producer", "format", "+:(", "re:*",
]  # fmt: skip
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 2**70), st.floats(), st.sampled_from(["int", "Linear", "re:(a", "x"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)),
    max_leaves=25,
)


@settings(max_examples=800, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8))
def test_no_config_makes_a_method_raise(raw: dict[str, object]) -> None:
    for method in METHODS:
        found = method.declare(raw, file="config.json", key="quantization_config")
        found.scheme_for("model.layers.0.mlp.down_proj")
        found.is_implicitly_plain("lm_head")
        assert all(isinstance(path, str) for path in found.ill_typed)
