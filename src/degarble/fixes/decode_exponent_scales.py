"""Scales that are exponent bytes, decoded or declared."""

from __future__ import annotations

import numpy as np

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job

BIAS = 127
METHODS = frozenset({"fp8", "fbgemm_fp8"})


@repair("decode-exponent-scales")
def decode_exponent_scales(job: Job) -> None:
    """Replace whole numbers n among the scales by 2 ** (n - 127).

    ## What it changes
    The scale tensors of the named modules; type and shape stay.

    ## Why there is one answer
    Every scale of the module is a whole number that only an exponent byte can be.

    ## What it cannot do
    Tell what the scales were before they were rounded to powers of two, if they were.
    """
    for module in job.modules_at_places():
        stored = module.array("scale")
        job.set_part(module, "scale", np.exp2(stored.astype(np.float32) - BIAS).astype(stored.dtype), "2 ** (n - 127)")


@repair("declare-scale-format")
def declare_scale_format(job: Job) -> None:
    """Say in the config that scale bytes are exponents.

    ## What it changes
    `scale_fmt` of a native FP8 config.

    ## Why there is one answer
    Bytes beside FP8 weights can only be E8M0 exponents: taken as numbers, the weights would be 2 ** 120 off.

    ## What it cannot do
    Name the convention in configs whose grammar has no word for it.
    """
    declaration = job.declaration
    if declaration.method not in METHODS:
        raise CannotRepair(f"a config of {declaration.method} has no key for the format of scales")
    job.set_key(declaration.file, f"{declaration.key}.scale_fmt".lstrip("."), "ue8m0", "the bytes are exponents")
