"""CFG107: rotary position settings are incomplete, or were left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from degarble.architectures.interface import Architecture
from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.json_file import JsonFile
from degarble.checks.config.rope_types import faults, objects, rope_type
from degarble.evidence.model import ModelConfig
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check

OBJECTS = ("rope_parameters", "rope_scaling")
"""transformers 5 writes the first (with rope_theta in it), everything older the second."""

THETA_SINCE = (4, 33)
"""transformers versions before it wrote no rope_theta for Llama."""

RESTORE = Fix(id="restore-rope-settings", safe=False)
GGUF_SCALING = {"linear", "yarn"}
GGUF_WITHOUT_BASE = ("gemma", "gemma2")
"""Converters write no `rope.freq_base` for these: the default is right for them."""


@check("CFG107", symptom_of=("CFG101",))
def rope_settings_lost(
    model_config: ModelConfig, is_gguf: bool, architecture: Architecture | None = None
) -> Iterator[Finding]:
    """The config's rotary position settings are incomplete for the type they name, or the base frequency is gone.

    ## What it looks for
    Each rotary type with the keys it cannot do without: `factor` (linear, dynamic, yarn), the original context length
    (yarn, llama3, longrope), `low_freq_factor` and `high_freq_factor` (llama3), `short_factor` and `long_factor` with a
    number for each rotated pair (longrope), `mrope_section` that adds up to the pairs of a head. Both spellings are
    read: `rope_scaling` beside `rope_theta`, and `rope_parameters` of transformers 5; if both are there they must say
    the same. In GGUF: `rope.scaling.*` complete, `rope_freqs` or `rope_factors` where a config.json beside the file
    asks for them, and `rope.freq_base`.

    ## Why output turns to garbage
    Readers fall back on a default for what they miss: base 10000, no scaling. Attention then sees distances that were
    never trained. Short prompts survive, since near distances change little.

    ## What you will see
    Fine answers to short questions; repetition or drift after some thousand tokens. With scaling added or lost an
    immediate end of turn (perplexity 59.99 against 8.57 on SmolLM2), with the base at 10000 instead of 100000 a small
    loss that nobody notices (9.08).

    ## How to tell it from its look-alikes
    A missing `rope_theta` is legal in configs written before transformers 4.33, when Llama had no such key; so is it in
    GGUF files of Gemma, and of the first Llamas. `type: mrope` beside `rope_type: default` is how Qwen2-VL is written.
    A base other than the family's usual one is information: fine-tunes for long context change it. Settings that are
    complete and differ from the source model's are CFG109.

    ## How to confirm
    Compare the rotary keys with those of the source model's config.json.

    ## How to repair it
    Copy the keys from the source model. With a reference the copy is exact; the folder alone does not hold the values,
    so it is not safe unattended. A GGUF has to be converted again.

    ## References
    ggml-org/llama.cpp#24820, ggml-org/llama.cpp#8676, ikawrakow/ik_llama.cpp#402, lablup/mlxcel#1355,
    NVIDIA/TensorRT-LLM#1676, JIA-Lab-research/LongLoRA#181, vllm-project/llm-compressor#81
    """
    if is_gguf:
        return
    text = model_config.text
    there = {name: text[name] for name in OBJECTS if isinstance(text.get(name), dict)}
    half = _rotary_half(model_config, architecture)
    for name, settings in there.items():
        for below, one in objects(settings):
            for fault in faults(one, text, half):
                place = model_config.place(name)
                key = f"{place.key}{below}.{fault.key}"
                yield _finding(
                    Location(file=place.file, key=key),
                    f"{place.file}: {key}: {fault.message}",
                    Severity.WARNING if fault.is_unknown else None,
                )
    yield from _spellings(model_config, there)
    yield from _base(model_config, there, architecture)


@check("CFG107")
def rope_metadata_lost(
    gguf: GgufFile, tensors: Mapping[str, TensorInfo], json_files: Mapping[str, JsonFile]
) -> Iterator[Finding]:
    """The GGUF half: metadata pairs and factor tensors."""
    kind = gguf.architecture
    if kind is None:
        return
    scaling = gguf.text(f"{kind}.rope.scaling.type")
    key = f"{kind}.rope.scaling.factor"
    if scaling in GGUF_SCALING and key not in gguf.metadata and f"{kind}.rope.scale_linear" not in gguf.metadata:
        yield _finding(Location(file=gguf.file, key=key), f"{key} is not there, and the scaling type is {scaling}")
    if scaling == "yarn" and f"{kind}.rope.scaling.original_context_length" not in gguf.metadata:
        key = f"{kind}.rope.scaling.original_context_length"
        yield _finding(Location(file=gguf.file, key=key), f"{key} is not there, and the scaling type is yarn")
    yield from _factors(gguf, kind, tensors)
    yield from _freq_base(gguf, kind)
    yield from _against_config(gguf, kind, tensors, json_files)


def _rotary_half(config: ModelConfig, architecture: Architecture | None) -> int | None:
    if architecture is None:
        return None
    width = architecture.config.get("qk_rope_head_dim") or architecture.config.get("head_dim")
    share = config.text.get("partial_rotary_factor", architecture.rope.get("partial_rotary_factor", 1.0))
    settings = config.text.get("rope_parameters")
    if isinstance(settings, dict):
        share = settings.get("partial_rotary_factor", share)
    if isinstance(width, bool) or not isinstance(width, int) or isinstance(share, bool):
        return None
    return int(width * share) // 2 if isinstance(share, (int, float)) and 0 < share <= 1 else None


def _spellings(config: ModelConfig, there: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Two places for one fact."""
    new, old = there.get("rope_parameters", {}), there.get("rope_scaling", {})
    both = {key for key in new if key in old and new[key] != old[key]} - {"type", "rope_type"}
    if new and old and rope_type(new) != rope_type(old):
        both.add("rope_type")
    for key in sorted(both):
        place = config.place("rope_scaling")
        yield _finding(
            Location(file=place.file, key=f"{place.key}.{key}"),
            f"{place.file}: rope_scaling and rope_parameters contradict each other in {key}",
            Severity.WARNING,
        )
    theta = config.text.get("rope_theta")
    if theta is not None and "rope_theta" in new and new["rope_theta"] != theta:
        place = config.place("rope_theta")
        yield _finding(
            place,
            f"{place.file}: {place.key} is {theta}, rope_parameters.rope_theta {new['rope_theta']}",
            Severity.WARNING,
        )


