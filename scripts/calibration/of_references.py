"""Statistics against a healthy copy: WGT227, WGT228. Only where a reference is at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scripts.calibration.statistic import Value, above, below, class_of

from degarble.checks.weights import fold_not_inverse as folds
from degarble.checks.weights import weights_differ_beyond_format as differ
from degarble.evidence import Evidence
from degarble.evidence.folds import consumers
from degarble.evidence.reference_weights import Comparison


def comparisons(evidence: Evidence) -> dict[str, Comparison]:
    """Module -> comparison; none without a reference."""
    found = evidence.find("reference_weights")
    return dict(found.comparisons) if found is not None else {}


@above(
    "WGT227",
    "median |log| of norm ratio times column ratio, nats (2 bits: times 0.29, as its bound is 0.35)",
    folds.MAX_ERROR,
)
def fold_errors(evidence: Evidence) -> Iterator[Value]:
    """Of what reads a norm. Half of the fold must be left as well."""
    found, modules = comparisons(evidence), evidence.get("modules")
    readers = consumers({name: one.module for name, one in found.items()}, modules)
    for names in readers.values():
        for module in names:
            error = folds._error(found[module.name])
            if error is not None:
                yield Value(class_of(module), error * folds.MAX_ERROR / folds._max_error(module), module.name)


@above("WGT227", "both conditions: the smaller of error / 0.1 and share of the fold left / 0.5", 1.0)
def fold_errors_combined(evidence: Evidence) -> Iterator[Value]:
    """As the rule joins them."""
    found, modules = comparisons(evidence), evidence.get("modules")
    weights = evidence.find("reference_weights")
    readers = consumers({name: one.module for name, one in found.items()}, modules)
    for fold in weights.folds if weights is not None else ():
        for module in readers.get(fold.norm.canonical or "", []):
            compared = found[module.name]
            error = folds._error(compared)
            if error is None:
                continue
            columns = compared.column_logs - fold.logs
            size = max(float(np.median(np.abs(fold.logs))), float(np.nanmedian(np.abs(columns))))
            yield Value(
                class_of(module),
                min(error / folds._max_error(module), error / max(size, 1e-9) / folds.MAX_SHARE),
                module.name,
            )


@below("WGT228", "cosine with the reference", differ.MIN_COSINE)
def cosines(evidence: Evidence) -> Iterator[Value]:
    """After folds were put back."""
    yield from (Value(class_of(one.module), one.cosine, name) for name, one in comparisons(evidence).items())


@above("WGT228", "|log| of the least-squares factor", math.log(differ.MAX_GAIN))
def gains(evidence: Evidence) -> Iterator[Value]:
    """Alone or together with the module that undoes it, whichever is nearer to 1."""
    found = comparisons(evidence)
    by_name = {one.module.canonical: one for one in found.values()}
    for name, one in found.items():
        both = (one.gain, differ._joint_gain(one, by_name))
        number = min((abs(math.log(gain)) for gain in both if gain > 0), default=math.inf)
        yield Value(class_of(one.module), number, name)


@above("WGT228", "median |difference| in steps", differ.MAX_STEPS)
def steps(evidence: Evidence) -> Iterator[Value]:
    """Integer formats; modules that other modules may scale are judged by the cosine first."""
    for name, one in comparisons(evidence).items():
        if one.steps is not None and one.module.kind == "linear":
            is_scaled = differ._leaf(one) in folds.BEFORE
            kind = class_of(one.module) + (", down_proj and o_proj" if is_scaled else "")
            yield Value(kind, one.steps, name)
