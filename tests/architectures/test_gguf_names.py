"""Our names against gguf-py's own map from Hugging Face names to GGUF ones."""

from __future__ import annotations

import pytest

from degarble.architectures import gguf_canonical
from degarble.architectures.family import find_family
from degarble.architectures.gguf_names import gguf_tables

ARCHITECTURES = sorted(gguf_tables()["model_types"])
NO_HF_NAME = {"blk.3.attn_rot_embd"}
"""A buffer that converters drop, so gguf-py maps nothing to it."""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_same_names_as_gguf_py(architecture: str) -> None:
    """Every tensor that GGUF lists for the architecture maps as gguf-py maps it."""
    gguf = pytest.importorskip("gguf")
    known = {name: arch for arch, name in gguf.constants.MODEL_ARCH_NAMES.items()}
    if architecture not in known:
        pytest.skip(f"this gguf has no {architecture}")
    arch = known[architecture]
    names = gguf.get_tensor_name_map(arch, 8)
    for tensor in gguf.constants.MODEL_TENSORS[arch]:
        name = gguf.constants.TENSOR_NAMES[tensor].format(bid=3)
        canonical = gguf_canonical(f"{name}.weight", architecture)
        if canonical is None:
            whole = [gguf_canonical(spelling, architecture) for spelling in (name, f"{name}.bias")]
            assert any(whole), f"{name} has no canonical name"
        elif name not in NO_HF_NAME and not name.startswith("rope_"):
            assert names.get_name(canonical.removesuffix(".weight")) == name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_leads_to_a_family(architecture: str) -> None:
    """No mapping points to a model type without data."""
    for model_type, _ in gguf_tables()["model_types"][architecture]:
        assert find_family(model_type) is not None
