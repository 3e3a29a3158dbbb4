"""Times are those of the endpoint, and failures are failures."""

from __future__ import annotations

import asyncio
import math
import statistics
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from typer.testing import CliRunner

from degarble.errors import TargetError, UsageError
from degarble_engine.bench.load import LoadRun, run_load
from degarble_engine.bench.plots import distributions, timeline
from degarble_engine.bench.settings import LoadSettings, read_goodput
from degarble_engine.bench.summary import summarise
from degarble_engine.bench.table import lines
from degarble_engine.bench.timed_request import Timed
from degarble_engine.bench.workload import plan
from degarble_engine.cli.bench import register
from tests.degarble_engine.endpoint.fakes import DONE, HEAD, Script, endpoint, event, text
from tests.degarble_engine.server.test_process import listening

STEP = 0.05


def measured(script: Script, **settings: Any) -> LoadRun:
    async def measure() -> LoadRun:
        async with endpoint(script) as url, asyncio.timeout(30):
            return await run_load(LoadSettings(url=url, **{"num_warm_up": 0, "input_words": 4, **settings}))

    return asyncio.run(measure())


async def paced(number: int, writer: asyncio.StreamWriter) -> None:
    """First text after two steps, four more a step apart, two tokens in each."""
    writer.write(HEAD + event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]))
    await writer.drain()
    await asyncio.sleep(2 * STEP)
    for at in range(5):
        writer.write(text("ab", "stop" if at == 4 else None))
        await writer.drain()
        await asyncio.sleep(STEP)
    writer.write(event(choices=[], usage={"prompt_tokens": 4, "completion_tokens": 10}) + DONE)


def test_times_are_those_of_the_endpoint() -> None:
    run = measured(paced, num_requests=3)
    for one in run.requests:
        assert one.failure is None and one.ttft is not None and one.tpot is not None
        assert one.ttft >= 2 * STEP * 0.99, "the chunk of the role is no token"
        assert len(one.itl) == 4
        assert math.isclose(one.tpot, sum(one.itl) / 9), "9 tokens came after the first"
        assert one.e2e_latency >= one.ttft + sum(one.itl) + STEP * 0.9
    summary = summarise(run)
    assert (summary.output_tokens, summary.prompt_tokens, summary.chunks_a_token) == (30, 12, 0.5)
    assert any("an event holds 2.00 tokens" in line for line in lines(summary))


