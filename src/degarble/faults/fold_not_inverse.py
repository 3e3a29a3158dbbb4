"""Plants WGT227."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.folds import consumers
from degarble.evidence.modules import Modules
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import replace_values
from degarble.finding import Location
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import group_size

NATS = 0.6
"""Inputs are multiplied by e^0.6 and e^-0.6, group by group, so that every group keeps its codes."""


@fault("WGT227", needs_reference=True)
def fold_not_inverse(patient: Patient) -> Location:
    """Fold a scale out of the first norm of a layer into q_proj and k_proj, and forget v_proj."""
    norm, behind = patient.pick(_norms(patient, "v_proj"))
    forgotten = [one for one in behind if _leaf(one) == "v_proj"]
    _fold(patient, norm, [one for one in behind if one not in forgotten])
    return forgotten[0].place()


@fault("WGT227", needs_reference=True)
def gate_not_compensated(patient: Patient) -> Location:
    """Fold a scale out of the second norm of a layer into up_proj, and forget gate_proj."""
    norm, behind = patient.pick(_norms(patient, "gate_proj"))
    forgotten = [one for one in behind if _leaf(one) == "gate_proj"]
    if len(forgotten) != 1 or len(behind) != 2:
        raise NotApplicable("not one gate and one up behind the norm")
    _fold(patient, norm, [one for one in behind if one not in forgotten])
    return forgotten[0].place()


@fault("WGT227", needs_reference=True)
def router_not_compensated(patient: Patient) -> Location:
    """Fold a scale out of the norm before the experts into all of them, and forget the router."""
    routed = [(norm, behind) for norm, behind in _norms(patient) if any(one.kind == "router" for one in behind)]
    norm, behind = patient.pick(routed)
    router = next(one for one in behind if one.kind == "router")
    _fold(patient, norm, [one for one in behind if one is not router])
    return router.place()


@fault("WGT227", needs_reference=True)
def norm_alone_scaled(patient: Patient) -> Location:
    """Divide a norm by a scale that no weight behind it was multiplied with."""
    norm, _ = patient.pick(
        [(norm, behind) for norm, behind in _norms(patient) if len(behind) > 1 and norm.layer is not None]
    )
    _fold(patient, norm, [])
    return norm.place()


def _leaf(module: StoredModule) -> str:
    return (module.canonical or "").rpartition(".")[2]


def _norms(patient: Patient, needed: str | None = None) -> list[tuple[StoredModule, list[StoredModule]]]:
    """Norms and what is behind them, where all of it takes a fold."""
    modules: Modules | None = patient.evidence.find("modules")
    if modules is None:
        raise NotApplicable("no modules")
    kinds = ("linear", "router", "head")
    behind = consumers(
        {one.name: one for one in modules.values() if one.kind in kinds and one.payload is not None}, modules
    )
    found = []
    for name, members in behind.items():
        norm = modules.by_canonical.get(name)
        if (
            norm is None
            or norm.payload is None
            or norm.payload.dtype.startswith("GGUF")
            or not all(_takes_fold(one) for one in members)
        ):
            continue
        if needed is None or any(_leaf(one) == needed for one in members):
            found.append((norm, members))
    if not found:
        raise NotApplicable("no norm whose consumers take a fold")
    return found


def _takes_fold(module: StoredModule) -> bool:
    if not module.form.is_quantized:
        return len(module.form.shape or ()) == 2
    columns = shape_of(module)[-1] if module.form.shape else 0
    is_regular = module.part("g_idx") is None or bool((np.diff(module.array("g_idx")) >= 0).all())
    return columns > 0 and group_size(module) < columns and module.form.format != "gguf" and is_regular


def _fold(patient: Patient, norm: StoredModule, behind: Sequence[StoredModule]) -> None:
    columns = norm.dequantize().size
    size = max([group_size(one) for one in behind if one.form.is_quantized], default=1)
    blocks = np.random.default_rng(patient.rng.randrange(1 << 30)).permutation(-(-columns // size)) % 2
    logs = np.repeat(np.where(blocks == 0, NATS, -NATS), size)[:columns]
    for one in behind:
        _scale_inputs(patient, one, np.exp(logs).astype(np.float32))
    architecture = patient.evidence.find("architecture")
    offset = 1.0 if architecture is not None and architecture.norm_convention == "1+w" else 0.0
    gain = (norm.dequantize().astype(np.float64) + offset) / np.exp(logs) - offset
    replace_values(patient, norm, codes=gain)


def _scale_inputs(patient: Patient, module: StoredModule, factors: Array) -> None:
    if not module.form.is_quantized:
        replace_values(patient, module, codes=module.dequantize() * factors)
        return
    size = group_size(module)
    if len(factors) % size:
        raise NotApplicable("the last group is short")
    scales = module.scales()
    wanted = (scales * factors[::size][: scales.shape[-1]]).astype(np.float32)
    scheme = module.form.scheme
    if scheme is not None and scheme.type == "float" and scheme.num_bits == 4:
        raise NotApplicable("scales of few bits cannot take an arbitrary factor")
    replace_values(patient, module, scales=wanted)
