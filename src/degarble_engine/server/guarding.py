"""Guards, planted faults and incidents of a model that is about to be served, from what the command line says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from degarble.evidence import Evidence
from degarble_engine.guards.choice import chosen_actions
from degarble_engine.guards.install import install
from degarble_engine.guards.interface import Action
from degarble_engine.models.load import load_model
from degarble_engine.planted.plant import plant_in_checkpoint, plant_in_engine, require_known
from degarble_engine.server.served_model import ServedModel
from degarble_engine.telemetry.incident import IncidentSettings, IncidentWriter

BASELINE_TEXT = (
    "The river rises in the mountains, crosses three countries and reaches the sea after nine hundred kilometres. "
    "def area(width, height): return width * height. In 1905 the bridge was 42 metres long; today it is twice as long. "
    "What is the sum of 17 and 25? It is 42. Bread needs flour, water, salt and time."
)
"""Read once at the start, to learn how large the outputs of the blocks are."""
Say = Callable[[str], None]


class Guarding(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    actions: Mapping[str, Action]
    faults: tuple[str, ...] = ()
    seed: int = 0
    incident_dir: str | None = None
    incident_limit: int = 16
    is_redacted: bool = False

    @classmethod
    def asked(cls, guards: Sequence[str], *, is_on: bool, faults: Sequence[str], **others: Any) -> Guarding:
        """From the command line. Raises UsageError for names that nothing has."""
        require_known(faults)
        return cls(actions=chosen_actions(guards, is_off=not is_on), faults=tuple(faults), **others)


def planted_evidence(evidence: Evidence, asked: Guarding, say: Say) -> tuple[Evidence, list[str]]:
    """The checkpoint with the faults that go into it, in memory; the files stay as they are."""
    changed, planted = plant_in_checkpoint(evidence, asked.faults, asked.seed)
    for one in planted:
        say(f"PLANTED FAULT: {one}: this server does not serve what the files hold")
    return changed, [str(one) for one in planted]


def guard(
    model: ServedModel,
    asked: Guarding,
    healthy: Evidence,
    say: Say,
    *,
    opened: Mapping[str, Any],
    planted: Sequence[str],
) -> list[str]:
    """Put everything over an engine that was just opened. `healthy`: what a retry decodes with. All planted faults."""
    reference = None
    if Action.RETRY in asked.actions.values():
        reference, store = load_model(healthy, torch.float32, keeps_packed=False)
        say(f"reference for retries: fp32, {sum(store.num_bytes.values()) >> 20} MiB")
    text = model.prompter.encode(BASELINE_TEXT, adds_special=True)
    rail = install(
        model.engine, asked.actions, tokenizer=model.tokenizer, baseline_ids=text, reference=reference
    )  # fmt: skip
    live = [str(one) for one in plant_in_engine(model.engine, rail.surroundings, asked.faults, asked.seed)]
    for one in live:
        say(f"PLANTED FAULT: {one}: answers of this server are wrong on purpose")
    everything = [*planted, *live]
    if asked.incident_dir is not None:
        settings = IncidentSettings(
            folder=Path(asked.incident_dir), most=asked.incident_limit, is_redacted=asked.is_redacted,
            model=dict(opened), planted=tuple(everything),
        )  # fmt: skip
        rail.keeper = IncidentWriter(settings, model.engine)
    told = ", ".join(f"{name} {action}" for name, (_, action) in rail.guards.items())
    say(f"guards: {told or 'none'}")
    return everything
