"""What was noted about slots is what the block manager would say, in every step of every life."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch import Tensor

from degarble.errors import BlockMisuse
from degarble_engine.engine.ngram import NgramDrafter
from degarble_engine.engine.scheduler import Scheduled
from tests.degarble_engine.engine.test_llm_engine import GREEDY, engine_of, prompts


@pytest.mark.parametrize(
    "options",
    [{}, {"num_gpu_blocks": 20, "max_num_batched_tokens": 40}, {"max_num_batched_tokens": 7}],
    ids=["one batch", "preemption", "chunks"],
)
def test_noted_slots_are_those_of_the_block_table(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of("llama", **options)
    engine.scheduler._drafter = NgramDrafter(num_drafts=3)
    run, num_checked = engine.runner.run, 0

    def checked(parts: Sequence[Scheduled]) -> list[Tensor]:
        nonlocal num_checked
        found = run(parts)
        for part in parts:
            engine.runner.book.check(part)
            num_checked += 1
        return found

    monkeypatch.setattr(engine.runner, "run", checked)
    shared = list(range(24))
    list(engine.generate([shared + prompt for prompt in prompts(4)] + [[5, 6, 7, 8] * 5, shared], GREEDY))
    assert num_checked > 30


def test_a_wrong_note_is_found() -> None:
    engine = engine_of("llama")
    engine.add(prompts(1)[0], GREEDY)
    engine.step()
    parts = engine.scheduler.schedule()
    engine.runner.book._pages[parts[0].request.request_id].slots[1] += 1
    with pytest.raises(BlockMisuse, match="position 1 was noted at slot"):
        engine.runner.book.check(parts[0])
