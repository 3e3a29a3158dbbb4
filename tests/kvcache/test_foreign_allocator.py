"""Allocators of users: small ones that are right, wrong, and hostile, each in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from degarble.errors import UsageError
from degarble.kvcache.foreign_allocator import stress_foreign
from degarble.kvcache.stress import StressResult
from degarble.kvcache.stress_memory import Setting
from degarble.kvcache.stress_worker import work

SIMPLE = '''
class OutOfBlocks(Exception):
    pass


class Simple:
    """No sharing, no options: five methods."""

    def __init__(self, num_blocks, block_size):
        self.free, self.size, self.tables, self.ids, self.at = list(range(num_blocks)), block_size, {{}}, {{}}, {{}}

    def open(self, request, token_ids, namespace):
        self.tables[request], self.ids[request], self.at[request] = [], len(token_ids), 0
        return 0

    def schedule(self, request, num_tokens, draft_ids):
        end = self.at[request] + num_tokens + len(draft_ids)
        table = self.tables[request]
        need = -(-end // self.size) - len(table)
        if need > len(self.free):
            raise OutOfBlocks
        for _ in range(need):
            table.append(self.free.pop())
        slots = [table[p // self.size] * self.size + p % self.size {off} for p in range(self.at[request], end)]
        self.end = end
        self.drafts = len(draft_ids)
        return slots, []

    def complete(self, request, new_ids):
        rejected = self.drafts - (len(new_ids) - 1) if self.drafts else 0
        self.at[request] = self.end - rejected

    def finish(self, request):
        self.free += self.tables.pop(request)

    def block_table(self, request):
        return self.tables[request]


def make(num_blocks, block_size, **options):
    {before}
    return Simple(num_blocks, block_size)
'''


def stressed(
    folder: Path, *, off: str = "", before: str = "pass", name: str = "make", timeout: float = 60
) -> StressResult:
    file = folder / "mine.py"
    file.write_text(SIMPLE.format(off=off, before=before))
    return stress_foreign(
        f"{file}:{name}",
        Setting(num_blocks=40),
        seeds=range(2),
        num_operations=150,
        timeout_seconds=timeout,
        memory_bytes=2 << 30,
    )


def test_five_methods_are_enough(tmp_path: Path) -> None:
    result = stressed(tmp_path)
    assert result.breach is None and result.num_operations > 50 and "fork" not in result.by_kind


def test_a_wrong_one_is_found_and_shrunk(tmp_path: Path) -> None:
    result = stressed(tmp_path, off="+ (p % 16 == 15)")
    assert result.breach is not None and result.breach.rule in ("KVC602", "KVC603")
    assert [one.kind for one in result.operations] == ["open", "step"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"before": "raise SystemExit(3)"}, "SystemExit: 3"),
        ({"before": "import os; os._exit(4)"}, "ended with status 4"),
        ({"name": "absent"}, "AttributeError"),
        ({"before": "return object()"}, None),
        ({"before": "while True: pass", "timeout": 2}, "did not finish within 2 seconds"),
    ],
)
def test_hostile_ones(tmp_path: Path, options: dict[str, str], said: str | None) -> None:
    if said is None:
        result = stressed(tmp_path, **options)  # type: ignore[arg-type]
        assert result.breach is not None and "has no attribute 'open'" in result.breach.message
        return
    with pytest.raises(UsageError, match=said):
        stressed(tmp_path, **options)  # type: ignore[arg-type]


def test_a_name_without_a_function() -> None:
    with pytest.raises(UsageError, match="is not of the form"):
        stress_foreign("module", Setting(), seeds=range(1), num_operations=1, timeout_seconds=1, memory_bytes=1 << 30)


def test_the_worker_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, for what a child process does unseen."""
    monkeypatch.setattr("sys.path", list(sys.path))
    request = {
        "allocator": "degarble.kvcache.allocator:make",
        "setting": {"num_blocks": 20, "window": 30, "trash_block": 0},
        "seeds": [0, 1],
        "num_operations": 40,
        "path": str(tmp_path),
    }
    answer = work(request)
    assert answer["result"]["breach"] is None and answer["result"]["num_operations"] > 10
    assert "TypeError" in work(request | {"setting": {"nothing": 1}})["error"]
