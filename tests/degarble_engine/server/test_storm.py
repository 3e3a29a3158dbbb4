"""Many streams that come and go at random: no block is lost, and every answer is what it would be alone."""

from __future__ import annotations

import pytest

from tests.conftest import NOT_HERE
from tests.degarble_engine.server.served import opened

pytest.importorskip("openai", reason=f"{NOT_HERE}openai")
SECONDS = 30


@pytest.mark.slow
def test_a_storm_of_streams() -> None:
    from tests.degarble_engine.server.storm import require_calm, storm

    result = storm(
        opened(), seconds=SECONDS, num_streams=64, longest_prompt=40, longest_answer=40, compare_seconds=60,
        num_gpu_blocks=300, block_size=4,
    )  # fmt: skip
    print(result)
    require_calm(result)
    assert result.num_preemptions > 0, "blocks were scarce"
