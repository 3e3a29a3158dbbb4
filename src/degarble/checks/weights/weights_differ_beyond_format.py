"""WGT228: a weight that is not the reference's, beyond what its format can explain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.checks.weights.fold_not_inverse import BEFORE
from degarble.evidence.forward_pass import ForwardPass
from degarble.evidence.modules import Modules
from degarble.evidence.reference_weights import Comparison, ReferenceWeights, owner
from degarble.evidence.store import Evidence
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import Level, check

MIN_COSINE = 0.7
"""Two bits leave 0.9, four bits 0.99; other weights have 0.0."""
MIN_GAIN, MAX_GAIN = 0.67, 1.5
SCALED_COSINE = 0.9
"""Columns of down_proj and o_proj may carry a fold, which is no difference in steps."""
MAX_STEPS = 0.75
"""Median |difference| in steps: rounding 0.25, error compensation 0.4; zero points off by one 1.0."""
MAX_OUTPUT_Z = 3.0
"""rms of the output's error over what rounding costs: the same three steps with activations. Healthy 0.93 to 1.55."""
ALL_ROUNDED = 0.99
"""bf16 sources and fp16 scales leave a few codes on the other side of a tie."""
MAX_SEARCHED = 64
"""Modules whose true owner is looked for: a wrong reference would make that thousands."""
EXPLAINED_BY = (
    "WGT201", "WGT202", "WGT203", "WGT204", "WGT205", "WGT206", "WGT207", "WGT208", "WGT209", "WGT210", "WGT211",
    "WGT212", "WGT213", "WGT214", "WGT215", "WGT216", "WGT220", "WGT221", "WGT222", "WGT225", "WGT226", "WGT227",
    "WGT229", "QNT101", "QNT113", "CFG106", *DAMAGED_FILE, *(rule for rule in WRONG_READING if rule != "QNT103"),
)  # fmt: skip


@check("WGT228", confidence=Confidence.LIKELY, level=Level.REFERENCE, symptom_of=EXPLAINED_BY)
def weights_differ_beyond_format(
    reference_weights: ReferenceWeights, modules: Modules, reference: Evidence
) -> Iterator[Finding]:
    """A weight differs from the reference's by more than its format can explain.

    ## What it looks for
    Sampled rows of every weight, dequantised, beside the same rows of the reference; what a fold moved into the norm
    before is put back. Four numbers: is it all zero; the cosine of all values (four bits leave 0.99, two bits 0.9,
    other weights 0.0; reported below 0.7); the least-squares factor (reported outside 0.67 to 1.5); and for integer
    formats the median difference in steps (rounding 0.25, error compensation 0.4; reported above 0.75). For a weight
    that is another's, the same module of the other layers and its neighbours in the layer are tried, and the owner is
    named. GPTQ codes that are all those of plain rounding are an info: the compensation was not run. Healthy: a cosine
    of 0.89, a factor within 0.10 nats and 0.39 steps at the worst. Measured on 19,616 weights of 128 checkpoints, three
    bits and more: docs/calibration.md.

    ## Why output turns to garbage
    Layers that were exchanged, a shard of another revision, a tensor that was never written, a scale that was lost:
    each has the right names and shapes, and often a plausible distribution.

    ## What you will see
    Two neighbouring layers exchanged cost KL 0.07, a zero down_proj 0.08: both below healthy 4-bit noise. Larger
    mixtures give nonsense.

    ## How to tell it from its look-alikes
    A fine-tuned or merged model differs from its base everywhere: take the model that was quantised as the reference.
    Rotated weights (QuaRot, SpinQuant) have a cosine of 0 everywhere by design, as has another model. AWQ between up
    and down, and between v and o, scales rows and columns: the cosine stays high.

    ## How to confirm
    Dequantise the named tensor, subtract the reference's and divide by the step.

    ## How to repair it
    Quantise the module again from the reference; if owners are named, give the modules back their own tensors. Safe
    unattended only with the reference at hand, and it is: this rule has it.

    ## References
    vllm-project/llm-compressor#1765, NVIDIA/Model-Optimizer#1397
    """
    others: Modules = reference.get("modules")
    searched = 0
    by_name = {one.module.canonical: one for one in reference_weights.comparisons.values()}
    for compared in reference_weights.comparisons.values():
        kind = _kind(compared, by_name)
        if kind is None and compared.rounded is not None and compared.rounded > ALL_ROUNDED:
            yield _rounding(compared)
        if kind is None:
            continue
        held = None
        if kind == "other" and searched < MAX_SEARCHED:
            searched += 1
            held = next(owner(compared, _candidates(compared.module, others)), None)
        yield _finding(compared, kind, held)


