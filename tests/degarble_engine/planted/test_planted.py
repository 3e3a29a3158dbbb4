"""Every fault of `--inject` in a running engine: its guard sees it, or the trace of the incident names it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from degarble.errors import DegarbleError, UsageError
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import faults
from degarble.kvcache.namespace import Namespace
from degarble.kvcache.planted import PLANTED
from degarble.target import open_target
from degarble.trace.reader import read_items
from degarble.trace.replay import replay_items
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.engine.trip import TripKind
from degarble_engine.guards.rail import GuardRail
from degarble_engine.planted.bookkeeping import bookkeeping_faults
from degarble_engine.planted.interface import FIRST_STEP, live_faults
from degarble_engine.planted.plant import listed, plant_in_checkpoint, plant_in_engine, require_known
from degarble_engine.telemetry.incident import IncidentSettings, IncidentWriter
from degarble_engine.telemetry.incident_trace import meta
from tests.conftest import unpacked_golden
from tests.degarble_engine.guards.guarded import guarded

BOUNDS = {"non-finite-logits": 0, "entropy-drift": 32, "repetition-loop": 64, "control-tokens": 4, "mojibake": 32}
BOUNDS |= {"ids-without-string": 1, "activation-collapse": 32}
BOOKKEEPING: dict[str, set[str]] = {
    "nothing": set(), "slot-off-by-one": {"KVC602"}, "padding-slot": {"KVC603"}, "double-free": {"KVC605"},
    "stale-hash": {"KVC627"}, "missed-copy": {"KVC604"}, "lost-block": {"KVC605"},
}  # fmt: skip
"""What a trace can show; the others are in docs/explanation/guards.md."""
SEEN = sorted(name for name, fault in live_faults().items() if fault.seen_by)


@pytest.fixture
def restored() -> Iterator[None]:
    """The golden model is shared: its blocks are put back."""
    with guarded() as (engine, _):
        layers = engine.model.layers
    before = [layer._feed_forward for layer in layers]
    yield
    for layer, block in zip(layers, before, strict=True):
        layer._feed_forward = block


@pytest.mark.parametrize("name", SEEN)
def test_the_guard_that_should_see_a_fault_does_within_its_bound(name: str, restored: None) -> None:
    others = [f"{guard}=log" for guard in BOUNDS if guard != live_faults()[name].seen_by]
    params = SamplingParams(temperature=0.0, max_tokens=110, ignore_eos=True)
    with guarded(*others, num_known=500 if name.startswith("id-without") else None) as (engine, rail):
        plant_in_engine(engine, rail.surroundings, [name], seed=1)
        request = engine.add(list(range(20, 30)), params)
        while engine.has_work:
            engine.step()
    guard = live_faults()[name].seen_by
    trip = next(trip for trip in request.trips if trip.guard == guard and trip.kind is TripKind.DAMAGE)
    assert trip.num_outputs <= FIRST_STEP + BOUNDS[guard]


def lives(rail: GuardRail, engine: Any, folder: Path) -> list[str]:
    """Rules that the trace of many overlapping requests breaks; where the engine itself fails, up to there."""
    rail.keeper = IncidentWriter(IncidentSettings(folder=folder), engine)
    rng = random.Random(3)
    prompts = [[rng.randrange(40, 300) for _ in range(length)] for length in (8, 16, 17, 23)]
    params = SamplingParams(temperature=0.0, max_tokens=7, ignore_eos=True)
    try:
        for number in range(26):
            engine.add(prompts[number // 3 % 4], params, namespace=Namespace(salt=str(number // 13)))
            for _ in range(rng.randrange(4)):
                engine.step()
        while engine.has_work:
            engine.step()
    except (DegarbleError, RuntimeError, IndexError):
        pass
    writer = rail.keeper
    path = folder / "trace.jsonl"
    events = [meta(engine, ""), *writer.ring.events()]
    path.write_text("".join(json.dumps({"n": n, **one}) + "\n" for n, one in enumerate(events)))
    return [violation.rule for violation in replay_items(read_items(path)).violations]


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        pytest.param(*case, marks=() if at < 3 else pytest.mark.slow, id=case[0])
        for at, case in enumerate(BOOKKEEPING.items())
    ],
)
def test_the_trace_names_faults_of_the_bookkeeping(name: str, rules: set[str], tmp_path: Path) -> None:
    with guarded("activation-collapse=off", num_gpu_blocks=60, checks_integrity=False) as (engine, rail):
        if rules:
            plant_in_engine(engine, rail.surroundings, [name], seed=1)
        found = set(lives(rail, engine, tmp_path))
    assert found & rules if rules else not found


def test_faults_of_files_are_planted_in_memory_and_the_files_stay() -> None:
    folder = unpacked_golden() / "base-bf16"
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    evidence = Evidence(open_target(folder), Settings())
    name = next(fault.name for fault in faults() if fault.rule == "NUM306")
    changed, planted = plant_in_checkpoint(evidence, [name, "logits-flat"], seed=0)
    assert [one.name for one in planted] == [name] and "NUM306" in planted[0].where
    key = max(name for name in changed.get("modules") if name.endswith("mlp.down_proj"))
    ratio = changed.get("modules")[key].dequantize().std() / evidence.get("modules")[key].dequantize().std()
    assert ratio == pytest.approx(0.08, rel=0.05)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_names() -> None:
    text = listed()
    assert all(name in text for name in (*live_faults(), *bookkeeping_faults()))
    assert len({*live_faults(), *PLANTED, *(fault.name for fault in faults())}) == len(live_faults()) + len(
        PLANTED
    ) + len(faults())
    with pytest.raises(UsageError, match="no fault is called so"):
        require_known(["nothing"])
    with guarded() as (engine, rail), pytest.raises(UsageError, match="by a window"):
        plant_in_engine(engine, rail.surroundings, ["window-early"], seed=0)
