"""From what the user named to a model that runs."""

from __future__ import annotations

from functools import cache

import torch

from degarble.errors import EvidenceMissing, TargetError
from degarble.evidence import Evidence, Settings
from degarble.evidence.model import ModelConfig
from degarble.registry import walk
from degarble.target import open_target
from degarble_engine import models
from degarble_engine.models.causal_lm import CausalLM
from degarble_engine.models.processor import has_bf16_units
from degarble_engine.models.weight_store import WeightStore
from degarble_engine.numerics.skeleton import model_config
from degarble_engine.numerics.streamed_weights import StreamedWeights


@cache
def families() -> dict[str, type[CausalLM]]:
    """`model_type` -> the definition that is for it, found by walking the package."""
    found: dict[str, type[CausalLM]] = {}
    for module in walk(models):
        for member in vars(module).values():
            if isinstance(member, type) and issubclass(member, CausalLM) and member.__module__ == module.__name__:
                found |= dict.fromkeys(member.model_types, member)
    return found


def load_model(
    evidence: Evidence, dtype: torch.dtype, *, held_as: torch.dtype | None = None, **options: bool | str
) -> tuple[CausalLM, WeightStore]:
    """The model and the account of its memory; `held_as` and `options` are those of WeightStore.

    Raises TargetError for a family without a definition here, and where a weight is missing or of another shape.
    """
    try:
        config: ModelConfig = evidence.get("model_config")
        weights = StreamedWeights(evidence)
    except EvidenceMissing as missing:
        raise TargetError(f"{evidence.get('source').path}: cannot be served: {missing}") from None
    kind = str(config.text.get("model_type"))
    definition = families().get(kind)
    if definition is None:
        known = ", ".join(sorted(families()))
        raise TargetError(f"{config.file}: model_type {kind!r} has no definition in the engine, which has {known}")
    if str(options.get("device", "cpu")).startswith("cuda") and not torch.cuda.is_available():
        raise TargetError("--device cuda: torch finds no such device here")
    store = WeightStore(weights, dtype, held_as=held_as, **options)  # type: ignore[arg-type]
    return definition(model_config(dict(config.text), config.file), store), store


def load_as_stored(evidence: Evidence, stored: torch.dtype, **options: bool | str) -> tuple[CausalLM, WeightStore]:
    """Weights and cache in the precision of the file; sums in fp32 where the processor has no units for that precision."""
    is_elsewhere = options.get("device", "cpu") != "cpu"
    is_native = is_elsewhere or stored == torch.float32 or (stored == torch.bfloat16 and has_bf16_units())
    return load_model(evidence, stored if is_native else torch.float32, held_as=stored, **options)


def open_model(target: str, dtype: torch.dtype = torch.float32, **options: bool | str) -> CausalLM:
    """A model of its own, without the rest of an engine."""
    return load_model(Evidence(open_target(target), Settings()), dtype, **options)[0]
