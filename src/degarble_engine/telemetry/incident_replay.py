"""The same request once more: the same ids, or the first place where they differ.

An engine whose results do not depend on the batch gives the same tokens for the same ids, parameters and seed. So a replay
on the checkpoint tells two kinds of incidents apart:

    the ids are the same    the fault is in weights, tables or arithmetic, and can be looked for at leisure
    they differ             it was in the state of the server: its memory, its cache, its batch
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from degarble.errors import DegarbleError, TargetError, UsageError
from degarble.kvcache.namespace import Namespace
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.sampling_params import SamplingParams

MAX_BYTES = 16 << 20


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay needs of incident.json."""

    guard: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    params: SamplingParams
    namespace: Namespace
    model: Mapping[str, Any]
    engine: Mapping[str, Any]
    eos_ids: tuple[int, ...]
    is_exact: bool


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome."""

    output_ids: tuple[int, ...]
    first_difference: int | None
    """Index of the first token that differs, or is missing; None: all are the same."""
    has_tripped: bool
    """Whether the guard that told of the incident spoke again. False also where the engine has no such guard."""


def read_incident(folder: str | Path) -> Recorded:
    """Raises TargetError for a folder that is no incident, is damaged, or was redacted."""
    path = Path(folder) / "incident.json"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TargetError(f"{path}: longer than {MAX_BYTES} bytes, which no incident is")
        facts = msgspec.json.decode(path.read_bytes())
        content = facts["request"]["content"]
        if content is None:
            raise TargetError(f"{path}: the content was left out, so there is nothing to replay")
        biases = {int(token_id): float(bias) for token_id, bias in content["logit_bias"].items()}
        params = facts["request"]["params"] | {"seed": facts["request"]["seed"], "stop": content["stop"]}
        return Recorded(
            guard=facts["trip"]["guard"],
            prompt_ids=msgspec.convert(content["prompt_ids"], tuple[int, ...]),
            output_ids=msgspec.convert(content["output_ids"], tuple[int, ...]),
            params=msgspec.convert(params | {"logit_bias": biases}, SamplingParams),
            namespace=Namespace(salt=content["namespace"].get("salt", "")),
            model=msgspec.convert(facts["model"], dict[str, Any]),
            engine=msgspec.convert(facts["engine"], dict[str, Any]),
            eos_ids=msgspec.convert(facts["eos_ids"], tuple[int, ...]),
            is_exact=bool(facts["is_exact"]),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, msgspec.MsgspecError, UsageError) as error:
        raise TargetError(f"{path}: is no incident that can be replayed: {type(error).__name__}: {error}") from None


def replay(recorded: Recorded, engine: LLMEngine) -> Replayed:
    """Run the request alone, to one token more than the incident had. Raises DegarbleError."""
    count = len(recorded.output_ids)
    if engine.requests:
        raise DegarbleError("an incident is replayed by an engine that does nothing else")
    params = msgspec.structs.replace(recorded.params, max_tokens=max(count + 1, recorded.params.max_tokens))
    request = engine.add(recorded.prompt_ids, params, namespace=recorded.namespace)
    while request.num_outputs <= count and request.finish_reason is None:  # one more: it may be the one that failed
        engine.step()
    engine.abort(request.request_id)
    found = tuple(one.token_id for one in request.outputs)[: len(recorded.output_ids)]
    return Replayed(
        output_ids=found,
        first_difference=_first_difference(found, recorded.output_ids),
        has_tripped=any(trip.guard == recorded.guard for trip in request.trips),
    )


def _first_difference(found: tuple[int, ...], wanted: tuple[int, ...]) -> int | None:
    for at, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            return at
    return None if len(found) == len(wanted) else min(len(found), len(wanted))