async def failing(number: int, writer: asyncio.StreamWriter) -> None:
    match number:
        case 1:
            writer.write(HEAD + text("well", "stop") + DONE)
        case 2:
            body = b'{"error": {"message": "come again"}}'
            writer.write(b"HTTP/1.1 429 No\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body))
        case 3:
            writer.write(HEAD + text("cut"))
        case 4:
            writer.write(HEAD + text("half") + event(error={"message": "no memory"}) + DONE)
        case 5:
            writer.write(HEAD + text("a"))
            await writer.drain()
            await asyncio.sleep(2)
        case 6:
            writer.write(HEAD + text("never ended") + DONE)
        case 7:
            writer.write(HEAD + b"data: {\n\n" + DONE)
        case 8:
            writer.write(HEAD + text("", "stop") + DONE)
        case _:
            writer.transport.abort()


def test_every_failure_has_a_kind_and_no_latency() -> None:
    run = measured(failing, num_requests=9, max_concurrency=1, timeout_seconds=0.4, goodput={"ttft": 30.0})
    summary = summarise(run)
    assert {kind: one.count for kind, one in summary.failures.items()} == {
        "http_429": 1, "disconnected": 2, "stream_error": 1, "timeout": 1, "protocol": 2, "no_text": 1
    }  # fmt: skip
    assert (summary.num_sent, summary.num_completed, summary.num_failed) == (9, 1, 8)
    assert {name: one.count for name, one in summary.seconds_measures.items()} == {
        "ttft": 1, "e2e_latency": 1, "queue_time": 1
    }  # fmt: skip
    assert summary.goodput is not None and summary.goodput["share"] == 1 / 9
    assert not summary.are_tokens_counted and summary.prompt_tokens is None
    shown = "\n".join(lines(summary))
    assert "failed 8" in shown and "come again" in shown and "counts no tokens" in shown
    for drawing in (distributions(run), timeline(run)):
        assert ElementTree.fromstring(drawing).tag.endswith("svg") and "http://www.w3.org/2000/svg" in drawing


def test_an_endpoint_that_is_not_there_is_said() -> None:
    settings = LoadSettings(url="http://127.0.0.1:9", num_requests=1)
    with pytest.raises(TargetError, match="connect"):
        asyncio.run(run_load(settings))
    result = CliRunner().invoke(_app(), ["bench", "serve", "http://127.0.0.1:9", "-q"])
    assert isinstance(result.exception, TargetError)


def _app() -> Any:
    import typer

    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return app


def test_plans_are_repeated_and_arrivals_are_poisson() -> None:
    settings = LoadSettings(url="http://h", num_requests=4000, rate=50.0, input_words=10, spread=0.5, shared_words=3)
    planned = plan(settings)
    assert planned == plan(settings) != plan(msgspec.structs.replace(settings, seed=1))
    gaps = [later.arrival - earlier.arrival for earlier, later in pairwise(planned)]
    mean, deviation = statistics.fmean(gaps), statistics.pstdev(gaps)
    assert abs(mean * 50 - 1) < 0.08 and abs(deviation / mean - 1) < 0.1, "an exponential's deviation is its mean"
    words = [one.prompt.split() for one in planned]
    assert {tuple(one[:3]) for one in words} == {tuple(words[0][:3])} and len({tuple(one) for one in words}) > 3990
    assert {len(one) for one in words} == set(range(5, 16))


def test_good_is_judged_from_the_arrival() -> None:
    one = Timed(number=0, arrival=0.0, sent=1.0, ended=3.0, text_times=[1.5, 2.5], finish_reason="stop")
    assert (one.ttft, one.tpot, one.queue_time, one.e2e_latency) == (0.5, 1.0, 1.0, 2.0)
    assert one.is_good({"ttft": 1.5, "tpot": 1.0, "e2e_latency": 3.0, "itl": 1.0})
    assert not one.is_good({"ttft": 1.4}) and not one.is_good({"e2e_latency": 2.9}) and not one.is_good({"tpot": 0.9})


@pytest.mark.parametrize("bad", ["ttft", "ttft=x", "tft=5", "ttft=-1", "ttft=nan"])
def test_bounds_that_mean_nothing(bad: str) -> None:
    with pytest.raises(UsageError, match="a bound is"):
        read_goodput(bad)
    assert read_goodput("e2e:2000") == ("e2e_latency", 2.0) and read_goodput("ttft=500") == ("ttft", 0.5)
    with pytest.raises(UsageError, match="spread must be"):
        LoadSettings(url="http://h", spread=2)


def test_our_own_server(tmp_path: Any) -> None:
    with listening(num_gpu_blocks=400) as (_, address, service):
        arguments = [
            "bench", "serve", address, "-n", "8", "--rate", "60", "--input-words", "4", "--output-tokens", "12",
            "--ignore-eos", "--goodput", "ttft=20000", "--format", "json", "--plots", str(tmp_path / "plots"), "-q",
        ]  # fmt: skip
        result = CliRunner().invoke(_app(), arguments)
        assert result.exit_code == 0, result.output
        found = msgspec.json.decode(result.stdout)
        shown = service.metrics.show()
    assert (found["num_completed"], found["output_tokens"], found["model"]) == (8, 96, "tiny")
    assert found["are_tokens_counted"] and found["goodput"]["share"] == 1 and found["finish_reasons"] == {"length": 8}
    measure = found["seconds_measures"]["ttft"]
    assert 0 < measure["percentiles"]["p50"] <= measure["percentiles"]["p99"] <= measure["max"]
    assert 'vllm:request_success_total{model_name="tiny",engine="0",finished_reason="length"} 9' in shown, (
        "one warmed up"
    )
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["latencies.svg", "timeline.svg"]
