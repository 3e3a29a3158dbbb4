"""Zero points that were stored one by one, packed into words as their format wants them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as changed

import msgspec
import numpy as np

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule

ROLE = "zero_point"
WORD_BITS = 32


@repair("repack-zero-points")
def repack_zero_points(job: Job) -> None:
    """Pack zero points that stand one for each scale into 32-bit words along the outputs.

    ## What it changes
    Type and shape of the zero points of the named modules; every value stays.

    ## Why there is one answer
    There is one zero point for each scale, in the shape of the scales, and the format knows one packing. Packed words
    whose axes are exchanged are turned back, which takes the shape for the whole story: a judgement.

    ## What it cannot do
    Restore packed words that were cut: those have to be fetched.
    """
    for module in job.modules_at_places():
        turned = _turned(module)
        if turned is not None:
            job.judge("axes in the other order are taken to be exchanged")
            job.set_part(module, ROLE, turned, "axes exchanged")
            continue
        zeros = _unpacked(module)
        packed = next(_packed(module, zeros), None)
        if packed is None:
            raise job.cannot(f"{module.name}: no packing fits", [module.parts[module.form.roles[ROLE]].name])
        job.set_part(module, ROLE, packed, "packed along the outputs")


def _turned(module: StoredModule) -> Array | None:
    """Packed words with exchanged axes, turned back; None where that does not satisfy the format either."""
    info = module.part(ROLE)
    if info is None or len(info.shape) != 2 or info.dtype not in ("I32", "U32"):
        return None
    shape = (info.shape[1], info.shape[0])
    candidate = _with_part(module, msgspec.structs.replace(info, shape=shape))
    if shape == info.shape or any(item.role == ROLE for item in candidate.form.contradictions):
        return None
    return np.ascontiguousarray(module.array(ROLE).T)


def _unpacked(module: StoredModule) -> Array:
    """[out, groups] as stored, one for each scale."""
    if module.part(ROLE) is None or module.part("scale") is None or module.form.shape is None:
        raise CannotRepair(f"{module.name} lacks zero points or scales")
    stored = module.array(ROLE)
    if stored.shape != module.array("scale").shape or stored.ndim != 2:
        raise CannotRepair(f"{module.name}: zero points are not one for each scale")
    out = module.form.shape[0]
    return stored.astype(np.int32) if stored.shape[0] == out else stored.T.astype(np.int32)


def _packed(module: StoredModule, zeros: Array) -> Iterator[Array]:
    """The format's own packing, in each shape that its headers would accept."""
    scheme = module.form.scheme
    if scheme is None or not scheme.num_bits:
        return
    out, groups = zeros.shape
    width = -(-out * scheme.num_bits // WORD_BITS)
    for shape in ((groups, width), (width, groups)):
        info = msgspec.structs.replace(
            module.parts[module.form.roles[ROLE]], dtype="I32", shape=shape, nbytes=4 * groups * width
        )
        candidate = _with_part(module, info)
        if any(item.role == ROLE for item in candidate.form.contradictions):
            continue
        try:
            yield candidate.replace(zeros=zeros)[info.name]
        except (ValueError, KeyError, NotImplementedError):
            continue


def _with_part(module: StoredModule, info: TensorInfo) -> StoredModule:
    """The module as it would be with zero points of another shape."""
    parts = {**module.parts, module.form.roles[ROLE]: info}
    form = module.format.form(parts, module.form.scheme, module.form.shape)
    return msgspec.structs.replace(module, parts=parts, form=changed(form, scheme=module.form.scheme))
