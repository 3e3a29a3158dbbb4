"""Evidence for known issues of engines: what is known about this checkpoint and its deployment, as flat facts.

Names and types of the facts are those of `engines/issue_conditions.py`. A fact that headers and config do not tell is
left out, and no condition on it holds: what is not known raises no alarm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from degarble.architectures.interface import Architecture
from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.index import ShardIndex
from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.json_file import JsonFile
from degarble.engines.known_issues import KnownIssues, load_known_issues
from degarble.errors import EvidenceUnjudged
from degarble.evidence.act_orders import ActOrder
from degarble.evidence.modules import Modules
from degarble.evidence.skips import Skips
from degarble.evidence.store import Settings, provides
from degarble.evidence.stored_facts import stored_facts
from degarble.methods.interface import Declaration

Facts = dict[str, object]

HALF_NAMES: Mapping[str, str] = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32"}


@provides("known_issues")
def known_issues(settings: Settings) -> KnownIssues:
    """The list in the package, or the one that the user gave."""
    path = Path(settings.known_issues) if settings.known_issues else None
    try:
        return load_known_issues(path)
    except OSError as error:
        raise EvidenceUnjudged(f"{path}: {error.strerror or error}") from None


@provides("engine_facts")
def engine_facts(
    modules: Modules,
    tensors: Mapping[str, TensorInfo],
    kv_scales: Mapping[str, str],
    json_files: Mapping[str, JsonFile],
    files: Mapping[str, int],
    settings: Settings,
    declaration: Declaration | None = None,
    skips: Skips | None = None,
    act_orders: Sequence[ActOrder] | None = None,
    architecture: Architecture | None = None,
    index: ShardIndex | None = None,
    gguf: GgufFile | None = None,
) -> Mapping[str, object]:
    """Every fact that headers, small files and the user's options tell."""
    facts: Facts = {
        **stored_facts(modules, declaration, architecture),
        **_model_facts(json_files, architecture),
        **_deployment_facts(settings),
    }
    if declaration is not None:
        facts |= _declared_facts(declaration, act_orders or ())
        facts |= _kv_facts(declaration, kv_scales, tensors)
    if skips is not None:
        facts |= _skip_facts(skips)
    if index is not None:
        facts["index_names_missing_shard"] = any(shard not in files for shard in index.shards)
        absent = index.weight_map.keys() - tensors.keys()
        facts["index_names_missing_tensor"] = any(index.weight_map[name] in files for name in absent)
    pre = gguf.text("tokenizer.ggml.pre") if gguf is not None else None
    if pre is not None:
        facts["tokenizer_pre"] = pre
    return facts


def _declared_facts(declaration: Declaration, orders: Sequence[ActOrder]) -> Facts:
    scheme, raw = declaration.default, declaration.raw
    facts: Facts = {
        "actorder_without_groups": any(not order.has_groups for order in orders),
        "per_module_overrides": any(rule.scheme is not None for rule in declaration.rules),
    }
    label = raw.get("checkpoint_format", raw.get("format"))
    if isinstance(label, str):
        facts["checkpoint_format"] = label
    if scheme is not None:
        facts["desc_act"] = scheme.act_order == "group"
        facts["weight_only"] = scheme.activations is None
        if scheme.symmetric is not None:
            facts["symmetric"] = scheme.symmetric
    return facts


def _kv_facts(declaration: Declaration, kv_scales: Mapping[str, str], tensors: Mapping[str, TensorInfo]) -> Facts:
    facts: Facts = {"kv_cache_quantized": declaration.kv_cache is not None}
    if declaration.kv_cache is not None:
        facts["kv_scales_present"] = bool(kv_scales)
        facts["kv_scales_per_head"] = any(
            num_elements(tensors[name].shape) > 1 for name in kv_scales if name in tensors
        )
    return facts


def _skip_facts(skips: Skips) -> Facts:
    entries = frozenset(entry for listed in skips.lists for entry in listed.entries)
    return {"skip_entries": entries, "relative_skip_entries": any(_needs_suffix_rule(skips))}


def _needs_suffix_rule(skips: Skips) -> Iterator[bool]:
    """Whether a module is stored plain that some readings of the list spare, and readers of whole names do not."""
    whole = [view for view in skips.views if view.reading.rule.startswith("exact")]
    looser = [view for view in skips.views if view not in whole]
    declaration = skips.declaration
    for name, members in skips.stands_for.items():
        if whole and not members[0].form.is_quantized and not declaration.is_implicitly_plain(name):
            yield any(name in view.listed for view in looser) and all(name not in view.listed for view in whole)


def _model_facts(json_files: Mapping[str, JsonFile], architecture: Architecture | None) -> Facts:
    config = json_files["config.json"].value if "config.json" in json_files else None
    levels = [config, *config.values()] if isinstance(config, dict) else []
    levels = [level for level in levels if isinstance(level, dict)]
    facts: Facts = {"model_type": frozenset(_texts(level.get("model_type") for level in levels))}
    ties = {level["tie_word_embeddings"] for level in levels if isinstance(level.get("tie_word_embeddings"), bool)}
    facts["tie_flags_disagree"] = len(ties) > 1
    if architecture is not None:
        facts["model_type"] = frozenset({architecture.model_type, *_texts(level.get("model_type") for level in levels)})
        rope = architecture.config.get("rope_scaling") or architecture.config.get("rope_parameters")
        if isinstance(rope, Mapping):
            facts["rope_type"] = frozenset(_texts((rope.get("rope_type"), rope.get("type"))))
    tokenizer = json_files["tokenizer_config.json"].value if "tokenizer_config.json" in json_files else None
    if isinstance(tokenizer, dict) and isinstance(tokenizer.get("tokenizer_class"), str):
        facts["tokenizer_class"] = tokenizer["tokenizer_class"]
    return facts


def _texts(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)]


def _deployment_facts(settings: Settings) -> Facts:
    facts: Facts = {}
    if settings.dtype is not None:
        name = settings.dtype.lower().removeprefix("torch.")
        facts["dtype"] = HALF_NAMES.get(name, name)
    if settings.tensor_parallel is not None:
        facts["tp"] = settings.tensor_parallel
    if settings.expert_parallel is not None:
        facts["ep"] = settings.expert_parallel
    return facts
