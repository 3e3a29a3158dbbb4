"""KV events of vLLM and SGLang in every form of recording: healthy ones are silent, each fault is found at its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from degarble.api import trace
from degarble.finding import Severity
from degarble.report.interface import Report, Status
from degarble.runner import Outcome
from tests.trace_readers.recordings import (
    RECORDERS,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    as_frames,
    as_json_lines,
    frames,
    sglang_batches,
    vllm_batches,
)


def judged(tmp_path: Path, data: bytes, form: str | None = None) -> Report:
    path = tmp_path / "events.rec"
    path.write_bytes(data)
    report = trace([path], form=form)
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    return report


def the_only(report: Report) -> Any:
    assert len(report.findings) == 1, [(f.rule, f.message) for f in report.findings]
    return report.findings[0]


def store(hashes: list[Any], tokens: list[int], parent: Any = None, size: int = 4, **fields: Any) -> BlockStored:
    known = {"lora_id": None, "medium": "GPU", "lora_name": None, "kv_cache_spec_kind": "full_attention"} | fields
    return BlockStored(block_hashes=hashes, parent_block_hash=parent, token_ids=tokens, block_size=size, **known)


def batches(*events: Any) -> list[EventBatch]:
    """One event a batch."""
    return [EventBatch(ts=float(at), events=[event]) for at, event in enumerate(events)]


ABCD, EFGH = [1, 2, 3, 4], [5, 6, 7, 8]


@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_healthy_recordings_are_silent_and_never_ok(engine: str, recorder: str, tmp_path: Path) -> None:
    made: list[Any] = sglang_batches() if engine == "sglang" else vllm_batches(as_bytes="json" not in recorder)
    report = judged(tmp_path, RECORDERS[recorder](made))
    assert report.findings == () and report.status is Status.PARTIAL, report.failure
    outcomes = {result.rule: result for result in report.results}
    assert {rule for rule, one in outcomes.items() if one.outcome is Outcome.OK} == {"KVC608", "KVC623", "KVC627"}
    assert "no block ids" in str(outcomes["KVC602"].reason) and "no block ids" in report.unjudged["KV events"]
    assert ("batches without a sequence number" in report.unjudged) == (recorder == "payloads")


@pytest.mark.parametrize("seed", range(4))
def test_healthy_seeds(seed: int, tmp_path: Path) -> None:
    assert judged(tmp_path, as_frames(vllm_batches(seed))).findings == ()


def test_a_missing_batch_is_found_and_what_follows_from_it_is_not_told_twice(tmp_path: Path) -> None:
    sent = frames(vllm_batches())
    report = judged(tmp_path, b"".join(msgspec.msgpack.encode(one) for at, one in enumerate(sent) if at != 9))
    found = the_only(report)
    assert (found.rule, found.location.line, found.severity) == ("KVC623", 9, Severity.ERROR)
    assert "goes from 8 to 10: 1 batches are missing" in found.message


def test_exchanged_and_repeated_batches(tmp_path: Path) -> None:
    sent = [msgspec.msgpack.encode(one) for one in frames(vllm_batches())]
    exchanged = [*sent[:5], sent[6], sent[5], *sent[7:]]
    assert judged(tmp_path, b"".join(exchanged)).causes[0].finding.location.line == 5
    assert judged(tmp_path, b"".join([*sent[:5], sent[4], *sent[5:]])).causes[0].finding.location.line == 5


def test_a_restart_clears_and_is_a_note(tmp_path: Path) -> None:
    made = vllm_batches()
    found = the_only(judged(tmp_path, as_frames(made[:8]) + as_frames(made)))
    assert (found.rule, found.severity, found.location.line) == ("KVC623", Severity.INFO, 8)


def test_a_recording_that_begins_late_blames_nobody(tmp_path: Path) -> None:
    report = judged(tmp_path, b"".join(msgspec.msgpack.encode(one) for one in frames(vllm_batches())[10:]))
    assert report.findings == () and any("begins at 10" in what for what in report.unjudged)


@pytest.mark.parametrize(
    ("events", "rule", "line", "said"),
    [
        ((store([1], ABCD), BlockRemoved([1], "GPU"), BlockRemoved([1], "GPU")), "KVC623", 2, "was removed before"),
        ((store([1], ABCD), BlockRemoved([2], "GPU")), "KVC623", 1, "was never stored"),
        ((store([1], ABCD), BlockRemoved([1], "CPU")), "KVC623", 1, "has no copy there (copies on GPU)"),
        ((store([1], ABCD), store([3], EFGH, parent=2)), "KVC623", 1, "after the parent 2, which was never stored"),
        ((store([1], ABCD), AllBlocksCleared(), BlockRemoved([1], "GPU")), "KVC623", 2, "was never stored"),
        ((store([1, 2], ABCD),), "KVC627", 0, "2 blocks of 4 tokens are published with 4 token ids"),
        ((store([1], ABCD), store([1], EFGH)), "KVC608", 1, "token ids differ from those of record 0"),
        ((store([1], ABCD), store([2], EFGH, parent=1), store([2], EFGH)), "KVC608", 2, "parents differ"),
        ((store([1], ABCD), store([1], ABCD, lora_name="x")), "KVC608", 1, "adapters, salts or images differ"),
        ((store([1], ABCD, extra_keys=[("a",)]), store([1], ABCD, extra_keys=[("b",)])), "KVC608", 1, "adapters"),
    ],
)
@pytest.mark.parametrize("recorder", ["frames", "json-lines"])
def test_faults(events: tuple[Any, ...], rule: str, line: int, said: str, recorder: str, tmp_path: Path) -> None:
    found = the_only(judged(tmp_path, RECORDERS[recorder](batches(*events))))
    assert (found.rule, found.location.line) == (rule, line) and said in found.message


@pytest.mark.parametrize(
    "events",
    [
        (store([1], ABCD), store([1], ABCD), BlockRemoved([1], "GPU"), BlockRemoved([1], "GPU")),
        (store([1], ABCD), store([1], ABCD, medium="CPU"), BlockRemoved([1], "GPU"), BlockRemoved([1], "CPU")),
        (store([1], ABCD, group_idx=0), store([1], EFGH, group_idx=1)),
        (store([2], ABCD + EFGH, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=4),),
        (store([1], ABCD), BlockRemoved([1], "GPU"), store([1], ABCD), BlockRemoved([1], "GPU")),
        (store([1], ABCD), AllBlocksCleared(), store([1], ABCD)),
    ],
)
def test_look_alikes(events: tuple[Any, ...], tmp_path: Path) -> None:
    """Two copies, two media, two groups, columns outside a window, a hash that comes back."""
    assert judged(tmp_path, as_frames(batches(*events))).findings == ()


def test_a_hash_under_two_parents_is_legal_where_hashes_are_not_chained(tmp_path: Path) -> None:
    """SGLang keys its entries by parent and hash (arrays); vLLM's hashes contain the parent (maps)."""
    events: list[Any] = [
        ["BlockStored", [1], None, ABCD, 4, None, "GPU"],
        ["BlockStored", [2], 1, EFGH, 4, None, "GPU"],
    ]
    events.append(["BlockStored", [2], None, EFGH, 4, None, "GPU", {"cache_salt": "s"}])
    made = [[float(at), [event], 0] for at, event in enumerate(events)]
    found = the_only(judged(tmp_path, as_frames(made)))
    assert "adapters, salts or images differ" in found.message and "parents" not in found.message
    events[2] = events[2][:-1]
    assert judged(tmp_path, as_frames([[float(at), [event], 0] for at, event in enumerate(events)])).findings == ()


