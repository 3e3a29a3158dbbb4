"""Rows of q/k and of gate/up in the order that the architecture expects."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import PAYLOAD, StoredModule

UP = {"gate_proj": "up_proj", "w1": "w3", "ffn_gate": "ffn_up"}


@repair("reorder-rotary-rows")
def reorder_rotary_rows(job: Job) -> None:
    """Move the rows of q_proj and k_proj so that rotary partners lie where the architecture expects them.

    ## What it changes
    The order of rows inside every head: codes, scales, zero points and bias together.

    ## Why there is one answer
    A permutation loses nothing, and there are two orders. That the rows are in the other one is statistical evidence,
    so the step counts as a judgement.

    ## What it cannot do
    Move rows that share a block scale, or heads that are rotated in part.
    """
    job.judge("the order of rotary rows is told by statistics")
    architecture = job.need("architecture")
    width = architecture.config.get("head_dim")
    if not isinstance(width, int) or width < 2 or width % 2:
        raise CannotRepair("the size of a head is not known")
    to_halves = "in pairs, halves" in job.finding.message
    for module in job.modules_at_places():
        what = f"rows of each head from {'pairs to halves' if to_halves else 'halves to pairs'}"
        move_rows(job, module, lambda table: _other_order(table, width, to_halves=to_halves), what)


@repair("deal-gate-up-rows")
def deal_gate_up_rows(job: Job) -> None:
    """Deal rows of gate and up that lie in turn out to the two modules.

    ## What it changes
    The rows of both modules: codes, scales, zero points and bias together.

    ## Why there is one answer
    A permutation loses nothing, and dealt out, both fit down_proj. That is statistical evidence, so the step counts as
    a judgement.

    ## What it cannot do
    Move rows that share a block scale or one scale for the whole tensor.
    """
    job.judge("that rows of gate and up lie in turn is told by statistics")
    modules = {module.name: module for module in job.modules_at_places()}
    for name, gate in modules.items():
        ending = next((ending for ending in UP if name.endswith(ending)), None)
        up = modules.get(name.removesuffix(ending) + UP[ending]) if ending is not None else None
        if up is not None:
            _deal(job, gate, up)
    if not job.edits:
        raise CannotRepair("the finding does not name both gate and up")


def move_rows(job: Job, module: StoredModule, change: Callable[[Array], Array], what: str) -> None:
    """Move whole outputs. `change` permutes the rows of a table. Raises CannotRepair where outputs share a scale."""
    if module.form.format == "gguf":
        info = module.any_part
        raw = module.reader.raw(info).reshape(_outputs(module), -1)
        job.set_bytes(info, change(raw), what)
        return
    if module.part("bias") is not None:
        bias = module.array("bias")
        job.set_part(module, "bias", change(bias.reshape(-1, 1)).reshape(bias.shape), what)
    tables = {role: change(table) for role, table in _tables(module).items()}
    if not module.form.is_quantized:
        job.set_part(module, PAYLOAD, tables["codes"], what)
    else:
        job.replace(module, what, **tables)


def _tables(module: StoredModule) -> dict[str, Array]:
    """What has one row for each output."""
    scheme = module.form.scheme
    if scheme is not None and scheme.block_shape is not None:
        raise CannotRepair(f"{module.name}: rows share block scales")
    if not module.form.is_quantized:
        return {"codes": module.array(PAYLOAD)}
    found = {"codes": module.codes()}
    scales, zeros = module.scales(), module.zeros()
    if scales.shape[0] == _outputs(module):
        found["scales"] = scales
    if zeros is not None and module.part("zero_point") is not None:
        found["zeros"] = zeros
    return found


def _outputs(module: StoredModule) -> int:
    if module.form.shape is None or len(module.form.shape) != 2:
        raise CannotRepair(f"{module.name} is no matrix")
    return module.form.shape[0]


def _other_order(table: Array, width: int, *, to_halves: bool) -> Array:
    """[heads * width, columns]: (2i, 2i + 1) inside each head become (i, i + half), or the other way round."""
    if table.shape[0] % width:
        raise CannotRepair(f"{table.shape[0]} rows are no whole heads of {width}")
    first, second = (width // 2, 2) if to_halves else (2, width // 2)
    heads = table.reshape(-1, first, second, table.shape[1])
    return np.ascontiguousarray(heads.transpose(0, 2, 1, 3).reshape(table.shape))


def _deal(job: Job, gate: StoredModule, up: StoredModule) -> None:
    """gate's and up's rows one after the other are g0 u0 g1 u1 …."""
    if gate.part("bias") is not None or gate.form is not up.form:
        raise CannotRepair(f"{gate.name} and {up.name} are not stored alike")
    mine, theirs = _tables(gate), _tables(up)
    if gate.form.is_quantized and "scales" not in mine:
        raise CannotRepair(f"{gate.name} has one scale for all rows")
    rows = {role: np.concatenate([mine[role], theirs[role]]) for role in mine}
    for module, start in ((gate, 0), (up, 1)):
        tables = {role: np.ascontiguousarray(table[start::2]) for role, table in rows.items()}
        if module.form.is_quantized:
            job.replace(module, "dealt out", **tables)
        else:
            job.set_part(module, PAYLOAD, tables["codes"], "dealt out")
