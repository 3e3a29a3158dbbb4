"""Evidence from what is there and what is not: one config key whose other value would make both come out right.

`attention_bias: true` over a model without biases, or the wrong number of leading dense layers, looks like dozens of
missing and unknown tensors. If a single switch settles all of them, they are one finding.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from degarble.architectures.family import find_family
from degarble.architectures.interface import Architecture, ArchitectureError
from degarble.errors import EvidenceMissing
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.parameters import Parameters, compare
from degarble.evidence.store import provides

LAYER_KEYS = ("moe_layer_freq", "decoder_sparse_step", "full_attention_interval", "sliding_window_pattern")
"""Whole numbers that decide in which layers something is."""

MAX_VALUE = 8
MAX_TRIALS = 48
MAX_MODULES = 20_000
"""Each trial compares the whole disk; above this the answer is not worth the wait."""


class PresenceKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key, as the config writes it, and the value under which nothing is missing or unknown."""

    key: str
    declared: object
    proven: object


@provides("presence_key")
def presence_key(modules: Modules, parameters: Parameters, model_config: ModelConfig) -> PresenceKey:
    """Try the switches of the family, one at a time."""
    if len(modules) > MAX_MODULES or not (parameters.missing or parameters.unknown):
        raise EvidenceMissing("nothing is missing or unknown")
    for number, (key, value) in enumerate(_switches(model_config, parameters.architecture)):
        if number >= MAX_TRIALS:
            break
        try:
            redrawn = model_config.with_value(key, value).architecture()
        except ArchitectureError:
            continue
        if redrawn is None:
            continue
        outcome = compare(modules, redrawn)
        if not outcome.missing and not outcome.unknown and (outcome.head is None) == (parameters.head is None):
            return PresenceKey(key=key, declared=model_config.text.get(key), proven=value)
    raise EvidenceMissing("no single key explains what is missing")


def _switches(config: ModelConfig, architecture: Architecture) -> Iterator[tuple[str, object]]:
    family = find_family(architecture.model_type)
    for row in family.keys if family is not None else ():
        current = architecture.config.get(row.name)
        key = next((name for name in (row.name, *row.aliases) if name in config.text), row.name)
        if row.kind == "bool" and row.name != "tie_word_embeddings":
            yield key, not current
        elif row.kind == "count" or row.name in LAYER_KEYS:
            yield from ((key, value) for value in range(MAX_VALUE + 1) if value != current)
