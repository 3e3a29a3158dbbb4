"""Every family: silent when healthy, in each spelling; and each kind of fault lands on its key or tensor."""

from __future__ import annotations

import pytest

from degarble.finding import Finding
from tests.checks.config.checkpoints import FAMILIES, config_of, found, renamed, shapes_of, source

SIZES = ("hidden_size", "vocab_size", "num_hidden_layers")


def lines(findings: list[Finding]) -> list[str]:
    """Readable in a failure."""
    return [f"{f.rule} {f.severity} {f.location.name()}: {f.message}" for f in findings]


@pytest.mark.parametrize("variants", [(), ("fused", "transformers 5")], ids=["on disk", "fused"])
@pytest.mark.parametrize("family", FAMILIES)
def test_healthy_family_is_silent(family: str, variants: tuple[str, ...]) -> None:
    """All needed parameters, nothing else."""
    config = config_of(family)
    assert lines(found(source(config, shapes_of(config, variants)))) == []


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_wrong_size_names_the_key(family: str, key: str) -> None:
    """One number too large: one cause, at its key."""
    config = config_of(family)
    shapes = shapes_of(config)
    wrong = {**config, key: config[key] + (1 if key == "num_hidden_layers" else config[key])}
    errors = [f for f in found(source(wrong, shapes)) if f.role == "cause"]
    expected = "CFG103" if key == "num_hidden_layers" else "CFG102"
    assert [(f.rule, f.location.key) for f in errors] == [(expected, key)], lines(errors)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_needed_parameter_is_missed(family: str) -> None:
    """Drop one parameter of layer 3, or outside the layers: it is the one cause."""
    config = config_of(family)
    shapes = shapes_of(config)
    for name in shapes:
        if (".layers." in name and ".layers.3." not in name) or (".experts.0." not in name and ".experts." in name):
            continue
        rest = {other: shape for other, shape in shapes.items() if other != name}
        causes = [f for f in found(source(config, rest)) if f.role == "cause"]
        rule = "CFG106" if name.startswith("lm_head") else "CFG104"
        assert [f.rule for f in causes] == [rule], (name, lines(causes))
        assert any(place.tensor == name for place in causes[0].all_places), (name, causes[0].location)


@pytest.mark.parametrize(
    ("model", "head"),
    [
        ("language_model.model.", "language_model.lm_head."),
        ("model.language_model.", "lm_head."),
        ("thinker.model.", "thinker.lm_head."),
    ],
)
def test_multimodal_wrapper_is_silent(model: str, head: str) -> None:
    """The text model under a wrapper, a tower beside it, the config nested."""
    inner = config_of("qwen3")
    shapes = renamed(
        shapes_of(inner),
        lambda name: head + name[8:] if name.startswith("lm_head.") else model + name.removeprefix("model."),
    )
    shapes["visual.blocks.0.attn.qkv.weight"] = (6, 2)
    outer = {"model_type": "qwen3_vl", "architectures": ["X"], "text_config": inner, "torch_dtype": "bfloat16"}
    assert lines(found(source(outer, shapes))) == []
    outer["text_config"] = inner | {"num_key_value_heads": 3}
    causes = [f for f in found(source(outer, shapes)) if f.role == "cause"]
    assert [(f.rule, f.location.key) for f in causes] == [("CFG102", "text_config.num_key_value_heads")]


def test_unknown_family_is_partial_and_compared_across_layers() -> None:
    """No shapes and no parameter list; a layer that lacks what the others have is still seen."""
    config = config_of("llama")
    shapes = shapes_of(config)
    config["model_type"] = "no_such_family"
    assert lines(found(source(config, shapes))) == []
    del shapes["model.layers.2.mlp.up_proj.weight"]
    causes = found(source(config, shapes))
    assert [(f.rule, f.location.tensor) for f in causes] == [("CFG104", "model.layers.2.mlp.up_proj.weight")]


def test_unknown_family_with_dense_first_layer_is_silent() -> None:
    """The first layer of many mixtures is dense: it lacks experts and has something of its own."""
    config = config_of("deepseek_v3")
    shapes = shapes_of(config)
    config["model_type"] = "no_such_family"
    assert lines(found(source(config, shapes))) == []
