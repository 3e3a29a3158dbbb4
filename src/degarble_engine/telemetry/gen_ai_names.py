"""OpenTelemetry's names for generative models, as they stood when SCHEMA was frozen.

The conventions moved to a repository of their own and are still in flux (every constant of the published Python package
is marked deprecated), so the strings stand here and nowhere else. What they have no word for is under `degarble.`.
Source: github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai (spans, metrics).
"""

from __future__ import annotations

SCHEMA = "semantic-conventions-genai 0.1.0"
PROVIDER = "degarble"

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
ERROR_TYPE = "error.type"
HTTP_STATUS = "http.response.status_code"
HTTP_METHOD = "http.request.method"
URL_PATH = "url.path"
REQUEST_PARAMS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "max_tokens": "gen_ai.request.max_tokens",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "n": "gen_ai.request.choice.count",
    "stream": "gen_ai.request.stream",
}
"""Our field -> attribute."""

REQUEST_ID = "degarble.request.id"
ENGINE_ID = "degarble.engine.sequence"
CHOICE_INDEX = "degarble.choice.index"
NUM_TOKENS = "degarble.choice.output_tokens"
FINISH_REASON = "degarble.choice.finish_reason"
SPAN_QUEUE = "degarble.queue"
SPAN_PREFILL = "degarble.prefill"
SPAN_DECODE = "degarble.decode"

REQUEST_DURATION = "gen_ai.server.request.duration"
TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"
TIME_PER_OUTPUT_TOKEN = "gen_ai.server.time_per_output_token"
TOKEN_USAGE = "gen_ai.client.token.usage"
TOKEN_TYPE = "gen_ai.token.type"
DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0
)  # fmt: skip
TPOT_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
