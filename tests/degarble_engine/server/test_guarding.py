"""What a client sees when a guard speaks: a note, `content_filter`, or an error; never `stop`. And planted faults are said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from degarble.errors import UsageError
from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.server.app import application
from degarble_engine.server.guarding import Guarding, guard, planted_evidence
from degarble_engine.server.limits import Limits
from degarble_engine.server.service import Service
from tests.conftest import unpacked_golden
from tests.degarble_engine.server.served import events, fresh_model, is_free, run, until

BODY: dict[str, Any] = {"prompt": [5, 6, 7, 8, 9], "max_tokens": 90, "temperature": 0, "ignore_eos": True}
PATH = "/v1/completions"


@asynccontextmanager
async def guarded(
    faults: Sequence[str] = (), guards: Sequence[str] = (), **others: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, list[str]]]:
    """A client of a server with guards, and what it said at the start."""
    said: list[str] = []
    model = fresh_model()
    healthy = Evidence(open_target(unpacked_golden() / "base-bf16"), Settings())
    asked = Guarding.asked(["activation-collapse=off", *guards], is_on=True, faults=faults, **others)
    _, planted = planted_evidence(healthy, asked, said.append)
    planted = guard(model, asked, healthy, said.append, opened={"target": "here", "name": "tiny"}, planted=planted)
    service = Service(model, Limits(), planted=planted)
    app = application(service)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client, said
        await until(lambda: is_free(service))


def metric(text: str, name: str, guard_name: str) -> float:
    line = next(line for line in text.splitlines() if line.startswith(name + "{") and f'guard="{guard_name}"' in line)
    return float(line.rpartition(" ")[2])


def test_damage_ends_an_answer_with_content_filter_and_says_why(tmp_path: Path) -> None:
    async def asked() -> None:
        async with guarded(["loop-without-certainty"], ["entropy-drift=off"], incident_dir=str(tmp_path)) as (
            client,
            said,
        ):
            whole = (await client.post(PATH, json=BODY)).json()["choices"][0]
            streamed = events((await client.post(PATH, json=BODY | {"stream": True})).text)[-1]["choices"][0]
            shown = (await client.get("/metrics")).text
            health = (await client.get("/health")).json()
        for choice in (whole, streamed):
            assert (choice["finish_reason"], choice["stop_reason"]) == ("content_filter", "guard:repetition-loop")
            assert choice["guards"][0]["guard"] == "repetition-loop" and choice["guards"][0]["kind"] == "damage"
        assert metric(shown, "degarble_guard_damage_total", "repetition-loop") == 2
        assert metric(shown, "degarble_guard_stops_total", "repetition-loop") == 2
        assert 'degarble_incidents_total{model_name="tiny",engine="0"} 2' in shown
        assert health["planted_faults"] == ["loop-without-certainty (engine)"]
        assert any("PLANTED FAULT: loop-without-certainty" in line for line in said)
        kept = sorted(one.name for one in tmp_path.iterdir())
        facts = json.loads((tmp_path / kept[0] / "incident.json").read_bytes())
        assert len(kept) == 2 and facts["planted"] == ["loop-without-certainty (engine)"]

    run(asked)


def test_an_answer_without_a_token_that_can_be_trusted_is_an_error() -> None:
    async def asked() -> None:
        async with guarded(["logits-not-finite"]) as (client, _):
            whole = await client.post(PATH, json=BODY)
            streamed = events((await client.post(PATH, json=BODY | {"stream": True})).text)
            assert (
                'vllm:corrupted_requests_total{model_name="tiny",engine="0"} 2' in (await client.get("/metrics")).text
            )
        assert whole.json()["error"]["code"] == "damaged_output"
        assert whole.status_code == 500 and "guard non-finite-logits" in whole.json()["error"]["message"]
        assert "guard non-finite-logits" in streamed[-1]["error"]["message"]
        assert not any(choice["finish_reason"] for event in streamed[:-1] for choice in event["choices"])

    run(asked)


def test_a_note_changes_nothing_but_the_note() -> None:
    async def asked() -> None:
        async with guarded(["control-token-wins"], ["entropy-drift=off", "repetition-loop=off"]) as (client, _):
            choice = (await client.post(PATH, json=BODY | {"max_tokens": 16})).json()["choices"][0]
        assert choice["finish_reason"] == "length"
        assert {note["kind"] for note in choice["guards"]} == {"suspect", "damage"}
        async with guarded(
            ["control-token-wins"], ["control-tokens=off", "entropy-drift=off", "repetition-loop=off"]
        ) as (client, _):
            assert "guards" not in (await client.post(PATH, json=BODY | {"max_tokens": 16})).json()["choices"][0]

    run(asked)


def test_a_healthy_server_says_nothing_of_faults() -> None:
    async def asked() -> None:
        async with guarded() as (client, said):
            assert (await client.get("/health")).json() == {"status": "ok", "reason": None}
            assert not any("PLANTED" in line for line in said)

    run(asked)


@pytest.mark.parametrize(("faults", "guards"), [(["nothing"], []), ([], ["nothing=log"]), ([], ["mojibake=loudly"])])
def test_names_that_nothing_has_are_refused(faults: list[str], guards: list[str]) -> None:
    with pytest.raises(UsageError):
        Guarding.asked(guards, is_on=True, faults=faults)
