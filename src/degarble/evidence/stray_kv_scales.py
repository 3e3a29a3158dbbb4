"""Evidence about scales of the KV cache that hang where no engine looks for them, and where they belong.

An engine rewrites the name of a scale before it looks its parameter up, and drops what it cannot place with one line in
the log. Read are, for the attention module `A` of a layer:

    A.k_scale                       compressed-tensors, Quark
    A.k_proj.k_scale                ModelOpt; `A.qkv_proj.k_scale` where the projections are fused
    A.attn.k_scale                  exports from an engine's own modules (also `A.mla_attn…`)
    A.kv_scale                      the old form, one for both

Sources: vLLM `model_loader/weight_utils.py` and SGLang `model_loader/weight_utils.py`, `maybe_remap_kv_scale_name`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from degarble.architectures.canonical import template_of
from degarble.checkpoint.interface import TensorInfo
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration

KV_LEAVES = frozenset(
    (
        "k_proj",
        "v_proj",
        "qkv_proj",
        "kv_proj",
        "kv_b_proj",
        "kv_a_proj_with_mqa",
        "query_key_value",
        "W_pack",
        "c_attn",
    )
)
"""Projections that make what is cached; their parent is the attention module."""

ENGINE_OBJECTS = ("attn", "mla_attn", "mla_attn.mla_attn")
"""Objects of engines between attention and scale."""


class StrayKvScale(msgspec.Struct, frozen=True, kw_only=True):
    """One scale that no engine finds."""

    info: TensorInfo
    kind: str
    """`k_scale`, `v_scale`, …"""
    layer: int
    home: str | None
    """The name under which engines look for it; None if the layer has several attention modules it may belong to."""
    layers_in_place: int
    """Layers whose scale of this kind is where engines look."""


class _Attention(msgspec.Struct, frozen=True):
    """An attention module by its name on disk."""

    name: str
    root: str
    layer: int
    is_text: bool


@provides("stray_kv_scales")
def stray_kv_scales(
    kv_scales: Mapping[str, str],
    tensors: Mapping[str, TensorInfo],
    modules: Modules,
    is_gguf: bool,
    declaration: Declaration | None = None,
) -> tuple[StrayKvScale, ...]:
    """Every scale of a layer with a known attention module that hangs elsewhere."""
    if not kv_scales or is_gguf:
        return ()
    found = _attentions(modules)
    by_layer: dict[int, list[_Attention]] = {}
    for attention in found.values():
        by_layer.setdefault(attention.layer, []).append(attention)
    in_place = {name: below for name in kv_scales if (below := _below(name.rpartition(".")[0], found)) is not None}
    styles = _Styles(in_place, kv_scales, declaration)
    strays = []
    for name, kind in kv_scales.items():
        place = _layer_of(name) if name not in in_place else None
        owners = _candidates(place[0], by_layer.get(place[1], [])) if place is not None else []
        if place is not None and owners:  # those of other towers, and of layers without attention, are not judged
            strays.append(_stray(tensors[name], kind, place[1], owners, styles))
    return tuple(strays)


def _attentions(modules: Modules) -> dict[str, _Attention]:
    """By name: every parent of a projection of keys or values that stands in a numbered layer."""
    found: dict[str, _Attention] = {}
    for example, members in modules.classes():
        if example.name.rpartition(".")[2] in KV_LEAVES:
            for module in members:
                attention = _attention_of(module)
                if attention is not None:
                    found.setdefault(attention.name, attention)
    return found


def _attention_of(module: StoredModule) -> _Attention | None:
    name = module.name.rpartition(".")[0]
    place = _layer_of(module.name)
    return _Attention(name, place[0], place[1], module.canonical is not None) if place is not None else None


def _layer_of(name: str) -> tuple[str, int] | None:
    """What stands before `layers.N`, and N; None for names outside numbered layers."""
    template, layer, _ = template_of(f".{name}.")
    return (template.partition(".layers.")[0].strip("."), layer) if layer is not None else None


def _below(owner: str, attentions: Mapping[str, _Attention]) -> str | None:
    """The owner's name below its attention module (`` for the module itself); None where no engine looks."""
    if owner in attentions:
        return ""
    for middle in (*ENGINE_OBJECTS, *KV_LEAVES):
        attention = owner.removesuffix(f".{middle}")
        if attention != owner and attention in attentions:
            return middle
    return None


class _Styles:
    """How this checkpoint spells the place of a scale that is where it belongs."""

    def __init__(self, in_place: Mapping[str, str], kinds: Mapping[str, str], declaration: Declaration | None) -> None:
        self._seen: dict[str, Counter[str]] = {}
        for name, below in in_place.items():
            self._seen.setdefault(kinds[name], Counter())[below] += 1
        self._is_modelopt = declaration is not None and declaration.method == "modelopt"

    def num_in_place(self, kind: str) -> int:
        """Scales of a kind that engines find."""
        return self._seen[kind].total() if kind in self._seen else 0

    def below(self, kind: str) -> str:
        """What most peers have between attention and scale, or else what the method's own tool writes."""
        if kind in self._seen:
            return self._seen[kind].most_common(1)[0][0]
        side = kind[0] if kind.startswith(("k_", "v_")) else None
        return f"{side}_proj" if self._is_modelopt and side is not None else ""


def _stray(info: TensorInfo, kind: str, layer: int, owners: list[_Attention], styles: _Styles) -> StrayKvScale:
    below = styles.below(kind)
    home = ".".join(part for part in (owners[0].name, below, kind) if part) if len(owners) == 1 else None
    return StrayKvScale(info=info, kind=kind, layer=layer, home=home, layers_in_place=styles.num_in_place(kind))


def _candidates(root: str, attentions: list[_Attention]) -> list[_Attention]:
    """Attention modules of the layer under the same root; else those of the text model whose root differs by a prefix."""
    same = [attention for attention in attentions if attention.root == root]
    return same or [a for a in attentions if a.is_text and (a.root.endswith(root) or root.endswith(a.root))]
