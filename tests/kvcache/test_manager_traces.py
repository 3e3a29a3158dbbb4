"""The manager's own events, judged by the trace verifier: random healthy lives break none of its invariants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from degarble.kvcache.allocator import ManagedAllocator
from degarble.kvcache.block_manager import BlockManager, Work
from degarble.kvcache.stress import random_operations
from degarble.kvcache.stress_memory import Setting
from degarble.kvcache.stress_run import StressRun

reader = pytest.importorskip("degarble.trace.reader", reason="the trace verifier is not here yet")
replay = pytest.importorskip("degarble.trace.replay", reason="the trace verifier is not here yet")


class Traced(ManagedAllocator):
    """Writes down every event, and tells each step what it works on."""

    def __init__(self, setting: Setting) -> None:
        group = {"g": 0, "kind": "window" if setting.window else "full", "layers": [0]}
        meta: dict[str, Any] = {"n": 0, "ev": "meta", "schema": 1, "engine": "degarble", "groups": [group]}
        meta |= {"block_size": setting.block_size, "num_blocks": setting.num_blocks}
        self.events = [meta | ({"window": setting.window} if setting.window else {})]
        self._last: list[Work] = []
        super().__init__(setting.num_blocks, setting.block_size, window=setting.window, manager=self._manager)
        self.begin_step = self._begin

    def _manager(self, *arguments: Any, **options: Any) -> BlockManager:
        return BlockManager(*arguments, **(options | {"observer": self._note}))

    def _note(self, event: str, fields: dict[str, Any]) -> None:
        self.events.append({"n": len(self.events), "ev": event, **fields})

    def _begin(self, works: Any = ()) -> int:
        return self.manager.begin_step(self._last)

    def schedule(self, request: str, num_tokens: int, draft_ids: Any) -> Any:
        """Keep the work for the step that follows."""
        work = self.manager.schedule(request, num_tokens, draft_ids)
        self._last = [work]
        return work.slots, [(copy.source, copy.target, copy.num_rows) for copy in work.copies]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("window", [None, 40])
def test_healthy_lives_are_healthy_traces(tmp_path: Path, seed: int, window: int | None) -> None:
    setting = Setting(num_blocks=24, window=window)
    traced = Traced(setting)
    assert StressRun(traced, setting).execute(random_operations(seed, 200)) is None
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in traced.events))
    verdict = replay.replay_items(reader.read_items(path))
    assert verdict.num_events == len(traced.events) > 300
    assert verdict.violations == []
