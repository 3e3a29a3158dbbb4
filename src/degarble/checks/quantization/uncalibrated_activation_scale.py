"""QNT119: activations are to be quantised with stored scales, and none are stored."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.input_scales import INPUT_SCALE, InputScales
from degarble.finding import Finding, Fix, Location
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration
from degarble.registry import check

FLAT_KEYS = ("activation_scheme", "activation_dynamic", "quant_algo")
"""Where methods with one scheme say it; compressed-tensors says it inside each group."""


@check("QNT119", symptom_of=("CKP101", "CKP102", "CKP103", "CKP105", "CFG110"))
def uncalibrated_activation_scale(input_scales: InputScales, declaration: Declaration) -> Iterator[Finding]:
    """The config declares static activation scales, and no module carries any.

    ## What it looks for
    A scheme whose activations are quantised with a scale from calibration (`activation_scheme: static`, `dynamic:
    false`, NVFP4's global input scale) against the stored input scales. The rule speaks when none of the routed
    experts, or none of the other modules, has one: then calibration never ran or its result was not saved.

    ## Why output turns to garbage
    The engine allocates one scale for each layer and fills it from the file. Nothing is there, so activations are
    divided by whatever the slot held: by zero, by one (FP8 then clips everything beyond 448), or by old memory.

    ## What you will see
    One repeated token or token soup from the first prompt on, often without any warning. With scales of one: fluent
    text that goes wrong wherever activations are large.

    ## How to tell it from its look-alikes
    Single modules without an input scale are QNT101, single experts QNT111. A dynamic scheme needs no stored scale, and
    weight-only checkpoints have none. Scales of the KV cache are QNT117.

    ## How to confirm
    Look for input scales in the shard header; set the scheme to dynamic in a copy of the config and serve that.

    ## How to repair it
    Calibrate again and store the scales. Declaring the activations dynamic is exact for FP8 and INT8 if the engine
    supports it, but changes which kernel runs: not safe unattended.

    ## References
    vllm-project/vllm#54189, vllm-project/vllm#45212
    """
    if input_scales.uncalibrated:
        yield _finding(declaration, input_scales)


def static_key(declaration: Declaration) -> str:
    """The dotted key that makes activations static, or that of the whole config."""
    base = f"{declaration.key}." if declaration.key else ""
    for key in FLAT_KEYS[:2]:
        if key in declaration.raw:
            return base + key
    groups = declaration.raw.get("config_groups")
    for name, group in groups.items() if isinstance(groups, dict) else ():
        inputs = group.get("input_activations") if isinstance(group, dict) else None
        if isinstance(inputs, dict) and inputs.get("dynamic") is not True:
            return f"{base}config_groups.{name}.input_activations"
    return base + FLAT_KEYS[2] if FLAT_KEYS[2] in declaration.raw else declaration.key


def _finding(declaration: Declaration, scales: InputScales) -> Finding:
    """One for all modules: the config is where they agree."""
    key, module = static_key(declaration), scales.uncalibrated[0]
    places = tuple(_place(declaration, key, lacking) for lacking in scales.uncalibrated)
    scheme = declaration.scheme_for(module.name)
    kind = scheme.activations if scheme is not None and scheme.activations else "static"
    number = len(scales.uncalibrated)
    return Finding(
        location=places[0],
        places=places if len(places) > 1 else (),
        message=f"{key} asks for {kind} activation scales, and {number} modules that need one have none, such as "
        f"{module.name} (expected {module.suffix_of(INPUT_SCALE)} beside {module.any_part.name})",
        measured={"modules_without_input_scale": number, "modules_in_need": scales.num_needed},
        bound={"modules_without_input_scale": 0},
        fix=Fix(id="calibrate-activations", safe=False),
    )


def _place(declaration: Declaration, key: str, module: StoredModule) -> Location:
    return module.place(file=declaration.file, key=key)
