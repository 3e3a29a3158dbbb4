"""Folds of norms: what a quantiser divided out of a norm's gain, against the healthy copy."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from degarble.architectures.interface import Architecture
from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.evidence.modules import Modules
from degarble.formats.interface import StoredModule
from degarble.profile.sample import UNREADABLE

ATTENTION = frozenset(
    {
        "q_proj", "k_proj", "v_proj", "qkv_proj", "q_a_proj", "kv_a_proj_with_mqa", "in_proj_qkvz", "in_proj_ba",
        "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "W_pack", "query_key_value",
    }
)  # fmt: skip
"""Linears that read the hidden state behind the first norm of a layer."""

FEED_FORWARD = frozenset(
    {"gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "gate", "router", "shared_expert_gate", "fc1"}
)
"""Linears, and the router, behind the second one."""

AFTER_NORM = {"q_b_proj": "q_a_layernorm", "kv_b_proj": "kv_a_layernorm"}
FIRST, SECOND, SANDWICH = "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm"
FINAL, HEAD = "model.norm", "lm_head"


class Fold(msgspec.Struct, frozen=True):
    """One norm and how its gain differs from the reference's."""

    norm: StoredModule
    logs: Array
    """[hidden] log |gain of the target / gain of the reference|; 0 where either is zero."""

    @property
    def size(self) -> float:
        """Median |log|: 0 where nothing was folded."""
        return float(np.median(np.abs(self.logs)))


def norm_before(module: StoredModule, modules: Modules) -> str | None:
    """Canonical name of the norm whose output the module reads; None if there is none."""
    name, layer = module.canonical or "", module.layer
    leaf = name.rpartition(".")[2]
    if name == HEAD:
        return FINAL
    if layer is None:
        return None
    base = f"model.layers.{layer}."
    if leaf in AFTER_NORM:
        return f"{name.rpartition('.')[0]}.{AFTER_NORM[leaf]}"
    is_attention = "attn" in name or "attention" in name
    if is_attention:
        return base + FIRST if leaf in ATTENTION else None
    if leaf not in FEED_FORWARD:
        return None
    return base + (SANDWICH if base + SANDWICH in modules.by_canonical else SECOND)


def folds_of(
    modules: Modules, others: Modules, architecture: Architecture | None, other_architecture: Architecture | None
) -> list[Fold]:
    """Every norm that both have. Gains are 1 + w where the family says so."""
    mine, theirs = _offset(architecture), _offset(other_architecture)
    found = []
    for module in modules.values():
        other = others.by_canonical.get(module.canonical or "")
        if module.kind != "norm" or module.canonical is None or other is None or other.kind != "norm":
            continue
        try:
            one, two = _gain(module, mine), _gain(other, theirs)
        except UNREADABLE:
            continue
        if one.shape == two.shape and one.ndim == 1:
            found.append(Fold(module, _logs(one, two)))
    return found


def _offset(architecture: Architecture | None) -> float:
    return 1.0 if architecture is not None and architecture.norm_convention == "1+w" else 0.0


def _gain(module: StoredModule, offset: float) -> Array:
    return np.asarray(plain_vector(module).astype(np.float64) + offset)


def plain_vector(module: StoredModule) -> Array:
    """The values of a norm, of safetensors or GGUF. Raises KeyError for a dtype that is not plain."""
    info = module.any_part
    values = module.reader.raw(info).view(DTYPES[info.dtype.removeprefix("GGUF:")])
    return np.asarray(values.astype(np.float32))


def _logs(mine: Array, theirs: Array) -> Array:
    is_known = (mine * theirs > 0) & np.isfinite(mine) & np.isfinite(theirs)
    return np.where(is_known, np.log(np.abs(np.where(is_known, mine, 1)) / np.abs(np.where(is_known, theirs, 1))), 0.0)


def consumers(modules: Mapping[str, StoredModule], known: Modules) -> dict[str, list[StoredModule]]:
    """Norm -> the modules behind it."""
    found: dict[str, list[StoredModule]] = {}
    for module in modules.values():
        name = norm_before(module, known)
        if name is not None:
            found.setdefault(name, []).append(module)
    return found
