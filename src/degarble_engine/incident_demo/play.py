"""The whole play: three faults, users, a diagnosis, proof by exchanged parts, a repair, and healthy text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import httpx

from degarble.diagnosing import DiagnosisInputs, diagnose
from degarble.evidence import Evidence, Settings
from degarble.repairing.fix import fix
from degarble.report.interface import Report
from degarble.target import open_target
from degarble_engine.incident_demo.answers import MAX_TOKENS, QUESTIONS, Answers, ask, opened
from degarble_engine.incident_demo.scene import PARTS, TOKENS, WEIGHTS, Scene, alone, set_up
from degarble_engine.incident_demo.stage import NAME, Stage, stage

USER_SECONDS = 120.0
Say = Callable[[str], None]


def play(model: str | None, seed: int, say: Say) -> Report:
    """Raises TargetError or UsageError for a model that cannot be quantised, served or broken this way."""
    with tempfile.TemporaryDirectory(prefix="degarble-incident.") as folder:
        if model is not None:
            return _play(model, Path(folder), seed, say)
        with as_file(files("degarble.data") / "demo") as own:
            return _play(str(own), Path(folder), seed, say)


def _play(model: str, folder: Path, seed: int, say: Say) -> Report:
    scene = set_up(model, folder, seed, say)
    say(f"planted at once: {'; '.join(scene.planted)}")
    with stage(scene.sick, seed) as running:
        say(f"served at {running.url}; users ask")
        before = _users(running)
        trace = folder / "trace.jsonl"
        running.write_trace(trace)
        report = diagnose(
            DiagnosisInputs(
                target=scene.sick, reference=scene.healthy, endpoint=running.url, trace=(str(trace),), seed=seed
            )
        )
    say(f"diagnosed: {', '.join(cause.finding.rule for cause in report.causes)}")
    return _proven(report, scene, before, folder, seed, say)


def _users(running: Stage) -> list[str]:
    """What they are answered."""
    body = {"model": NAME, "temperature": 0, "max_tokens": MAX_TOKENS}
    with httpx.Client(base_url=running.url, timeout=USER_SECONDS, trust_env=False) as client:
        found = [client.post("/v1/completions", json={**body, "prompt": question}) for question in QUESTIONS]
    return [str(one.json()["choices"][0]["text"]) if one.status_code == 200 else one.text[:200] for one in found]


def _proven(report: Report, scene: Scene, before: list[str], folder: Path, seed: int, say: Say) -> Report:
    """Answers of every part alone, and of the repaired copy with a healthy cache, beside those of the healthy model."""
    repaired = str(folder / "repaired")
    fix(scene.sick, repaired, reference=scene.healthy)
    healthy_model = opened(Evidence(open_target(scene.healthy), Settings()))
    healthy = ask(healthy_model)
    after = ask(opened(Evidence(open_target(repaired), Settings())))
    planted = {
        "weights": ask(opened(alone(scene.healthy, WEIGHTS, seed))),
        "tokenizer": ask(opened(alone(scene.healthy, TOKENS, seed))),
        "kv cache": ask(healthy_model, seed),
    }
    told = {part: (_told(part, one, healthy), one.num_different(healthy) > 0) for part, one in planted.items()}
    say(
        f"repaired: {len(QUESTIONS) - after.num_different(healthy)} of {len(QUESTIONS)} answers are the healthy model's"
    )
    diagnosis: dict[str, Any] = dict(report.diagnosis or {})
    diagnosis["causes"] = [_with_proof(cause, told, after, healthy) for cause in diagnosis.get("causes", ())]
    diagnosis["summary"] = _summary(report, diagnosis, after, healthy)
    diagnosis["planted"] = list(scene.planted)
    diagnosis["healthy_text"] = {
        "question": QUESTIONS[0],
        "before": before[0],
        "after": after.texts[0],
        "healthy": healthy.texts[0],
        "answers": len(QUESTIONS),
        "answers_as_healthy": len(QUESTIONS) - after.num_different(healthy),
    }
    return replace(report, diagnosis=diagnosis)


def _summary(report: Report, diagnosis: Mapping[str, Any], after: Answers, healthy: Answers) -> list[str]:
    """The second and third sentence say more now."""
    proven = sum(cause["proof_kind"] == "counterfactual" for cause in diagnosis["causes"])
    same = len(QUESTIONS) - after.num_different(healthy)
    return [
        diagnosis["summary"][0],
        f"For {proven} of {len(report.causes)} a healthy part was swapped in and the rule or the answers said so.",
        f"In the repaired copy with a healthy cache {same} of {len(QUESTIONS)} answers are the healthy model's.",
    ]


def _told(part: str, one: Answers, healthy: Answers) -> str:
    """What the part does alone."""
    changed = one.num_different(healthy)
    return f"{PARTS[part]} planted alone in the healthy model changes {changed} of {len(QUESTIONS)} greedy answers"


def _with_proof(
    cause: Mapping[str, Any], told: Mapping[str, tuple[str, bool]], after: Answers, healthy: Answers
) -> dict[str, Any]:
    """The cause's own proof, with what answers say of its part."""
    part = str(cause.get("part"))
    if part not in told:
        return dict(cause)
    same = len(QUESTIONS) - after.num_different(healthy)
    swapped = f"with every healthy part swapped in, {same} of {len(QUESTIONS)} answers are the healthy model's"
    alone_, is_seen = told[part]
    kind = "counterfactual" if is_seen and not after.num_different(healthy) else cause["proof_kind"]
    return {**cause, "proof_kind": kind, "proof": f"{cause['proof']}; {alone_}; {swapped}"}
