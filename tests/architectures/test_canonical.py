"""Names with placeholders, and the spellings of multimodal checkpoints."""

from __future__ import annotations

import pytest

from degarble.architectures import canonical_name, template_of, text_prefix


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "model.layers.3.mlp.experts.17.up_proj.weight",
            ("model.layers.{layer}.mlp.experts.{expert}.up_proj.weight", 3, 17),
        ),
        ("model.layers.61.eh_proj.weight", ("model.layers.{layer}.eh_proj.weight", 61, None)),
        (
            "model.layers.0.mlp.experts.gate_up_proj",
            ("model.layers.{layer}.mlp.experts.gate_up_proj", 0, None),
        ),
        ("model.norm.weight", ("model.norm.weight", None, None)),
        ("model.layers.03.mlp.up_proj.weight", ("model.layers.03.mlp.up_proj.weight", None, None)),
        ("model.layers.٣.mlp.up_proj.weight", ("model.layers.٣.mlp.up_proj.weight", None, None)),
        ("model.layers.", ("model.layers.", None, None)),
        ("model.layers.7", ("model.layers.7", None, None)),
        ("model.layers.99999999.x", ("model.layers.99999999.x", None, None)),
        ("", ("", None, None)),
    ],
)
def test_template_of(name: str, expected: tuple[str, int | None, int | None]) -> None:
    """Numbers become placeholders; anything that is not a plain number stays."""
    assert template_of(name) == expected


@pytest.mark.parametrize(
    ("model", "head"),
    [
        ("model.", "lm_head."),
        ("language_model.model.", "language_model.lm_head."),
        ("model.language_model.", "lm_head."),
        ("model.text_model.", "lm_head."),
        ("thinker.model.", "thinker.lm_head."),
        ("", "lm_head."),
    ],
)
def test_every_layout_leads_to_the_plain_names(model: str, head: str) -> None:
    """All spellings of one model give the same canonical names, and back."""
    names = [
        f"{model}embed_tokens.weight",
        f"{model}layers.0.mlp.up_proj.weight",
        f"{model}norm.weight",
        f"{head}weight",
        "model.vision_tower.encoder.layers.0.mlp.up_proj.weight",
        "visual.blocks.0.attn.qkv.weight",
        "multi_modal_projector.linear_1.weight",
        "model.image_newline",
    ]
    prefix = text_prefix(names)
    plain = [
        "model.embed_tokens.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
    ]
    assert [canonical_name(name, prefix) for name in names] == [*plain, None, None, None, None]
    assert [prefix.on_disk(name) for name in plain] == names[:4]


def test_unknown_names_stay_visible() -> None:
    """A misspelt name is reported, not taken for another tower."""
    prefix = text_prefix(["model.layers.0.mlp.up_proj.weight"])
    assert canonical_name("model.layer.0.mlp.up_proj.weight", prefix) == "model.layer.0.mlp.up_proj.weight"
    assert canonical_name("adapter.weight", prefix) == "adapter.weight"


def test_one_stray_name_does_not_choose_the_layout() -> None:
    """The majority of names decides."""
    names = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(4)]
    assert text_prefix([*names, "language_model.model.layers.0.mlp.up_proj.weight"]).model == "model."