def test_fields_and_events_of_later_versions(tmp_path: Path) -> None:
    made = msgspec.to_builtins(batches(store([1], ABCD, session_id="s", ownership="o", locality="l")))
    made[0]["events"][0]["colour"] = {"deep": [1]}
    made[0]["events"].append({"type": "BlockMoved", "block_hashes": [1]})
    found = the_only(judged(tmp_path, as_json_lines(made)))
    assert (found.severity, found.location.line) == (Severity.INFO, 0) and "BlockMoved" in found.message


def test_ranks_have_their_own_index_and_files(tmp_path: Path) -> None:
    paths = []
    for rank in (0, 1):
        made = [EventBatch(ts=0.0, events=[store([1], ABCD if rank else EFGH)], data_parallel_rank=rank)]
        paths.append(tmp_path / f"rank{rank}")
        paths[-1].write_bytes(as_frames(made))
    assert trace(paths).findings == ()
    both = tmp_path / "both"
    both.write_bytes(b"".join(path.read_bytes() for path in paths))
    assert trace([both]).findings == ()


def test_what_is_cut_off_is_found_and_not_taken_for_checked(tmp_path: Path) -> None:
    data = as_frames(vllm_batches())
    report = judged(tmp_path, data[:-10])
    found = the_only(report)
    assert found.rule == "KVC623" and "is cut off" in found.message and "the end of the file" in report.unjudged


def test_forced_format(tmp_path: Path) -> None:
    assert judged(tmp_path, as_json_lines(vllm_batches(as_bytes=False)), "kv-events").findings == ()
    report = judged(tmp_path, b"hello\n" * 50, "kv-events")
    assert report.status is Status.ERROR and "is a batch" in str(report.failure)
