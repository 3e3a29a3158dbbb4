"""A key of the model's config, or of GGUF metadata, gets the value that the tensors prove."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from degarble.evidence.model import ModelConfig
from degarble.finding import Location
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job

DTYPE_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
DTYPE_KEYS = ("dtype", "torch_dtype")


@repair("correct-config-key")
def correct_config_key(job: Job) -> None:
    """Write the proven value under the key that the finding names.

    ## What it changes
    One number, switch or dtype of config.json, at the level where the language model reads it, or one GGUF metadata
    pair.

    ## Why there is one answer
    For sizes (CFG102) all tensors that depend on the key agree, and no other value gives their shapes. For dtypes
    (CFG108) the stored type of most plain weights is what is declared.

    ## What it cannot do
    A layer count (CFG103) or a switch (CFG104) that fits what is stored is a judgement: the stored part may be what is
    wrong. A key that is missing or of the wrong type (CFG101) is taken from a reference, except for a number written as
    text.
    """
    solve = SOLVERS.get(job.finding.rule)
    if solve is None:
        raise CannotRepair(f"no value is known for what {job.finding.rule} names")
    solve(job)


def write_proven(job: Job, place: Location, value: Any, what: str) -> None:
    """Set a config key or a metadata pair at a finding's place."""
    if place.file is None or place.key is None:
        raise CannotRepair("the finding names no key")
    if place.file.endswith(".gguf"):
        job.set_metadata(place.file, place.key, value, None, what)
    else:
        job.set_key(place.file, place.key, value, what)


def _size(job: Job) -> None:
    bound = job.finding.bound
    value = bound.get("value", bound.get("rows"))
    if isinstance(value, bool) or not isinstance(value, int):
        raise CannotRepair("the tensors do not agree on a value")
    write_proven(job, _config_place(job), value, "proven by the shapes")


def _layer_count(job: Job) -> None:
    found, declared = job.finding.measured.get("layers_on_disk"), job.finding.bound.get("layers")
    if not isinstance(found, int) or not isinstance(declared, int):
        raise CannotRepair("the finding gives no number of layers")
    place = _config_place(job)
    gguf = job.evidence.find("gguf")
    written = gguf.metadata.get(place.key) if gguf is not None and place.key else declared
    if not isinstance(written, int):
        raise CannotRepair(f"{place.key} is no number")
    job.judge("headers do not tell whether layers were lost or the number is wrong")
    write_proven(job, place, written + found - declared, "as many as are stored")


def _switch(job: Job) -> None:
    presence = job.need("presence_key")
    config: ModelConfig = job.need("model_config")
    job.judge("the stored tensors fit this value, but they may be what is wrong")
    write_proven(job, config.place(presence.key), presence.proven, "what is stored is complete with it")


def _dtype(job: Job) -> None:
    """The type of most plain weights, in every spelling and at every level that contradicts it."""
    config: ModelConfig = job.need("model_config")
    stored = job.finding.measured.get("stored") or _agreeing(job, config)
    name = DTYPE_NAMES.get(str(stored))
    if name is None:
        raise CannotRepair(f"{stored} is no dtype that a config declares")
    levels = [(config.values, ""), (config.text, _prefix(config))] if config.text is not config.values else []
    for values, prefix in levels or [(config.values, "")]:
        for key in DTYPE_KEYS:
            if isinstance(values.get(key), str):
                torch = "torch." if values[key].startswith("torch.") else ""
                job.set_key(config.file, f"{prefix}{key}", f"{torch}{name}", "as most plain weights are stored")


def _agreeing(job: Job, config: ModelConfig) -> str | None:
    """Where two spellings contradict each other: the one that the embedding bears out."""
    embedding = job.modules.by_canonical.get("model.embed_tokens")
    stored = embedding.payload.dtype if embedding is not None and embedding.payload is not None else ""
    said = job.finding.measured.get("dtypes")
    return stored if isinstance(said, list) and stored in said else None


def _prefix(config: ModelConfig) -> str:
    dotted = next((place for key, place in config.places.items() if place != key), "")
    return dotted.rpartition(".")[0] + "." if "." in dotted else ""


def _ill_typed(job: Job) -> None:
    place = _config_place(job)
    value = job.value(place.file or "", place.key or "")
    if not isinstance(value, str) or not (value.isascii() and value.isdigit() and len(value) < 12):
        raise job.cannot(f"{place.key} has to be taken from the source model", files=[place.file or ""])
    job.judge("a number written as text is taken to mean that number")
    write_proven(job, place, int(value), "a number instead of text")


def _config_place(job: Job) -> Location:
    """The place in the config or in the metadata."""
    config: ModelConfig = job.need("model_config")
    return next((p for p in job.places if p.key and p.file == config.file), job.finding.location)


SOLVERS: Mapping[str, Callable[[Job], None]] = {
    "CFG101": _ill_typed,
    "CFG102": _size,
    "CFG103": _layer_count,
    "CFG104": _switch,
    "CFG108": _dtype,
}
