"""NUM308: codes that only a destructive repack leaves behind, and zero points that one would wrap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from degarble.checks.weights.explained_by import DAMAGED_FILE
from degarble.errors import MalformedFile
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import CodeStats, ModuleProfile
from degarble.registry import Level, check
from degarble.repack.truncations import Truncation, truncations

MIN_CODES = 256
"""Fewer sampled codes than this say nothing about those that never occur."""
MIN_BITS = 3
"""Two bits have four codes: healthy modules may lack one."""
FEW = 4
"""An image this small must occur as a whole; of a larger one more than this must occur."""
MIN_SHARE = 0.01
"""Of the rarest code of a small image: a stray outlier is not an image."""
MAX_ZERO_SHARE = 0.35
"""Of codes of zero, above which a small image may be honest ternary weights. Healthy 4-bit modules: 0.14 to 0.31."""
MAX_ZERO_POINT_BITS = 4
NUM_LOOKED_AT = 32
"""Modules whose zero points are read: a hint needs no full count."""


@check("NUM308", level=Level.CONTENT, confidence=Confidence.LIKELY, symptom_of=(*DAMAGED_FILE, "CFG102", "QNT104"))
def repack_truncates(modules: Modules, module_profiles: Mapping[str, ModuleProfile]) -> Iterator[Finding]:
    """Only codes that survive a destructive repack occur in a module: different weights were made equal.

    ## What it looks for
    Codes of 3, 4 or 8 bits of which only those occur that a known mistake leaves: a shift followed by a clip, or a
    shift inside the field. The classic is `clip(w << 4, -8, 7)`, meant to lift an int4 into the high nibble of an int8
    and "protect" its range:

        code w           -8   -7   -6   -5   -4   -3   -2   -1    0    1    2    3    4    5    6    7
        int8(w << 4)   -128 -112  -96  -80  -64  -48  -32  -16    0   16   32   48   64   80   96  112
        clip(-8, 7)      -8   -8   -8   -8   -8   -8   -8   -8    0    7    7    7    7    7    7    7

    Sixteen codes become {-8, 0, 7}; only the sign is left. Counted from 0 as files store them that is {0, 8, 15}, and
    {0, 7, 8} if the result was stored as two's complement. Other images: every second code (`w << 1`), every fourth
    (`w << 2`), both clipped or cut off. Between 8 Ki and 128 Ki codes of each module are sampled. Healthy: 876 modules
    of 4 bits (17 checkpoints) use 15 or 16 of 16 codes, 52 modules of 8 bits at least 239 of 256; none was flagged.
    A second part counts zero points of 0 at up to 4 bits, as information: a repack that stores "zero minus one" makes
    15 of them, or borrows from the neighbour.

    ## Why output turns to garbage
    Magnitudes are gone: within a group every weight is the largest, the smallest or zero. Scales, shapes and sizes are
    right, so nothing complains. The shift alone loses nothing (the kernel's product is 16 times too large, and is
    shifted back); the clip must come before a shift, never after it.

    ## What you will see
    SmolLM2-135M, rounded to 4 bits in groups of 64 (perplexity 28.8 on 512 tokens of a licence): the classic in all
    210 linears 2.9e8 and a run of replacement characters; in one layer 1.6e6 and word soup; in one down_proj 45 to 75,
    in one k_proj 35, both with fluent text that still answers "Paris" or nearly so. Every second code in all linears:
    3.4e7. Where a kernel does it at run time the file is healthy: run `degarble verify-repack` on its function.

    ## How to tell it from its look-alikes
    Honest ternary weights also use three codes, but a third to a half of them are zero: where the median share of
    zeros is above 0.35, this is a warning and a hint (healthy modules: at most 0.31). Weights of FP4 or of fewer bits
    that were quantised again have gaps too, at other codes. One code throughout is WGT204, one half of the range
    empty WGT210, wrapped ends WGT211. Zero points of 0 are legal: only a conversion to the "minus one" convention can
    hurt them.

    ## How to confirm
    Print the distinct codes of the module with any reader of the format. Run the converter's own packing function
    through `degarble verify-repack module:function`: it names the step and the codes that it makes equal.

    ## How to repair it
    Nothing in the file tells what the codes were: quantise again from the full-precision weights with a repaired
    converter. Not safe unattended. For zero points of 0 keep a kernel that subtracts nothing (GEMM, Marlin), or convert
    field by field modulo 16.

    ## References
    ModelCloud/GPTQModel#2350, ModelCloud/GPTQModel#2351 (zero points of 0), intel/auto-round#2273 (levels in the wrong
    range); the way that works: llama.cpp `ggml-cpu/repack.cpp`.
    """
    hits: dict[Truncation, list[tuple[StoredModule, CodeStats]]] = {}
    for name, profile in module_profiles.items():
        module, stats = modules.get(name), profile.codes
        if module is None or stats is None or module.form.contradictions:
            continue
        truncation = _surviving(stats)
        if truncation is not None:
            hits.setdefault(truncation, []).append((module, stats))
    for truncation, members in hits.items():
        zero_share = float(np.median([_share(stats, truncation.zero) for _, stats in members]))
        is_ternary = len(truncation.image) <= FEW and zero_share > MAX_ZERO_SHARE
        yield from (_finding(module, stats, truncation, is_ternary) for module, stats in members)


def _surviving(stats: CodeStats) -> Truncation | None:
    """The mistake whose image holds every code of the sample."""
    total = sum(stats.histogram)
    used = {code for code, count in enumerate(stats.histogram) if count}
    if total < MIN_CODES or stats.num_bits < MIN_BITS or len(stats.histogram) != 1 << stats.num_bits:
        return None
    for truncation in truncations(stats.num_bits):
        if not used <= truncation.image:
            continue
        if len(truncation.image) > FEW:
            return truncation if len(used) > FEW else None
        rarest = min(_share(stats, code) for code in truncation.image)
        if used == truncation.image and rarest >= MIN_SHARE:
            return truncation
    return None


def _share(stats: CodeStats, code: int) -> float:
    return stats.histogram[code] / max(1, sum(stats.histogram))


def _finding(module: StoredModule, stats: CodeStats, truncation: Truncation, is_ternary: bool) -> Finding:
    used = [code for code, count in enumerate(stats.histogram) if count]
    shown = ", ".join(map(str, used[:9])) + (", …" if len(used) > 9 else "")
    zero_share = _share(stats, truncation.zero)
    doubt = f"; {zero_share:.0%} of them stand for zero, as in ternary weights" if is_ternary else ""
    return Finding(
        location=module.place(),
        message=f"{module.any_part.name}: of {1 << stats.num_bits} codes only {shown} occur among "
        f"{sum(stats.histogram)} sampled ones: what `{truncation.name}` leaves, stored {truncation.storage}{doubt}",
        severity=Severity.WARNING if is_ternary else None,
        confidence=Confidence.HINT if is_ternary else None,
        measured={"distinct_codes": len(used), "zero_share": round(zero_share, 4)},
        bound={"distinct_codes_min": len(truncation.image) + 1, "zero_share_max": MAX_ZERO_SHARE},
        fold=f"{truncation.name} {truncation.storage} {is_ternary}",
        fix=Fix(id="requantize-module", safe=False),
    )


@check("NUM308", level=Level.CONTENT, severity=Severity.INFO, confidence=Confidence.HINT)
def zero_points_would_wrap(modules: Modules) -> Iterator[Finding]:
    """Zero points of 0, which a repack to "zero minus one" turns into 15 or takes from the neighbour."""
    stored = [module for module in modules.values() if _has_packed_zeros(module)]
    step = max(1, len(stored) // NUM_LOOKED_AT)
    for module in stored[::step]:
        try:
            zeros = module.zeros()
        except (ValueError, KeyError, IndexError, MalformedFile, NotImplementedError):
            continue  # header rules report parts that do not fit
        number = 0 if zeros is None else int((zeros == 0).sum())
        if zeros is None or not number or number == zeros.size:
            continue
        yield Finding(
            location=module.place("zero_point"),
            message=f"{number} of {zeros.size} zero points of {module.name} are 0: a repack that stores them minus one "
            "wraps them to the highest code, or borrows from the neighbour",
            measured={"zero_points_of_0": number},
            bound={"zero_points_of_0": 0},
            fold="zero points of 0",
        )


def _has_packed_zeros(module: StoredModule) -> bool:
    scheme, zeros = module.form.scheme, module.part("zero_point")
    if scheme is None or zeros is None or module.form.contradictions or module.form.missing:
        return False
    return scheme.type == "int" and scheme.num_bits is not None and scheme.num_bits <= MAX_ZERO_POINT_BITS
