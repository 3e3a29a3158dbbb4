"""A summary for people."""

from __future__ import annotations

from collections.abc import Iterator

from degarble_engine.bench.summary import PERCENTILES, Measure, Summary

NAMES = {
    "ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e_latency": "e2e_latency", "queue_time": "queue_time (client)"
}  # fmt: skip


def lines(summary: Summary) -> Iterator[str]:
    """Text, failures before numbers: a fast endpoint that fails is no fast endpoint."""
    rate = summary.settings["rate"]
    arrival = f"Poisson, {rate:g} a second" if rate is not None else "all at once"
    yield f"{summary.model} at {summary.settings['url']}: {summary.num_sent} requests, {arrival}"
    yield f"completed {summary.num_completed}, failed {summary.num_failed}, in {summary.seconds:.2f} s"
    for kind, failures in summary.failures.items():
        yield f"  {kind}: {failures.count}, such as: {failures.example}"
    if not summary.num_completed:
        return
    counted = "" if summary.are_tokens_counted else " (chunks: the endpoint counts no tokens)"
    prompts = "not counted by the endpoint" if summary.prompt_tokens is None else str(summary.prompt_tokens)
    yield f"tokens: prompts {prompts}, answers {summary.output_tokens}{counted}"
    yield f"throughput: {summary.requests_per_second:.3f} requests/s, {summary.output_tokens_per_second:.1f} tokens/s"
    if summary.chunks_a_token is not None and not 0.95 < summary.chunks_a_token < 1.05:
        yield f"an event holds {1 / summary.chunks_a_token:.2f} tokens in the mean: itl is between events, tpot a token"
    yield ""
    yield f"{'ms':<20}" + "".join(f"{name:>10}" for name in ("mean", *(f"p{at}" for at in PERCENTILES), "max"))
    for name, measure in summary.seconds_measures.items():
        yield f"{NAMES[name]:<20}" + _row(measure)
    if summary.goodput is not None:
        bounds = ", ".join(f"{name} ≤ {1000 * most:g} ms" for name, most in summary.goodput["bounds_seconds"].items())
        good = summary.goodput
        yield ""
        yield f"goodput: {good['requests_per_second']:.3f} requests/s, {good['share']:.1%} of those sent ({bounds})"


def _row(measure: Measure) -> str:
    values = (measure.mean, *measure.percentiles.values(), measure.max)
    return "".join(f"{1000 * value:>10.2f}" for value in values)
