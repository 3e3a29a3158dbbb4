"""Plants WGT225."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.block_look import BlockLook
from degarble.evidence.modules import Modules
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import replace_values
from degarble.finding import Location
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.profile.layer import Block, JointProfile

TELLING = 5.0
"""Deviations by which a healthy layer must show its rotary order, in all heads."""
RELATED = 4.0


@fault("WGT225")
def row_pairs_interleaved(patient: Patient) -> Location:
    """Put the rows of q_proj and k_proj into GGUF's order (or out of it), in every layer."""
    blocks = _attentions(patient)
    for block, is_half in blocks:
        for part in ("q", "k"):
            _reorder(patient, block, part, is_half=is_half)
    return patient.pick(blocks)[0].parts["q"].place()


@fault("WGT225")
def rotary_rows_of_one_layer(patient: Patient) -> Location:
    """Put the rows of q_proj and k_proj of one layer into the other order."""
    block, is_half = patient.pick(_attentions(patient))
    for part in ("q", "k"):
        _reorder(patient, block, part, is_half=is_half)
    return block.parts["k"].place()


@fault("WGT225")
def rotary_rows_of_keys(patient: Patient) -> Location:
    """Put the rows of k_proj alone into GGUF's order, in one layer."""
    block, is_half = patient.pick(one for one in _attentions(patient, by_pair=True) if one[1])
    _reorder(patient, block, "k", is_half=is_half)
    return block.parts["k"].place()


@fault("WGT225")
def gate_and_up_interleaved(patient: Patient) -> Location:
    """Deal the rows of gate_proj and up_proj out in turn and cut the result in half, in one layer or expert."""
    modules: Modules = patient.evidence.get("modules")
    profiles: Sequence[JointProfile] = patient.evidence.find("joint") or ()
    telling = [
        one
        for one in profiles
        if len(one.pairs) == 2 and "gate" in one.modules and all(pair.stored > RELATED for pair in one.pairs)
    ]
    profile = patient.pick(telling)
    gate, up = modules[profile.modules["gate"]], modules[profile.modules["up"]]
    if gate.form is not up.form or (
        gate.part("g_idx") is not None and (gate.array("g_idx") != up.array("g_idx")).any()
    ):
        raise NotApplicable("gate and up are stored in two forms")
    _deal(patient, gate, up)
    return gate.place()


def _attentions(patient: Patient, *, by_pair: bool = False) -> list[tuple[Block, bool]]:
    """Attentions whose rotary order is clear, and whether it is halves."""
    look: BlockLook | None = patient.evidence.find("block_look")
    config = patient.evidence.find("model_config")
    profiles: Sequence[JointProfile] = patient.evidence.find("joint") or ()
    found = []
    for profile in profiles if look is not None and config is not None else ():
        pair = profile.pair("q", "k")
        if profile.rotary is None or pair is None or look is None:
            continue
        if by_pair and pair.stored <= RELATED:
            continue
        whole, block = look.whole(profile), look.block(profile)
        if whole is not None and block is not None and whole.rotary is not None and abs(whole.rotary) > TELLING:
            found.append((block, whole.rotary > 0))
    if not found:
        raise NotApplicable("no layer shows its rotary order")
    return found


def _reorder(patient: Patient, block: Block, part: str, *, is_half: bool) -> None:
    module = block.parts[part]
    head_dim = shape_of(block.parts["q"])[0] // block.num_heads
    move_rows(patient, module, lambda table: _other_order(table, head_dim, is_half=is_half))


def _other_order(table: Array, head_dim: int, *, is_half: bool) -> Array:
    first, second = (2, head_dim // 2) if is_half else (head_dim // 2, 2)
    heads = table.reshape(-1, first, second, table.shape[1])
    return np.ascontiguousarray(heads.transpose(0, 2, 1, 3).reshape(table.shape))


def move_rows(patient: Patient, module: StoredModule, change: Callable[[Array], Array]) -> None:
    """Move whole outputs: codes, scales and zero points together."""
    if module.form.format == "gguf":
        info = module.any_part
        raw = module.reader.raw(info).reshape(shape_of(module)[0], -1)
        patient.workspace.shard(info.file).set(info.name, info.dtype, info.shape, change(raw).tobytes())
        return
    replace_values(patient, module, **{role: change(table) for role, table in _tables(module).items()})


def _tables(module: StoredModule) -> dict[str, Array]:
    """What has one row for each output. Raises NotApplicable where outputs share more than a tensor's scale."""
    is_block = module.form.scheme is not None and module.form.scheme.block_shape is not None
    if is_block or module.part("bias") is not None or module.payload is None or module.payload.dtype.startswith("GGUF"):
        raise NotApplicable("outputs share a block or a bias, or cannot be written")
    if not module.form.is_quantized:
        return {"codes": module.array("payload")}
    found = {"codes": module.codes()}
    scales, zeros = module.scales(), module.zeros()
    if scales.shape[0] == shape_of(module)[0]:
        found["scales"] = scales
    if zeros is not None and module.part("zero_point") is not None:
        found["zeros"] = zeros
    return found


def _deal(patient: Patient, gate: StoredModule, up: StoredModule) -> None:
    first, second = _tables(gate), _tables(up)
    if gate.form.is_quantized and "scales" not in first:
        raise NotApplicable("one scale for all outputs")
    dealt = {role: np.stack([first[role], second[role]], axis=1).reshape(-1, first[role].shape[1]) for role in first}
    half = shape_of(gate)[0]
    replace_values(patient, gate, **{role: table[:half] for role, table in dealt.items()})
    replace_values(patient, up, **{role: table[half:] for role, table in dealt.items()})
