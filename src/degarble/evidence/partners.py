"""Modules that share a neuron, a channel or a fold: what is large in one may be large, or small, in the other by design.

fold       AWQ and SmoothQuant divide a norm by s and multiply what reads it; rows of up against columns of down alike
neuron     row i of gate_proj and of up_proj are one neuron; a few neurons of trained models dwarf all others
channel    row i of o_proj and of down_proj write hidden channel i, in this layer and its neighbours
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.evidence.folds import norm_before
from degarble.evidence.modules import Modules
from degarble.formats.interface import StoredModule

FOLDED: Mapping[str, str] = {
    "down_proj": "up_proj", "up_proj": "down_proj", "o_proj": "v_proj", "v_proj": "o_proj", "w2": "w3", "w3": "w2",
}  # fmt: skip
"""Linear -> the one whose scaling undoes its own."""

NEURON: Mapping[str, str] = {"gate_proj": "up_proj", "up_proj": "gate_proj", "w1": "w3", "w3": "w1"}
WRITERS: Mapping[str, str] = {"o_proj": "down_proj", "down_proj": "o_proj"}
"""Leaf -> leaf of the other writer of the hidden state."""
PARENTS: Mapping[str, str] = {"o_proj": "self_attn", "down_proj": "mlp"}


def undoing(module: StoredModule, modules: Modules) -> Iterator[StoredModule]:
    """Where the other half of a fold would be: the norm before the module, and the linear before or behind it."""
    norm = modules.by_canonical.get(norm_before(module, modules) or "")
    if norm is not None:
        yield norm
    parent, _, leaf = (module.canonical or "").rpartition(".")
    other = modules.by_canonical.get(f"{parent}.{FOLDED[leaf]}") if leaf in FOLDED else None
    if other is not None:
        yield other


def of_same_row(module: StoredModule, modules: Modules) -> Iterator[StoredModule]:
    """Modules whose row i belongs to the same neuron, or writes the same channel, as row i of this one."""
    parent, _, leaf = (module.canonical or "").rpartition(".")
    names = [f"{parent}.{NEURON[leaf]}"] if leaf in NEURON else []
    if leaf in WRITERS and module.layer is not None:
        head = f"model.layers.{module.layer}."
        names.append(f"{head}{PARENTS[WRITERS[leaf]]}.{WRITERS[leaf]}")
        names += [
            f"model.layers.{layer}.{parent.removeprefix(head)}.{leaf}" for layer in (module.layer - 1, module.layer + 1)
        ]
    yield from (modules.by_canonical[name] for name in names if name in modules.by_canonical)