def _base(
    config: ModelConfig, there: Mapping[str, Mapping[str, Any]], architecture: Architecture | None
) -> Iterator[Finding]:
    thetas = [one.get("rope_theta") for settings in there.values() for _, one in objects(settings)]
    thetas = [value for value in (config.text.get("rope_theta"), *thetas) if value is not None]
    default = architecture.rope.get("default_theta") if architecture is not None else None
    if not thetas:
        if default is not None and (default != 10_000 or _writes_theta(config)):
            name = "rope_parameters" if "rope_parameters" in there else "rope_theta"
            place = config.place(name)
            key = f"{place.key}.rope_theta" if name == "rope_parameters" else place.key
            yield _finding(
                Location(file=place.file, key=key),
                f"{place.file}: rope_theta is nowhere: readers take {default:g}, and nothing says that the model does",
                Severity.WARNING,
                Confidence.LIKELY,
            )
        return
    for value in thetas:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            yield _finding(
                Location(file=config.file, key=config.places.get("rope_theta", "rope_theta")),
                f"rope_theta must be a number above 0, and is {str(value)[:40]!r}",
            )
        elif default is not None and default != 10_000 and value != default and len(thetas) == 1:
            yield _finding(
                config.place("rope_theta"),
                f"rope_theta is {value:g}; the family's own is {default:g}",
                Severity.INFO,
            )


def _writes_theta(config: ModelConfig) -> bool:
    """Whether the tool that wrote this config writes rope_theta for every model."""
    version = config.values.get("transformers_version")
    if not isinstance(version, str):
        return "rope_parameters" in config.text
    numbers = version.split(".")[:2]
    if len(numbers) < 2 or not all(part.isascii() and part.isdigit() and len(part) < 5 for part in numbers):
        return False
    return (int(numbers[0]), int(numbers[1])) >= THETA_SINCE


def _factors(gguf: GgufFile, kind: str, tensors: Mapping[str, TensorInfo]) -> Iterator[Finding]:
    """Long and short factors come as a pair, and Phi-3 with a stretched context cannot do without."""
    pair = ("rope_factors_long.weight", "rope_factors_short.weight")
    there = [name for name in pair if name in tensors]
    context = gguf.metadata.get(f"{kind}.context_length")
    original = gguf.metadata.get(f"{kind}.rope.scaling.original_context_length")
    is_stretched = kind == "phi3" and isinstance(context, int) and isinstance(original, int) and context > original
    if len(there) == 1 or (is_stretched and not there):
        lost = next(name for name in pair if name not in tensors)
        yield _finding(Location(file=gguf.file, tensor=lost), f"{lost} is not stored: long-context factors are lost")


def _freq_base(gguf: GgufFile, kind: str) -> Iterator[Finding]:
    key = f"{kind}.rope.freq_base"
    has_rope = any(name.startswith(f"{kind}.rope.") for name in gguf.metadata)
    context = gguf.metadata.get(f"{kind}.context_length")
    is_first_llama = (
        kind == "llama"
        and gguf.text("tokenizer.ggml.model") == "llama"
        and isinstance(context, int)
        and context <= 4096
    )
    if key not in gguf.metadata and has_rope and kind not in GGUF_WITHOUT_BASE and not is_first_llama:
        yield _finding(
            Location(file=gguf.file, key=key),
            f"{key} is not there: readers take 10000, and nothing says that the model does",
            Severity.WARNING,
            Confidence.LIKELY,
        )


def _against_config(
    gguf: GgufFile, kind: str, tensors: Mapping[str, TensorInfo], json_files: Mapping[str, JsonFile]
) -> Iterator[Finding]:
    """A config.json beside the file, as converters leave it, tells what should have been carried over."""
    file = json_files.get("config.json")
    if file is None or not isinstance(file.value, dict):
        return
    settings = next((file.value[name] for name in OBJECTS if isinstance(file.value.get(name), dict)), None)
    wanted = rope_type(settings) if settings is not None else None
    if wanted == "llama3" and "rope_freqs.weight" not in tensors:
        place = Location(file=gguf.file, tensor="rope_freqs.weight")
        yield _finding(place, "config.json has llama3 scaling, and rope_freqs.weight is not stored")
    if wanted in ("longrope", "su") and "rope_factors_long.weight" not in tensors:
        place = Location(file=gguf.file, tensor="rope_factors_long.weight")
        yield _finding(place, f"config.json has {wanted} scaling, and rope_factors_long.weight is not stored")
    if wanted in GGUF_SCALING and f"{kind}.rope.scaling.type" not in gguf.metadata:
        place = Location(file=gguf.file, key=f"{kind}.rope.scaling.type")
        yield _finding(place, f"config.json has {wanted} scaling, and the GGUF metadata has none")


def _finding(
    place: Location, message: str, severity: Severity | None = None, confidence: Confidence | None = None
) -> Finding:
    return Finding(location=place, message=message, severity=severity, confidence=confidence, fix=RESTORE)
