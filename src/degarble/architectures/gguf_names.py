"""GGUF tensor names as the canonical ones.

GGUF has one vocabulary for all families, so a name can mean different modules: `ffn_norm` stands before the
MLP, in Gemma 2 `pre_feedforward_layernorm`, in Llama `post_attention_layernorm`. The architecture decides.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

_BLOCK = "blk."


def gguf_canonical(name: str, architecture: str = "llama") -> str | None:
    """`blk.3.attn_q.weight` gives `model.layers.3.self_attn.q_proj.weight`; None for unknown names.

    `architecture` is the file's `general.architecture`.
    """
    if not name.startswith(_BLOCK):
        return str(top) if (top := gguf_tables()["top_level"].get(name)) else None
    layer, _, tail = name[len(_BLOCK) :].partition(".")
    if not (layer.isascii() and layer.isdigit()):
        return None
    module = _tail(tail, architecture)
    return None if module is None else f"model.layers.{layer}.{module}"


@cache
def gguf_tables() -> dict[str, Any]:
    """The data file of names and keys, parsed once."""
    return tomllib.loads((files("degarble.data") / "architectures" / "gguf.toml").read_text(encoding="utf-8"))


@cache
def _modules(architecture: str) -> tuple[dict[str, str], dict[str, str]]:
    """Modules, and whole names behind the layer number, with the architecture's deviations."""
    tables = gguf_tables()
    modules = {**tables["modules"], **tables["by_architecture"].get(architecture, {})}
    return modules, {**tables["tensors"], **tables["tensors_by_architecture"].get(architecture, {})}


def _tail(tail: str, architecture: str) -> str | None:
    modules, tensors = _modules(architecture)
    if tail in tensors:
        return tensors[tail]
    module, _, suffix = tail.rpartition(".")
    if suffix not in ("weight", "bias") or module not in modules:
        return None
    return f"{modules[module]}.{suffix}"
