"""64 streams with random disconnects on the real model: `DEGARBLE_STORM_SECONDS` of it, ten minutes unless it is said.

DEGARBLE_STORM_SECONDS=150 DEGARBLE_STORM_COMPARE=60 pytest -s -m "real and slow" tests/real/test_stream_storm.py
"""

from __future__ import annotations

import os

import msgspec
import pytest

from tests.conftest import NOT_HERE
from tests.real.conftest import model_path

pytestmark = [pytest.mark.real, pytest.mark.slow]
SECONDS = float(os.environ.get("DEGARBLE_STORM_SECONDS", "600"))
COMPARE_SECONDS = float(os.environ.get("DEGARBLE_STORM_COMPARE", "600"))


def test_a_storm_on_the_real_model() -> None:
    pytest.importorskip("openai", reason=f"{NOT_HERE}openai")
    from degarble.evidence import Evidence, Settings
    from degarble.target import open_target
    from degarble_engine.engine.llm_engine import EngineOptions
    from degarble_engine.server.served_model import open_served
    from tests.degarble_engine.server.storm import require_calm, storm

    evidence = Evidence(open_target(model_path("bf16")), Settings())
    model = open_served(evidence, "smol", options=EngineOptions(num_gpu_blocks=16))
    result = storm(
        model, seconds=SECONDS, num_streams=64, longest_prompt=120, longest_answer=64, compare_seconds=COMPARE_SECONDS,
        num_gpu_blocks=700, block_size=16,
    )  # fmt: skip
    print(msgspec.json.encode(result).decode())
    require_calm(result)
