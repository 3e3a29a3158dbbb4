"""Recordings as engines and profilers make them, written by their own definitions of the formats.

The structs have the names, tags and order of vllm/distributed/kv_events.py and sglang/srt/disaggregation/kv_events.py; the
tables have the columns of an Nsight Systems export; both are encoded, not typed in. What is stored and removed comes from the
simulator of the trace tests, so that prefixes are shared and blocks are evicted as an engine does it.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from degarble.trace_faults.interface import TracePatient
from tests.trace.simulator import trace_of


class EventBatch(msgspec.Struct, omit_defaults=True, gc=False):
    """vLLM's batch."""

    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class BlockStored(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """vLLM's event."""

    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None


class BlockRemoved(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """vLLM's event."""

    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """vLLM's event."""


class SGLangBatch(msgspec.Struct, array_like=True, gc=False):
    """SGLang's batch: an array."""

    ts: float
    events: list[Any]
    attn_dp_rank: int | None = None


class SGLangStored(msgspec.Struct, array_like=True, gc=False, tag="BlockStored"):
    """SGLang's event: an array whose first item is the tag."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None


class SGLangRemoved(msgspec.Struct, array_like=True, gc=False, tag="BlockRemoved"):
    """SGLang's event."""

    block_hashes: list[int]
    medium: str | None = None


def number_of(name: Any) -> int:
    """A 64-bit hash for a name of the simulator, never the same for two."""
    return int.from_bytes(str(name).encode().rjust(8, b"\0")[-8:], "big")


def stored_and_removed(seed: int = 1, steps: int = 600) -> list[list[dict[str, Any]]]:
    """Store and evict events of a simulated run, those of a step together."""
    batches: list[list[dict[str, Any]]] = [[]]
    for event in trace_of("tight", seed, steps):
        if event["ev"] in ("store", "evict"):
            batches[-1].append(event)
        elif event["ev"] == "step" and event["ph"] == "E":
            batches.append([])
    return [batch for batch in batches if batch]


def vllm_batches(seed: int = 1, *, as_bytes: bool = True, steps: int = 600, **fields: Any) -> list[EventBatch]:
    """The run as vLLM publishes it."""

    def digest(name: Any) -> bytes | int:
        return number_of(name).to_bytes(32, "big") if as_bytes else number_of(name)

    batches = []
    for at, events in enumerate(stored_and_removed(seed, steps)):
        made: list[Any] = []
        for event in events:
            hashes = [digest(name) for name in event["h"]]
            if event["ev"] == "evict":
                made.append(BlockRemoved(block_hashes=hashes, medium="GPU"))
                continue
            parent = event.get("parent")
            namespace = event.get("ns") or {}
            keys = tuple(f"{key}={value}" for key, value in sorted(namespace.items()) if value) or None
            made.append(
                BlockStored(
                    block_hashes=hashes,
                    parent_block_hash=None if parent is None else digest(parent),
                    token_ids=event["ids"],
                    block_size=len(event["ids"]) // len(hashes),
                    lora_id=None,
                    medium="GPU",
                    lora_name=namespace.get("lora"),
                    extra_keys=None if keys is None else [keys] * len(hashes),
                    kv_cache_spec_kind="full_attention",
                    **fields,
                )
            )
        batches.append(EventBatch(ts=1790000000.0 + at, events=made, data_parallel_rank=0))
    return batches


def sglang_batches(seed: int = 1, steps: int = 600) -> list[SGLangBatch]:
    """The run as SGLang publishes it."""
    batches = []
    for at, batch in enumerate(vllm_batches(seed, as_bytes=False, steps=steps)):
        made: list[Any] = []
        for event in batch.events:
            hashes = [int(one) for one in event.block_hashes]
            if isinstance(event, BlockRemoved):
                made.append(SGLangRemoved(block_hashes=hashes, medium="GPU"))
            else:
                parent = event.parent_block_hash
                made.append(
                    SGLangStored(
                        hashes, None if parent is None else int(parent), event.token_ids, event.block_size, None
                    )
                )
                made[-1].medium = "GPU"
        batches.append(SGLangBatch(ts=float(at), events=made, attn_dp_rank=0))
    return batches


def frames(batches: Sequence[Any], first: int = 0) -> list[tuple[bytes, bytes, bytes]]:
    """Topic, sequence and payload of every message."""
    encode = msgspec.msgpack.encode
    return [(b"kv-events", (first + at).to_bytes(8, "big"), encode(batch)) for at, batch in enumerate(batches)]


def as_frames(batches: Sequence[Any]) -> bytes:
    """A recorder that packs every message it received."""
    return b"".join(msgspec.msgpack.encode(frame) for frame in frames(batches))


def as_replay(batches: Sequence[Any]) -> bytes:
    """A recorder of a replay: sequence and payload, and the end marker."""
    end = msgspec.msgpack.encode([(-1).to_bytes(8, "big", signed=True), b""])
    return b"".join(msgspec.msgpack.encode(frame[1:]) for frame in frames(batches)) + end


def as_payloads(batches: Sequence[Any]) -> bytes:
    """A recorder that appends payloads: no sequence numbers."""
    return b"".join(msgspec.msgpack.encode(batch) for batch in batches)


def as_json_lines(batches: Sequence[Any]) -> bytes:
    """A recorder in JSON, one message a line."""
    return b"".join(
        msgspec.json.encode({"topic": "kv-events", "seq": at, "batch": batch}) + b"\n"
        for at, batch in enumerate(batches)
    )


def as_json_document(batches: Sequence[Any]) -> bytes:
    """The same as one array over several lines."""
    return msgspec.json.format(msgspec.json.encode([{"seq": at, "batch": batch} for at, batch in enumerate(batches)]))


RECORDERS: dict[str, Callable[[Sequence[Any]], bytes]] = {
    "frames": as_frames,
    "replay": as_replay,
    "payloads": as_payloads,
    "json-lines": as_json_lines,
    "json-document": as_json_document,
}


def observations(flavour: str, seed: int = 1, num_layers: int = 2) -> list[dict[str, Any]]:
    """A simulated run as a KV connector sees it: batches instead of forwards, no hashes, several layers."""
    events = trace_of(flavour, seed, 300)
    meta = events[0] | {"observer": "kv-connector"}
    made: list[dict[str, Any]] = [meta]
    batch: list[dict[str, Any]] = []
    taken: dict[str, int] = {}
    patient = TracePatient(events=events, rng=random.Random(0))
    step: Any = None
    for _, event, state in patient.states():
        kind = event["ev"]
        if kind == "fwd":
            table = state.sequences[event["req"]].tables[0]
            batch.append(event | {"tab": [-1 if block is None else block.id for block in table.blocks]})
            continue
        if kind == "step" and event["ph"] == "E" and batch:
            made += [attention(batch, step, layer) for layer in range(num_layers)]
            batch = []
        if kind == "step":
            step = event["step"]
        if kind == "hit":
            taken[event["req"]] = event["tok"]
        elif kind not in ("meta", "store", "evict"):
            made.append(dict(event))
        if kind == "ref" and event["req"] in taken:
            made.append({"ev": "commit", "req": event["req"], "len": taken.pop(event["req"])})
    return [event | {"n": n} for n, event in enumerate(made)]


def attention(batch: Sequence[dict[str, Any]], step: Any, layer: int) -> dict[str, Any]:
    """What one layer is given for a batch."""
    starts = [0]
    for one in batch:
        starts.append(starts[-1] + len(one["slots"]))
    return {
        "ev": "attn",
        "step": step,
        "layer": f"model.layers.{layer}.self_attn.attn",
        "reqs": [one["req"] for one in batch],
        "starts": starts,
        "seq_lens": [one["kv"] for one in batch],
        "slots": [slot for one in batch for slot in one["slots"]] + [-1],
        "tables": [one["tab"] for one in batch],
    }


def as_lines(events: Iterable[dict[str, Any]]) -> bytes:
    """JSON lines."""
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


CANARY_HEAD = (
    "[2026-11-02 10:00:00] server_args=ServerArgs(model_path='m', kv_canary='log', kv_canary_real_data='all')\n"
    "[2026-11-02 10:00:09] INFO: [canary] step=100 protected_tokens=51200 sweep_passes=3 violations=0 launch_tags_active=8/12\n"
)


def canary_violation(reasons: str, slot: int = 4711, position: int = 255, step: int = 812) -> str:
    """The seven lines of one violation, as violation_reporter.py formats them."""
    return (
        f"[2026-11-02 10:00:41] WARNING: kv_canary violation: launch_tag=HEAD_K_FULL fail_reason={reasons} slot_idx={slot} "
        f"position={position} stored_token=318 expected_token=2203 stored_chain_hash=0x00000000deadbeef "
        f"expected_aux=0x1234567890abcdef\n"
        f"KV cache canary violation detected (kernel_kind=HEAD_K_FULL, slot_idx={slot}, position={position})\n"
        f"canary_kind:       per_forward_head_k_full\n  fail_reasons: {reasons.replace('+', ' ')}\n"
        f"  stored:   token_id=318   position={position} prev_hash=0x00000000deadbeef\n"
        f"  expected: token_id=2203 prev_hash=0x1234567890abcdef\n"
        f"  total_violations=1 ring_overflow=False step_when_pumped={step}\n"
    )


KERNEL_COLUMNS = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId "
    "INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, "
    "shortName INTEGER NOT NULL, mangledName INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, "
    "gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL"
)
KernelRow = tuple[str, int, int, int, tuple[int, int, int], int]
"""Name, begin, end, stream, grid, begin of the call."""


def nsys_database(
    path: Path,
    kernels: Iterable[KernelRow],
    ranges: Iterable[tuple[str, int, int]] = (),
    copies: Iterable[tuple[int, int, int, int]] = (),
    *,
    epoch: int | None = None,
    lost: str | None = None,
) -> Path:
    """An export; copies are begin, end, stream, copyKind."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as base:
        base.executescript(
            "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
            "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);"
            "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0');"
            f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({KERNEL_COLUMNS});"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
            " contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, bytes INTEGER NOT NULL,"
            " copyKind INTEGER NOT NULL);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT"
            " NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);"
            "CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,"
            " text TEXT, globalTid INTEGER, textId INTEGER);"
            "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);"
            "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT);"
        )
        names: dict[str, int] = {}
        for at, (name, start, end, stream, grid, issued) in enumerate(kernels, 1):
            number = names.setdefault(name, len(names) + 1)
            row = (start, end, 0, 1, None, stream, at, 1, number, number, None, 32, *grid, 128, 1, 1)
            base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * len(row))})", row)
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,0,1,?,0,0)", (issued, issued + 5, at))
        base.executemany("INSERT INTO StringIds VALUES (?,?)", [(number, name) for name, number in names.items()])
        for at, (text, start, end) in enumerate(ranges, 1000):
            base.execute("INSERT INTO StringIds VALUES (?,?)", (at, text))
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,59,NULL,NULL,1,?)", (start, end, at))
        for start, end, stream, kind in copies:
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,0,1,?,NULL,4096,?)", (start, end, stream, kind)
            )
        if epoch is not None:
            base.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?,'','')", (epoch,))
        if lost is not None:
            base.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 2, ?)", (lost,))
    return path


WRITER = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, 0>(const __nv_bfloat16 *, long)"
READER = "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 128, 4>>(Flash_fwd_params)"

PROFILES = Path(__file__).parents[1] / "cases" / "profiles"
"""Texts as `ncu --csv` and `nsys stats` print them."""
