"""ENG701: which tensor- and expert-parallel degrees this checkpoint allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.architectures.interface import Architecture
from degarble.engines.parallel import (
    DEGREES,
    AttentionHeads,
    ParallelLayer,
    expert_parallel_degrees,
    role_of,
    tensor_parallel_obstacles,
)
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.store import Settings
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

PAD = Fix(id="pad-before-quantizing", safe=False)

PARTS = {"gate_up_proj": 2}
"""Layers stored as several equal parts, each cut by itself."""

EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts")

Layer = tuple[ParallelLayer, list[StoredModule]]
"""What is cut, and all modules that are alike; it has the name of the first."""


@check("ENG701", severity=Severity.INFO)
def parallel_degree_impossible(
    modules: Modules,
    settings: Settings,
    is_gguf: bool,
    architecture: Architecture | None = None,
    model_config: ModelConfig | None = None,
) -> Iterator[Finding]:
    """Some tensor- or expert-parallel degrees cannot divide this checkpoint.

    ## What it looks for
    For every degree from 2 to 64: whether attention heads, KV heads, and the columns and rows of every linear divide
    evenly among the ranks, and whether each share is a whole number of quantisation groups or blocks. Without `--tp`
    and `--ep` the largest possible degree is an info, with the module that limits it. A degree that was asked for and
    is impossible is a warning, and an error if `--engine` is named too.

    ## Why output turns to garbage
    A cut through a group leaves one scale to two ranks. Engines refuse, and the usual way out (lowering
    `intermediate_size` in the config until it divides) silently drops columns.

    ## What you will see
    "The input size is not aligned with the quantized weight shape", or "output_size is not divisible by block_n" while
    loading with more than one GPU. After an edited config: fluent text of a worse model.

    ## How to tell it from its look-alikes
    Vocabularies are padded by engines and not counted. Fewer KV heads than ranks are repeated, which is legal.
    llama.cpp splits GGUF files in its own way: not judged. One scale per row or tensor is hurt by no cut.

    ## How to confirm
    Divide the named number by the degree, and the share by the group or block size.

    ## How to repair it
    Use the largest possible degree with pipeline parallelism on top, serve experts by expert parallelism, or pad with
    zeros *before* quantising (29568 inputs to 29696 allow 8 ranks). Padding changes the checkpoint: not unattended.

    ## References
    vllm-project/vllm#21695, vllm-project/vllm#1258, vllm-project/vllm#54178, sgl-project/sglang#3345
    """
    if is_gguf:
        return
    heads = _heads(architecture)
    layers = list(_layers(modules, whole_experts=(settings.expert_parallel or 1) > 1))
    if settings.tensor_parallel is not None and settings.tensor_parallel > 1:
        place = model_config.place("num_attention_heads") if model_config is not None else Location()
        yield from _asked(layers, heads, settings, place)
    elif settings.tensor_parallel is None:
        yield from _table(layers, heads, _num_experts(architecture))
    yield from _asked_experts(architecture, settings)


def _layers(modules: Modules, *, whole_experts: bool) -> Iterator[Layer]:
    for example, members in modules.classes():
        shape, scheme = example.form.shape, example.form.scheme
        if example.kind != "linear" or shape is None or len(shape) < 2 or min(shape) < 1:
            continue
        is_expert = example.expert is not None or ".experts." in example.template
        if is_expert and whole_experts:
            continue
        layer = ParallelLayer(
            name=example.name,
            out_features=shape[-2],
            in_features=shape[-1],
            role=role_of(example.template),
            group_size=scheme.group_size if scheme is not None else None,
            block_shape=scheme.block_shape if scheme is not None else None,
            num_parts=PARTS.get(example.template.rpartition(".")[2], 1),
        )
        yield layer, members


def _heads(architecture: Architecture | None) -> AttentionHeads | None:
    if architecture is None:
        return None
    query, kv = (architecture.config.get(key) for key in ("num_attention_heads", "num_key_value_heads"))
    if not _is_count(query):
        return None
    return AttentionHeads(num_heads=_count(query), num_kv_heads=_count(kv) if _is_count(kv) else _count(query))


def _num_experts(architecture: Architecture | None) -> int:
    if architecture is None:
        return 0
    values = (architecture.config.get(key) for key in EXPERT_COUNTS)
    return next((_count(value) for value in values if _is_count(value)), 0)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _count(value: object) -> int:
    assert isinstance(value, int)
    return value


def _table(layers: Sequence[Layer], heads: AttentionHeads | None, num_experts: int) -> Iterator[Finding]:
    """One info: the largest degree that works, and what stands in the way of the next."""
    obstacles = tensor_parallel_obstacles([layer for layer, _ in layers], heads)
    best = max((tp for tp, reasons in obstacles.items() if not reasons), default=1)
    blocked = next((tp for tp in DEGREES if obstacles[tp]), None)
    if blocked is None or not layers:
        return
    reason = obstacles[blocked][0]
    limiting = next((members[0] for layer, members in layers if reason.startswith(f"{layer.name}:")), None)
    measured: dict[str, str | int | float | list[str | int | float | bool | None] | None] = {
        f"tp {tp}": reasons[0] if reasons else "possible" for tp, reasons in obstacles.items()
    }
    measured["largest_tensor_parallel"] = best
    if num_experts:
        measured["expert_parallel"] = list(expert_parallel_degrees(num_experts))
    yield Finding(
        location=limiting.place() if limiting is not None else Location(),
        message=f"the largest tensor-parallel degree is {best}; {blocked} is impossible: {reason}",
        measured=measured,
        bound={"remainder": 0},
        fold="table",
    )


def _asked(
    layers: Sequence[Layer], heads: AttentionHeads | None, settings: Settings, place: Location
) -> Iterator[Finding]:
    degree = settings.tensor_parallel or 1
    severity = Severity.ERROR if settings.engine is not None else Severity.WARNING
    for reason in heads.obstacles(degree) if heads is not None else ():
        yield _impossible(place, reason, degree, severity)
    kv_heads = heads.num_kv_heads if heads is not None else None
    for layer, members in layers:
        for reason in layer.obstacles(degree, kv_heads):
            for module in members:
                yield _impossible(module.place(), reason, degree, severity)


def _impossible(place: Location, reason: str, degree: int, severity: Severity) -> Finding:
    return Finding(
        location=place,
        message=f"tensor parallelism over {degree} ranks is impossible: {reason}",
        severity=severity,
        measured={"tensor_parallel": degree},
        bound={"remainder": 0},
        fix=PAD,
        fold=f"tp {degree}",
    )


def _asked_experts(architecture: Architecture | None, settings: Settings) -> Iterator[Finding]:
    degree, num_experts = settings.expert_parallel, _num_experts(architecture)
    if degree is not None and degree > 1 and num_experts and num_experts % degree:
        yield Finding(
            location=Location(file="config.json"),
            message=f"{num_experts} experts cannot be dealt out evenly to {degree} ranks",
            severity=Severity.ERROR if settings.engine is not None else Severity.WARNING,
            measured={"experts": num_experts, "expert_parallel": degree},
            bound={"remainder": 0},
            fold=f"ep {degree}",
        )
