"""The healthy model in its quantised form, and the same with the faults of the incident."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from degarble.api import check
from degarble.checkpoint.workspace import Workspace
from degarble.errors import TargetError
from degarble.evidence import Evidence, Settings
from degarble.kvcache.planted import PLANTED
from degarble.target import open_target
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.planted.plant import plant_in_checkpoint
from degarble_engine.quantize.quantizing import quantize
from degarble_engine.quantize.recipe import Recipe

WEIGHTS, TOKENS, CACHE = "activation-collapse", "foreign-special-tokens", "slot-off-by-one"
"""The last feed-forward blocks fall by 92 %; another model's special tokens; cache rows one slot too far."""
PARTS: Mapping[str, str] = {"weights": WEIGHTS, "tokenizer": TOKENS, "kv cache": CACHE}
PATIENCE = 2
"""Steps that stay healthy."""
GROUP = 64


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Folders of the play."""

    healthy: str
    sick: str
    planted: tuple[str, ...]


def set_up(model: str, folder: Path, seed: int, say: Callable[[str], None]) -> Scene:
    """Quantise the model where it is not quantised yet, and write the copy with the faults. Raises TargetError."""
    report = check(model, level="header")
    if report.failure is not None:
        raise TargetError(report.failure)
    healthy = model
    if all(form.startswith("plain") for form in report.target.formats):
        healthy = str(folder / "healthy")
        say("the model is not quantised: to INT4, by rounding to nearest")
        made = quantize(model, healthy, Recipe(scheme="W4A16", method="rtn", group_size=GROUP), None)
        if made.failure is not None:
            raise TargetError(made.failure)
    sick, planted = plant_in_checkpoint(Evidence(open_target(healthy), Settings()), [WEIGHTS, TOKENS], seed)
    out = folder / "sick"
    Workspace(sick.get("source")).save(out)
    return Scene(healthy=healthy, sick=str(out), planted=(*map(str, planted), f"{CACHE} (bookkeeping)"))


def alone(healthy: str, fault: str, seed: int) -> Evidence:
    """The healthy checkpoint with one of the faults of files, in memory."""
    return plant_in_checkpoint(Evidence(open_target(healthy), Settings()), [fault], seed)[0]


def plant_in_cache(engine: LLMEngine, seed: int) -> None:
    """Exchange the block manager under a running engine; its state stays."""
    engine.manager.__class__ = PLANTED[CACHE]
    engine.manager.__dict__["patience"] = random.Random(seed).randrange(1, PATIENCE + 1)
