"""Tensor name -> (module, suffix), by the suffixes that the format files declare.

    model.layers.0.mlp.up_proj.qweight                 -> model.layers.0.mlp.up_proj   qweight
    model.layers.0.mlp.up_proj.weight.absmax           -> model.layers.0.mlp.up_proj   weight.absmax
    model.layers.0.mlp.experts.gate_up_proj_blocks     -> …mlp.experts.gate_up_proj    _blocks
    model.layers.0.mlp.gate.e_score_correction_bias    -> the whole name               '' (a bare parameter)

A suffix that starts with an underscore is joined without a dot, and only believed if its payload is there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from degarble.checkpoint.interface import TensorInfo
from degarble.formats.detect import companion_suffixes, formats, payload_suffixes
from degarble.formats.interface import PAYLOAD

KV_SUFFIXES = frozenset({"k_scale", "v_scale", "kv_scale", "q_scale", "prob_scale", "k_zero_point", "v_zero_point"})
"""Scales of the KV cache hang under attention modules and are companions of no weight."""


@cache
def _suffixes() -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    known = {*payload_suffixes(), *companion_suffixes()} - {""}
    single = frozenset(suffix for suffix in known if "." not in suffix)
    dotted = tuple(sorted((s for s in known if "." in s), key=len, reverse=True))
    joined = tuple(sorted((s for s in known if s.startswith("_")), key=len, reverse=True))
    return single, dotted, joined


@cache
def _joined_payloads() -> frozenset[str]:
    return frozenset(
        suffix
        for fmt in formats().values()
        for suffix, role in fmt.roles.items()
        if role == PAYLOAD and suffix[:1] == "_"
    )


def split_name(name: str, names: Mapping[str, object]) -> tuple[str, str]:
    """Split one name. `names` are all names of the checkpoint."""
    single, dotted, joined = _suffixes()
    head, _, tail = name.rpartition(".")
    if tail in single and head:
        return head, tail
    if tail in KV_SUFFIXES:
        return head, tail
    for suffix in dotted:
        if name.endswith(suffix) and name[: -len(suffix)].endswith("."):
            return name[: -len(suffix) - 1], suffix
    for suffix in joined:
        if tail.endswith(suffix) and tail != suffix:
            stem = name[: -len(suffix)]
            if suffix in _joined_payloads() or any(stem + payload in names for payload in _joined_payloads()):
                return stem, suffix
    return name, ""


def group_by_module(tensors: Mapping[str, TensorInfo]) -> dict[str, dict[str, TensorInfo]]:
    """Module -> suffix -> tensor, in the order of the file. KV-cache scales are left out."""
    groups: dict[str, dict[str, TensorInfo]] = {}
    single = _suffixes()[0]
    for name, info in tensors.items():
        module, _, suffix = name.rpartition(".")
        if suffix not in single or not module:  # the fast path is 92,000 names long
            module, suffix = split_name(name, tensors)
            if suffix in KV_SUFFIXES:
                continue
        if module in groups:
            groups[module][suffix] = info
        else:
            groups[module] = {suffix: info}
    return groups


def kv_scales(names: Iterable[str]) -> dict[str, str]:
    """Tensor -> which KV scale it is (`k_scale`, `v_scale`, …)."""
    ends = tuple(KV_SUFFIXES)
    tails = {name: name.rpartition(".")[2] for name in names if name.endswith(ends)}
    return {name: tail for name, tail in tails.items() if tail in KV_SUFFIXES}
