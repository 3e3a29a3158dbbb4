"""The one table of `/metrics`: what is counted, under which name, and in which buckets. docs/metrics.md is made of it.

Names with a colon are vLLM's, and mean what they mean there; ours have none, because clients of Prometheus rename it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
GAPS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
COUNTS = (1, 2, 4, 8, 16, 32, 64)
COMMON_LABELS = ("model_name", "engine")
"""On every sample, as vLLM has them; engine is always 0 here."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One family."""

    name: str
    kind: str
    """counter, gauge or histogram."""
    help: str
    label: str | None = None
    values: tuple[str, ...] = ()
    """Of the label, where they are known before."""
    bounds: tuple[float, ...] = ()
    """Upper ends of a histogram's buckets."""


FINISH_REASONS = ("stop", "length", "content_filter", "abort", "error")
TABLE: dict[str, Row] = {
    "running": Row(name="vllm:num_requests_running", kind="gauge", help="Sequences in the batch."),
    "waiting": Row(name="vllm:num_requests_waiting", kind="gauge", help="Sequences outside it."),
    "kv_usage": Row(name="vllm:kv_cache_usage_perc", kind="gauge", help="Share of blocks in use, 0 to 1."),
    "preemptions": Row(name="vllm:num_preemptions_total", kind="counter", help="Preemptions."),
    "prompt_tokens": Row(
        name="vllm:prompt_tokens_total", kind="counter", help="Prompt tokens of requests that gave a token."
    ),
    "generation_tokens": Row(name="vllm:generation_tokens_total", kind="counter", help="Sampled tokens."),
    "prefix_queries": Row(
        name="vllm:prefix_cache_queries_total", kind="counter", help="Prompt tokens looked for in the prefix cache."
    ),
    "prefix_hits": Row(name="vllm:prefix_cache_hits_total", kind="counter", help="Prompt tokens found there."),
    "finished": Row(
        name="vllm:request_success_total", kind="counter", help="Ended sequences.",
        label="finished_reason", values=FINISH_REASONS,
    ),
    "ttft": Row(
        name="vllm:time_to_first_token_seconds", kind="histogram", bounds=SECONDS,
        help="From arrival to the first token.",
    ),
    "itl": Row(
        name="vllm:inter_token_latency_seconds", kind="histogram", bounds=GAPS,
        help="Between deliveries of one sequence.",
    ),
    "tpot": Row(
        name="vllm:request_time_per_output_token_seconds", kind="histogram", bounds=GAPS,
        help="Mean of a sequence after its first token.",
    ),
    "e2e": Row(
        name="vllm:e2e_request_latency_seconds", kind="histogram", bounds=SECONDS, help="From arrival to the end."
    ),
    "queue": Row(
        name="vllm:request_queue_time_seconds", kind="histogram", bounds=SECONDS,
        help="From arrival to a place in the batch.",
    ),
    "prefill": Row(
        name="vllm:request_prefill_time_seconds", kind="histogram", bounds=SECONDS,
        help="From a place in the batch to the first token.",
    ),
    "decode": Row(
        name="vllm:request_decode_time_seconds", kind="histogram", bounds=SECONDS,
        help="From the first token to the last.",
    ),
    "inference": Row(
        name="vllm:request_inference_time_seconds", kind="histogram", bounds=SECONDS,
        help="From a place in the batch to the last token.",
    ),
    "prompt_length": Row(
        name="vllm:request_prompt_tokens", kind="histogram", bounds=TOKENS, help="Prompt tokens of a sequence."
    ),
    "output_length": Row(
        name="vllm:request_generation_tokens", kind="histogram", bounds=TOKENS, help="Sampled tokens of a sequence."
    ),
    "asked_length": Row(
        name="vllm:request_params_max_tokens", kind="histogram", bounds=TOKENS, help="max_tokens of a request."
    ),
    "asked_answers": Row(name="vllm:request_params_n", kind="histogram", bounds=COUNTS, help="n of a request."),
    "rejected": Row(
        name="degarble_rejected_requests_total", kind="counter", label="code", help="Refused requests, by error code."
    ),
    "disconnected": Row(
        name="degarble_disconnected_requests_total", kind="counter", help="Clients that left before the end."
    ),
    "without_text": Row(
        name="degarble_ids_without_text_total", kind="counter", help="Sampled ids that have no string."
    ),
    "structured": Row(
        name="degarble_structured_requests_total", kind="counter", help="Requests whose answer had to have a form."
    ),
    "kv_blocks": Row(name="degarble_kv_blocks", kind="gauge", help="Blocks of the pool that requests can have."),
    "kv_blocks_free": Row(
        name="degarble_kv_blocks_free", kind="gauge", help="Those without a holder, cached prefixes among them."
    ),
    "steps": Row(name="degarble_engine_steps_total", kind="counter", help="Steps of the engine."),
    "failed_steps": Row(name="degarble_failed_steps_total", kind="counter", help="Steps that raised."),
    "ready": Row(name="degarble_engine_ready", kind="gauge", help="1 while requests are taken."),
    "resident": Row(name="process_resident_memory_bytes", kind="gauge", help="Memory of the process, where it is known."),
    "started": Row(
        name="process_start_time_seconds", kind="gauge", help="When the server began, in seconds since 1970."
    ),
    "corrupted": Row(
        name="vllm:corrupted_requests_total", kind="counter", help="Requests with logits that are not finite."
    ),
    "guard_damage": Row(
        name="degarble_guard_damage_total",
        kind="counter",
        label="guard",
        help="Answers with something that no healthy model does.",
    ),
    "guard_suspicions": Row(
        name="degarble_guard_suspicions_total",
        kind="counter",
        label="guard",
        help="Answers with something that is rare in a healthy model.",
    ),
    "guard_own": Row(
        name="degarble_guard_own_total",
        kind="counter",
        label="guard",
        help="Answers with what this model does when it is well: its own loops.",
    ),
    "guard_stops": Row(
        name="degarble_guard_stops_total", kind="counter", label="guard", help="Answers that a guard ended."
    ),
    "guard_retries": Row(
        name="degarble_guard_retries_total", kind="counter", label="guard", help="Steps decoded again."
    ),
    "guard_silent": Row(
        name="degarble_guard_silent", kind="gauge", label="guard", help="1: the guard is on and sees nothing."
    ),
    "quarantined": Row(name="degarble_quarantined_blocks", kind="gauge", help="Blocks that wait to be scrubbed."),
    "incidents": Row(name="degarble_incidents_total", kind="counter", help="Incidents that were kept."),
    "incidents_dropped": Row(
        name="degarble_incidents_dropped_total", kind="counter", help="Incidents beyond the limit, or not writable."
    ),
}  # fmt: skip
"""Key in the code -> family, in the order in which they are shown."""


def page() -> str:
    """The table as a page of the documentation."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Metrics\n"
    yield "`GET /metrics` answers in Prometheus's text format 0.0.4, whatever a scraper would like better. Every sample has"
    yield f"the labels {' and '.join(f'`{label}`' for label in COMMON_LABELS)}.\n"
    yield "| name | kind | further label | |"
    yield "|---|---|---|---|"
    for row in TABLE.values():
        values = f": {', '.join(row.values)}" if row.values else ""
        label = f"`{row.label}`{values}" if row.label else ""
        yield f"| `{row.name}` | {row.kind} | {label} | {row.help} |"
