"""Incidents: complete, bounded, replayed to the same ids, and without content where that was asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from degarble.errors import TargetError, UsageError
from degarble.kvcache.namespace import Namespace
from degarble.trace.reader import read_items
from degarble.trace.replay import Verdict, replay_items
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.guards.rail import GuardRail
from degarble_engine.telemetry import incident_trace
from degarble_engine.telemetry.incident import IncidentSettings, IncidentWriter
from degarble_engine.telemetry.incident_replay import read_incident, replay
from tests.degarble_engine.guards.guarded import guarded, run

SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, max_tokens=30, ignore_eos=True)
PROMPTS = [list(range(10, 40)), [*range(10, 36), 7, 8, 9], [200, 201, 5, 6, 7, 8, 9]]


@contextmanager
def keeping(
    folder: Path, *settings: str, most: int = 16, is_redacted: bool = False
) -> Iterator[tuple[LLMEngine, GuardRail, IncidentWriter]]:
    with guarded("activation-collapse=off", *settings) as (engine, rail):
        writer = IncidentWriter(IncidentSettings(folder=folder, most=most, is_redacted=is_redacted), engine)
        rail.keeper = writer
        yield engine, rail, writer


def poison(engine: LLMEngine, request_id: str) -> None:
    block = engine.manager.sequence(request_id).block_table[1]
    for view in engine.cache._every_view():
        view[block] = math.nan


def incident(folder: Path, *, is_redacted: bool = False) -> tuple[Path, list[int]]:
    """Several requests, one of them poisoned after some tokens; its folder and the ids it had."""
    with keeping(folder, is_redacted=is_redacted) as (engine, _, writer):
        run(engine, prompts=PROMPTS)
        requests = [engine.add(prompt, SAMPLED, namespace=Namespace(salt="tenant")) for prompt in PROMPTS]
        for _ in range(9):
            engine.step()
        poison(engine, requests[1].request_id)
        while engine.has_work:
            engine.step()
        assert writer.num_written == 1
        ids = [one.token_id for one in requests[1].outputs]
    (path,) = [one for one in folder.iterdir() if one.name.startswith("incident-")]
    return path, ids


def verdict(path: Path) -> Verdict:
    return replay_items(read_items(path / "trace.jsonl"))


def test_an_incident_is_replayed_to_the_same_ids_from_its_seed(tmp_path: Path) -> None:
    path, ids = incident(tmp_path)
    facts = json.loads((path / "incident.json").read_bytes())
    assert facts["trip"]["guard"] == "non-finite-logits" and facts["is_exact"]
    assert facts["request"]["content"]["output_ids"] == ids and facts["request"]["num_output"] == len(ids) > 5
    recorded = read_incident(path)
    with guarded("activation-collapse=off", enable_prefix_caching=False) as (engine, _):
        found = replay(recorded, engine)
    assert (found.output_ids, found.first_difference, found.has_tripped) == (tuple(ids), None, False)
    with guarded("activation-collapse=off") as (engine, _):
        other = replay(msgspec.structs.replace(recorded, output_ids=(*ids[:4], ids[4] + 1, *ids[5:])), engine)
    assert other.first_difference == 4


def test_a_fault_of_the_weights_comes_again_in_the_replay(tmp_path: Path) -> None:
    with keeping(tmp_path) as (engine, _, _):
        true_logits = engine.model.logits
        try:
            engine.model.logits = lambda hidden: torch.zeros_like(true_logits(hidden))
            run(engine, SAMPLED)
            (path,) = tmp_path.iterdir()
            with guarded("activation-collapse=off") as (fresh, _):
                found = replay(read_incident(path), fresh)
        finally:
            del engine.model.logits
    assert found.first_difference is None and found.has_tripped and len(found.output_ids) == 16


def test_the_trace_is_whole_and_without_violations_and_blames_a_planted_fault(tmp_path: Path) -> None:
    path, _ = incident(tmp_path)
    assert verdict(path).violations == []
    assert verdict(path).num_events > 60
    lines = (path / "trace.jsonl").read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if '"fwd"' in line and at > 40)
    event = json.loads(lines[at])
    event["slots"][-1] += 1
    (path / "trace.jsonl").write_text("\n".join([*lines[:at], json.dumps(event)]) + "\n")
    found = verdict(path).first
    assert found is not None and found.line == at


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_a_slice_that_begins_late_is_a_whole_trace(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_trace, "MAX_EVENTS", 40 + 13 * seed)
    with keeping(tmp_path) as (engine, _, writer):
        for salt in ("", "a"):
            for prompt in PROMPTS:
                engine.add(prompt, SAMPLED, namespace=Namespace(salt=salt))
            while engine.has_work:
                engine.step()
        events = list(writer.ring.events())
        assert len(events) < 500
        path = tmp_path / "slice"
        path.mkdir()
        whole = [incident_trace.meta(engine, ""), *events]
        (path / "trace.jsonl").write_text("".join(json.dumps({"n": n, **one}) + "\n" for n, one in enumerate(whole)))
    assert verdict(path).violations == []


def test_without_content_nothing_can_be_read_and_the_trace_still_holds(tmp_path: Path) -> None:
    path, ids = incident(tmp_path / "hidden", is_redacted=True)
    plain, _ = incident(tmp_path / "plain")
    facts = json.loads((path / "incident.json").read_bytes())
    assert facts["request"]["content"] is None and facts["request"]["num_output"] == len(ids)
    text = (path / "trace.jsonl").read_text() + (path / "incident.json").read_text()
    assert "tenant" not in text and "tenant" in (plain / "trace.jsonl").read_text()
    hashes = {name for event in events_of(plain) for name in event.get("h", ())}
    assert hashes and not hashes & {name for event in events_of(path) for name in event.get("h", ())}
    told = [token for event in events_of(path) for token in event.get("ids", ())]
    assert len(told) > 100 and min(told) > 320
    assert verdict(path).violations == []
    with pytest.raises(TargetError, match="left out"):
        read_incident(path)


def events_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "trace.jsonl").read_text().splitlines()]


def test_there_are_never_more_than_asked_for_and_none_is_half_written(tmp_path: Path) -> None:
    with keeping(tmp_path, most=2) as (engine, _, writer):
        for _ in range(4):
            request = engine.add(PROMPTS[0], SAMPLED)
            engine.step()
            poison(engine, request.request_id)
            while engine.has_work:
                engine.step()
        assert (writer.num_written, writer.num_dropped) == (2, 2)
    assert len(list(tmp_path.iterdir())) == 2
    with keeping(tmp_path, most=2) as (_, _, again):
        assert again._known == 2


def test_a_folder_that_cannot_be_written_ends_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="incidents cannot be kept"), keeping(tmp_path / "file"):
        pass
    with keeping(tmp_path / "gone") as (engine, _, writer):
        (tmp_path / "gone").rmdir()
        request = engine.add(PROMPTS[0], SAMPLED)
        engine.step()
        poison(engine, request.request_id)
        while engine.has_work:
            engine.step()
        assert request.stop_reason == "guard:non-finite-logits" and writer.num_dropped == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"request": 3}', '{"request": {"content": {}}, "trip": {}}'])
def test_what_is_no_incident_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "incident.json").write_text(text)
    with pytest.raises(TargetError, match=r"incident\.json"):
        read_incident(tmp_path)
