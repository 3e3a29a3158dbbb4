"""The table of metrics: vLLM's names where they mean the same, ours without a colon."""

from __future__ import annotations

from collections.abc import Mapping

from degarble_engine.engine.request import FinishReason
from degarble_engine.server.engine_loop import EngineLoop
from degarble_engine.telemetry.exposition import Counter, Histogram, Metric, Read

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
GAPS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)


class ServerMetrics:
    """Counted by asyncio; gauges are read from the engine when they are asked for."""

    def __init__(self, loop: EngineLoop, model_name: str) -> None:
        self._fixed: Mapping[str, str] = {"model_name": model_name, "engine": "0"}
        self.prompt_tokens = Counter("vllm:prompt_tokens_total", "Prompt tokens of requests that gave a token.")
        self.prefix_queries = Counter(
            "vllm:prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache."
        )
        self.prefix_hits = Counter("vllm:prefix_cache_hits_total", "Prompt tokens found there.")
        self.generation_tokens = Counter("vllm:generation_tokens_total", "Sampled tokens.")
        reasons = [str(reason) for reason in FinishReason]
        self.finished = Counter("vllm:request_success_total", "Ended sequences.", "finished_reason", reasons)
        self.ttft = Histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", SECONDS)
        self.itl = Histogram("vllm:inter_token_latency_seconds", "Between deliveries of one sequence.", GAPS)
        self.e2e = Histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", SECONDS)
        self.prompt_length = Histogram("vllm:request_prompt_tokens", "Prompt tokens of a sequence.", TOKENS)
        self.output_length = Histogram("vllm:request_generation_tokens", "Sampled tokens of a sequence.", TOKENS)
        self.rejected = Counter("degarble_rejected_requests_total", "Refused requests.", "code")
        self.disconnected = Counter("degarble_disconnected_requests_total", "Clients that left before the end.")
        self.without_text = Counter("degarble_ids_without_text_total", "Sampled ids that have no string.")
        self._read = self._gauges(loop)

    def _gauges(self, loop: EngineLoop) -> list[Metric]:
        scheduler, pool = loop.engine.scheduler, loop.engine.manager.pool
        usable = pool.num_blocks - 1  # one is the trash block
        return [
            Read("vllm:num_requests_running", "Sequences in the batch.", lambda: len(scheduler.running)),
            Read("vllm:num_requests_waiting", "Sequences outside it.", lambda: _waiting(loop)),
            Read("vllm:kv_cache_usage_perc", "Share of blocks in use, 0 to 1.", lambda: 1 - pool.num_free / usable),
            Read("vllm:num_preemptions_total", "Preemptions.", lambda: scheduler.num_preemptions, "counter"),
            Read("degarble_engine_steps_total", "Steps.", lambda: loop.engine.num_steps, "counter"),
            Read("degarble_failed_steps_total", "Steps that raised.", lambda: loop.num_failed_steps, "counter"),
            Read("degarble_engine_ready", "1 while requests are taken.", lambda: int(loop.is_ready)),
        ]

    def show(self) -> str:
        """All of it, as text."""
        own = [metric for metric in vars(self).values() if isinstance(metric, Metric)]
        return "".join(f"{line}\n" for metric in (*own, *self._read) for line in metric.show(self._fixed))


def _waiting(loop: EngineLoop) -> int:
    """Also those that the engine's thread has not seen yet; never below 0, as the two numbers are of two moments."""
    return max(0, loop.num_open - len(loop.engine.scheduler.running))
