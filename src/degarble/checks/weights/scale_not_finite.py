"""WGT201: a scale that is not a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from degarble.checkpoint.interface import TensorInfo
from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Location
from degarble.formats.e8m0 import NAN
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

NAN_BYTES = {"F8_E4M3": "0x7F or 0xFF", "F8_E4M3FNUZ": "0x80", "F8_E8M0": "0xFF", "U8": "0xFF"}
"""How a NaN looks in dtypes of one byte."""

NO_SCALES = frozenset({PAYLOAD, "bias"})
"""Parts that hold weights: WGT203 judges those."""


@check("WGT201", level=Level.CONTENT, symptom_of=(*DAMAGED_FILE, *WRONG_READING))
def scale_not_finite(
    modules: Modules,
    profiles: Mapping[str, TensorProfile],
    module_profiles: Mapping[str, ModuleProfile] | None = None,
) -> Iterator[Finding]:
    """A scale of a quantised weight is NaN or infinite.

    ## What it looks for
    Every number of every scale, offset and codebook beside quantised weights, of every expert and prediction layer:
    NaN and infinity in 16- and 32-bit floats, the NaN bytes 0x7F and 0xFF in E4M3 block scales, 0xFF in E8M0 exponents
    (also where they are stored as plain bytes). The location is the first one's row and column in the stored tensor.
    All bytes are read. Bound: none at all; healthy: none of 5,106 tensors of 33 small checkpoints and six forms of a
    30-layer model.

    ## Why output turns to garbage
    A block scale multiplies 16, 32 or 128 weights. One NaN among them makes one output NaN for every token, the norm
    behind it spreads it over the whole hidden state, and the logits become NaN. Exporters write such a byte when they
    cast a scale above 448 to E4M3 without clamping, or divide by the maximum of a block of zeros.

    ## What you will see
    One token repeated from the first step on, usually id 0 ("!!!!"), empty answers, or NaN log-probabilities. A NaN
    scale of an expert shows only in prompts that are routed to it.

    ## How to tell it from its look-alikes
    NaN in the weights themselves is WGT203. Activations that overflow in fp16 give NaN from finite weights. A finite
    scale that is far too large is WGT216, a zero one WGT202.

    ## How to confirm
    Read the tensor at the row and column of the finding. Dequantise that block: all of it is NaN.

    ## How to repair it
    Quantise the module again from the original weights. Where all codes of the block are zero, any finite scale will
    do (0x7E is the largest in E4M3): that change alters no weight, but it hides what the exporter did, so it is not
    made unattended.

    ## References
    NVIDIA/Model-Optimizer#1397, NVIDIA/Model-Optimizer#1633, vllm-project/vllm-omni#4025, THUDM/slime#2256
    """
    for module in modules.values():
        for role in module.form.roles:
            info = module.part(role)
            if role in NO_SCALES or info is None:
                continue
            profile = profiles.get(info.name)
            if profile is not None and profile.nonfinite:
                yield _finding(module, role, info, profile.nonfinite, profile.first_nonfinite)
        yield from _exponent_bytes(module, module_profiles or {})


def _exponent_bytes(module: StoredModule, profiles: Mapping[str, ModuleProfile]) -> Iterator[Finding]:
    """Exponents under the dtype of bytes: only the format knows that they are numbers."""
    info, profile = module.part("scale"), profiles.get(module.name)
    if info is None or info.dtype != "U8" or profile is None or profile.scales is None:
        return
    scales = profile.scales
    if scales.nonfinite and module.form.scheme is not None and module.form.scheme.type == "float":
        yield _finding(module, "scale", info, scales.nonfinite, scales.first_nonfinite)


def _finding(module: StoredModule, role: str, info: TensorInfo, count: int, first: tuple[int, int] | None) -> Finding:
    row, col = first or (0, 0)
    spelling = f" ({NAN_BYTES[info.dtype]} in {info.dtype})" if info.dtype in NAN_BYTES else ""
    return Finding(
        location=value_place(module, role, row, col),
        message=f"{info.name} has {count} values that are NaN or infinite{spelling}, the first at [{row}, {col}] of "
        f"{list(info.shape)}: every weight under it is lost",
        measured={"nonfinite": count, "row": row, "col": col, **({"byte": NAN} if info.dtype == "U8" else {})},
        bound={"nonfinite_max": 0},
        fold=role,
        fix=Fix(id="finite-zero-blocks", safe=False),
    )


def value_place(module: StoredModule, role: str, row: int | None, col: int | None) -> Location:
    """One number of a stored part."""
    return replace(module.place(role), row=row, col=col)
