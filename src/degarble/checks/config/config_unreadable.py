"""CFG101: the config cannot be read, or not understood."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from degarble.architectures.interface import ArchitectureError
from degarble.checkpoint.interface import Source
from degarble.checkpoint.json_file import JsonFile
from degarble.errors import MalformedFile, TargetError
from degarble.evidence.model import ModelConfig
from degarble.evidence.store import Coverage
from degarble.evidence.weights import Shard
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check

MAX_RETRY_BYTES = 1 << 20
CORRECT_KEY = Fix(id="correct-config-key", safe=False)
RESTORE = Fix(id="restore-config", safe=False)
REENCODE = Fix(id="reencode-config", safe=True)

TYPES: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "model_type": ("a string", str),
    "architectures": ("a list of class names", list),
    "quantization_config": ("an object", dict),
    "rms_norm_eps": ("a number above 0", (int, float)),
    "layer_norm_eps": ("a number above 0", (int, float)),
    "max_position_embeddings": ("a whole number above 0", int),
    "num_experts_per_tok": ("a whole number above 0", int),
    "rope_theta": ("a number above 0", (int, float)),
    "rope_scaling": ("an object", dict),
    "rope_parameters": ("an object", dict),
    "hidden_act": ("a string", str),
    "tie_word_embeddings": ("true or false", bool),
}
"""Keys that every reader takes for granted once they are there; null stands for absent."""


@check("CFG101")
def config_unreadable(json_files: Mapping[str, JsonFile], source: Source) -> Iterator[Finding]:
    """config.json cannot be parsed, or lacks what every reader needs of it.

    ## What it looks for
    A file that is valid JSON in UTF-8 without a byte order mark, and an object. `model_type` and the sizes that the
    family needs, present, of the right type and within sane bounds. A family that degarble does not know is named as
    information, and the report then says that it is partial.

    ## Why output turns to garbage
    Mostly it does not: loaders stop. But some readers fall back on defaults for what they cannot read, and build
    another model around the same weights.

    ## What you will see
    JSONDecodeError, "Unrecognized model", "Should have a `model_type` key", a KeyError or a TypeError deep inside a
    model class; or a model of the wrong size whose weights do not fit.

    ## How to tell it from its look-alikes
    A readable config with the wrong numbers is CFG102 or CFG103. `NaN` and `Infinity` are no JSON, but Python writes
    and reads them: a warning. `params.json` beside `consolidated.safetensors` is Mistral's own form of config: named,
    not judged. A single weight file has no config, and none is missed; neither by adapters.

    ## How to confirm
    `python -m json.tool config.json`; `file config.json` shows the encoding.

    ## How to repair it
    Take the file from the source model and put the `quantization_config` of the broken one into it. Not safe
    unattended: the folder does not hold what was lost. A file in another encoding is written anew in UTF-8, which is.

    ## References
    RFC 8259, section 8.1 (encoding)
    """
    file = json_files.get("config.json")
    if file is None:
        return
    if file.problem is not None:
        yield _broken(file.problem, file.name, source)
    elif not isinstance(file.value, dict):
        yield _finding(
            Location(file=file.name),
            f"{file.name} holds a JSON {type(file.value).__name__}, not an object",
            "an object",
        )


@check("CFG101", severity=Severity.WARNING)
def config_absent(
    json_files: Mapping[str, JsonFile], shards: Mapping[str, Shard], source_kind: str, coverage: Coverage
) -> Iterator[Finding]:
    """A folder of safetensors without a config."""
    if source_kind in ("safetensors", "gguf") or "config.json" in json_files:
        return
    if any(shard.gguf is not None for shard in shards.values()) or "adapter_config.json" in json_files:
        return
    if "params.json" in json_files:
        coverage.add("params.json", "Mistral's own form of config: its tensors are not compared with it")
        yield Finding(
            location=Location(file="params.json"),
            message="the config is params.json, Mistral's own form: shapes and names are not compared with it",
            severity=Severity.INFO,
        )
        return
    yield _finding(Location(file="config.json"), "the folder holds weights and no config.json", "a config.json")


@check("CFG101", symptom_of=("CFG103",))
def config_key_unusable(
    model_config: ModelConfig, coverage: Coverage, architecture_error: ArchitectureError | None = None
) -> Iterator[Finding]:
    """A key is missing, ill-typed or out of bounds, or the family is not known."""
    ill_typed = dict(_ill_typed(model_config))
    for key, expected in ill_typed.items():
        yield _key(model_config, key, expected, _shown(_lookup(model_config, key)))
    if architecture_error is not None:
        if architecture_error.key not in ill_typed:
            yield _key(model_config, architecture_error.key, architecture_error.expected, architecture_error.found)
        return
    is_decoder = isinstance(model_config.values.get("architectures"), list)
    if is_decoder and model_config.gguf is None and _lookup(model_config, "model_type") is None:
        yield _key(model_config, "model_type", "the name of a model family", "nothing")
    try:
        is_known = model_config.architecture() is not None
    except ArchitectureError:
        return
    if not is_known:
        yield _unknown(model_config, coverage)


def _broken(problem: MalformedFile, name: str, source: Source) -> Finding:
    try:
        raw = source.read(name, 0, MAX_RETRY_BYTES)
    except TargetError:
        raw = b""
    severity, why = None, f"expected {problem.expected}, found {problem.found}"
    is_marked = raw[:3] == b"\xef\xbb\xbf" or raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        why = "it is UTF-16; JSON files are UTF-8"
    elif not is_marked and _is_python_json(raw):
        severity, why = Severity.WARNING, "it holds NaN or Infinity, which Python reads and strict parsers refuse"
    fix = REENCODE if is_marked else RESTORE
    return _finding(Location(file=name), f"{name} is no JSON: {why}", problem.expected, severity, fix)


def _is_python_json(raw: bytes) -> bool:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _ill_typed(config: ModelConfig) -> Iterator[tuple[str, str]]:
    for key, (expected, kind) in TYPES.items():
        value = _lookup(config, key)
        if value is None:
            continue
        is_wrong_bool = isinstance(value, bool) and kind is not bool
        is_negative = isinstance(value, (int, float)) and not isinstance(value, bool) and not value > 0
        if is_wrong_bool or not isinstance(value, kind) or is_negative:
            yield key, expected


def _lookup(config: ModelConfig, key: str) -> Any:
    """The language model's value, else the outer one."""
    inner = config.text.get(key)
    return config.values.get(key) if inner is None else inner


def _key(config: ModelConfig, key: str, expected: str, found: str) -> Finding:
    place = config.place(key)
    return Finding(
        location=place,
        message=f"{place.file}: {place.key} must be {expected}, and is {found}",
        measured={"found": found},
        bound={"expected": expected},
        fix=CORRECT_KEY,
    )


def _unknown(config: ModelConfig, coverage: Coverage) -> Finding:
    kind = _shown(_lookup(config, "model_type"))
    reason = "its parameters and shapes are not known; layers are compared with each other only"
    coverage.add(f"architecture {kind}", reason)
    return Finding(
        location=config.place("model_type"),
        message=f"unknown architecture {kind}: {reason}",
        severity=Severity.INFO,
        measured={"model_type": kind},
    )


def _shown(value: object) -> str:
    """A short, one-line picture of whatever the config holds."""
    if isinstance(value, (list, dict)):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    return repr(value)[:80]


def _finding(
    place: Location, message: str, expected: str, severity: Severity | None = None, fix: Fix | None = None
) -> Finding:
    return Finding(
        location=place,
        message=message,
        severity=severity,
        confidence=Confidence.PROVEN,
        bound={"expected": expected},
        fix=fix or RESTORE,
    )