@check("WGT228", confidence=Confidence.LIKELY, level=Level.FORWARD, symptom_of=("DIV903", "DIV902"))
def weights_differ_on_activations(forward_pass: ForwardPass) -> Iterator[Finding]:
    """The same in `degarble compare`: what the difference does to the module's output on the reference's input."""
    for one in forward_pass.misfits:
        is_beyond = one.cosine < MIN_COSINE or not MIN_GAIN < one.slope < MAX_GAIN or (one.z or 0.0) > MAX_OUTPUT_Z
        if one.norm is None and is_beyond:
            yield Finding(
                location=one.location,
                message=f"{one.module}: on the reference's input its output is {one.relative:.0%} away from the reference's "
                f"(cosine {one.cosine:.2f}), more than its format can explain",
                measured={"relative_error": round(one.relative, 4), "cosine_similarity": round(one.cosine, 4),
                          "gain": round(one.slope, 4), "z": None if one.z is None else round(one.z, 2)},
                bound={"cosine_min": MIN_COSINE, "gain_max": MAX_GAIN, "z_max": MAX_OUTPUT_Z},
                fix=Fix(id="requantize-from-reference", safe=True),
            )  # fmt: skip


def _kind(compared: Comparison, by_name: Mapping[str | None, Comparison]) -> str | None:
    if compared.is_zero:
        return "zero"
    if compared.cosine < MIN_COSINE:
        return "other"
    if not MIN_GAIN < compared.gain < MAX_GAIN and not MIN_GAIN < _joint_gain(compared, by_name) < MAX_GAIN:
        return "gain"
    is_off = compared.steps is not None and compared.steps > MAX_STEPS and compared.module.kind == "linear"
    return "steps" if is_off and (_leaf(compared) not in BEFORE or compared.cosine < SCALED_COSINE) else None


def _leaf(compared: Comparison) -> str:
    return (compared.module.canonical or "").rpartition(".")[2]


def _joint_gain(compared: Comparison, by_name: Mapping[str | None, Comparison]) -> float:
    """Of a module and the one that undoes its scaling, down_proj for up_proj."""
    parent, leaf = (compared.module.canonical or "").rpartition(".")[0], _leaf(compared)
    partner = BEFORE.get(leaf) or next((after for after, before in BEFORE.items() if before == leaf), None)
    other = by_name.get(f"{parent}.{partner}") if partner else None
    return compared.gain * other.gain if other is not None and other.gain > 0 else compared.gain


def _rounding(compared: Comparison) -> Finding:
    return Finding(
        location=compared.module.place(),
        message=f"{compared.module.any_part.name}: {compared.rounded or 0.0:.2%} of the codes are those of plain rounding: "
        "the error compensation of GPTQ changed nothing, or was never run",
        severity=Severity.INFO,
        measured={"share_rounded": compared.rounded},
        bound={"share_max": ALL_ROUNDED},
        fold="rounded",
    )


def _candidates(module: StoredModule, others: Modules) -> list[StoredModule]:
    """The same module in other layers, then modules beside it."""
    peers = [one for one in others.values() if one.template == module.template and one.canonical != module.canonical]
    parent = (module.canonical or "").rpartition(".")[0]
    beside = [one for one in others.values() if (one.canonical or "").rpartition(".")[0] == parent and parent]
    near = sorted(peers, key=lambda one: (abs((one.layer or 0) - (module.layer or 0)), one.layer or 0, one.expert or 0))
    return near[:256] + [one for one in beside if one.canonical != module.canonical]


def _finding(compared: Comparison, kind: str, held: StoredModule | None) -> Finding:
    name = compared.module.any_part.name
    texts = {
        "zero": "is all zero, the reference's is not",
        "other": f"has nothing to do with the reference's (cosine {compared.cosine:.2f}, expected above {MIN_COSINE})",
        "gain": f"is {compared.gain:.3g} times the reference's",
        "steps": f"is {compared.steps or 0.0:.2f} steps away from the reference's in the median, rounding leaves 0.25",
    }
    text = f"holds the weights of {held.name}" if held is not None else texts[kind]
    fold = "exchanged" if held is not None else kind
    return Finding(
        location=compared.module.place(),
        message=f"{name} {text}",
        measured={
            "cosine": round(compared.cosine, 4),
            "gain": round(compared.gain, 4),
            "median_steps": None if compared.steps is None else round(compared.steps, 3),
            "holds": held.name if held is not None else None,
        },
        bound={"cosine_min": MIN_COSINE, "gain_max": MAX_GAIN, "median_steps_max": MAX_STEPS},
        fix=Fix(id="requantize-from-reference", safe=True),
        fold=fold,
    )
