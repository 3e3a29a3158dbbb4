"""WGT203: a weight that is not a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checks.weights.explained_by import DAMAGED_FILE
from degarble.checks.weights.scale_not_finite import NAN_BYTES, NO_SCALES, value_place
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix
from degarble.formats.gguf_types import GGML_TYPE_BY_NAME
from degarble.formats.interface import StoredModule
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check


@check("WGT203", level=Level.CONTENT, symptom_of=("WGT201", *DAMAGED_FILE))
def payload_not_finite(modules: Modules, profiles: Mapping[str, TensorProfile]) -> Iterator[Finding]:
    """A stored weight is NaN or infinite.

    ## What it looks for
    Every weight, norm, bias and embedding in floating point; the NaN bytes 0x7F and 0xFF of E4M3 payloads (0x80 in
    FNUZ), infinities of E5M2; the scales `d` and minima `dmin` inside GGUF blocks, where one NaN takes 32 or 256
    weights. All bytes are read; the location is the first one. Bound: none at all; healthy: none of 5,106 tensors of
    33 small checkpoints and six forms of a 30-layer model.

    ## Why output turns to garbage
    One NaN weight makes one output NaN for every token; the norm behind it spreads that over the hidden state. FP8
    payloads get NaN where a block of zeros was divided by its own maximum; GGUF blocks where an importance matrix has
    zeros for all of a block's columns; fp16 weights become infinite when a larger bf16 value is cast.

    ## What you will see
    One token repeated, usually id 0 ("!!!!"), empty answers, NaN log-probabilities; llama.cpp refuses the file with
    "found nan value at block". In an expert, only the prompts that are routed to it fail.

    ## How to tell it from its look-alikes
    A NaN scale over healthy codes is WGT201. Overflow at run time (NUM302) has finite weights. Attention masks stored
    as buffers may hold minus infinity and are left out, as are tensors of other towers' masks.

    ## How to confirm
    Read the tensor at the row and column of the finding; count the NaN values in it.

    ## How to repair it
    Take the tensor from the source model and quantise it again; for GGUF with an importance matrix, make that again or
    use a newer llama.cpp. Writing zeros instead loses the weight, so nothing is done unattended.

    ## References
    ggml-org/llama.cpp#8661, ggml-org/llama.cpp#11764, ikawrakow/ik_llama.cpp#649, THUDM/slime#2256
    """
    for module in modules.values():
        if "mask" in module.name.rpartition(".")[2]:
            continue
        for role in NO_SCALES & module.form.roles.keys():
            info = module.part(role)
            profile = profiles.get(info.name) if info is not None else None
            if profile is not None and profile.nonfinite:
                yield _finding(module, role, profile)


def _finding(module: StoredModule, role: str, profile: TensorProfile) -> Finding:
    row, col = profile.first_nonfinite or (0, 0)
    kind = GGML_TYPE_BY_NAME.get(profile.dtype.removeprefix("GGUF:")) if profile.dtype.startswith("GGUF:") else None
    is_blocked = kind is not None and kind.block_size > 1
    what = "block scales that are" if is_blocked else "values that are"
    where = f"block {col} of row {row}" if is_blocked else f"[{row}, {col}]"
    spelling = f" ({NAN_BYTES[profile.dtype]})" if profile.dtype in NAN_BYTES else ""
    column = col * kind.block_size if kind is not None and is_blocked else col
    return Finding(
        location=value_place(module, role, row, column),
        message=f"{profile.name} ({profile.dtype} {list(profile.shape)}) has {profile.nonfinite} {what} NaN or infinite"
        f"{spelling}, the first at {where}",
        measured={"nonfinite": profile.nonfinite, "row": row, "col": col},
        bound={"nonfinite_max": 0},
        fold=role,
        fix=Fix(id="requantize-module", safe=False),
    )
