"""Damaged headers, indices, configs and GGUF files: a report every time, and no file called clean that is not.

Budget: 60 % of 2,100 examples, under a minute on two cores; `make test-slow` runs five times 2,100.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from gguf import GGUFReader
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors import deserialize

from degarble.api import check_source
from degarble.checkpoint.gguf import read_gguf
from degarble.checkpoint.interface import Source
from degarble.checkpoint.safetensors import read_header
from degarble.checkpoint.shard_edit import GgufEdit
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Settings
from degarble.registry import Level
from degarble.report.interface import Report
from degarble.report.json import render
from degarble.target import open_target
from tests.checkpoint.raw_files import safetensors
from tests.conftest import unpacked_golden
from tests.hostile.mutation import damaged_bytes, damaged_tree, split_header, with_files

SAFETENSORS = (
    "moe-qwen3moe-llmc-w4a16-g64",
    "moe-deepseekv3-llmc-w4a16-g64",
    "gptqmodel-gptq-sym-g128",
    "bitsandbytes-nf4",
    "llm-compressor-nvfp4",
    "own-deepseek-fp8-block-576",
    "quanto-int8",
)
GGUF = ("gguf-py-q8_0", "llama.cpp-q4_k_m", "llama.cpp-q4_0")
CONFIGS = (
    *SAFETENSORS,
    "modelopt-nvfp4",
    "torchao-int8wo",
    "gptqmodel-awq-gemm-g128",
    "llm-compressor-fp8-static-kvcache",
)


METADATA: tuple[tuple[Any, tuple[int, int | None]], ...] = (
    (0, (4, None)),
    (2**32 - 1, (4, None)),
    (2**64 - 1, (10, None)),
    (-1, (5, None)),
    (float("nan"), (6, None)),
    (float("inf"), (12, None)),
    (True, (7, None)),
    ("", (8, None)),
    ("x\udcff\0", (8, None)),
    ([], (9, 8)),
    (["a"] * 3, (9, 8)),
    ([], (9, 4)),
    ([2**31] * 5, (9, 4)),
    ([float("nan")], (9, 6)),
)
"""Values of every GGUF type, for keys of any."""

SHARE = float(os.environ.get("DEGARBLE_HOSTILE_SHARE", "0.6"))
"""Of the examples of each test."""
Test = TypeVar("Test", bound=Callable[..., None])


def tier(examples: int) -> Callable[[Test], Test]:
    """The same examples in every run: a failure here is a bug, never chance."""
    return settings(
        max_examples=max(1, round(examples * SHARE)),
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


@cache
def healthy(name: str) -> Source:
    """A golden checkpoint."""
    return open_target(unpacked_golden() / name)


@cache
def weights(name: str) -> tuple[str, bytes]:
    """Name and bytes of its weight file."""
    source = healthy(name)
    file = next(file for file in sorted(source.files()) if file.endswith((".safetensors", ".gguf")))
    return file, source.read(file)


LEVELS = st.sampled_from((Level.HEADER, Level.HEADER, Level.HEADER, Level.CONTENT))
"""Values are read in one case of four: it takes twice as long."""


def judged(source: Source, level: Level = Level.CONTENT) -> Report:
    """The report; fails if a check crashed, or if a container finding does not say where."""
    report = check_source(source, Settings(level=level))
    crashes = [f"{result.rule}: {result.reason}" for result in report.results if result.outcome == "crashed"]
    assert not crashes, crashes
    for finding in report.findings:
        assert finding.message and len(finding.message) < 20_000
        assert not finding.rule.startswith("CKP") or finding.location.file or finding.location.tensor
    json.loads(render(report))
    return report


def read_by_library(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Name and description of each tensor, as the format's own library has it."""
    found: list[tuple[str, dict[str, Any]]] = deserialize(data)  # type: ignore[no-untyped-call]
    return found


def is_clean(report: Report, *rules: str) -> bool:
    """Whether the container rules found nothing, having read something."""
    return report.failure is None and not any(finding.rule in rules for finding in report.findings)


@tier(500)
@given(st.data())
def test_damaged_safetensors_headers(data: st.DataObject) -> None:
    """By node and by byte. What passes as clean is read by the format's own library, with the same shapes."""
    name = data.draw(st.sampled_from(SAFETENSORS))
    file, raw = weights(name)
    tree, rest = split_header(raw)
    if data.draw(st.booleans()):
        text = json.dumps(data.draw(damaged_tree(tree)), ensure_ascii=data.draw(st.booleans())).encode(
            "utf-8", "surrogatepass"
        )
        changed = safetensors(text, rest)
    else:
        changed = data.draw(damaged_bytes(raw, first=len(raw) - len(rest)))
    source = with_files(healthy(name), {file: changed})
    report = judged(source, data.draw(LEVELS))
    if is_clean(report, "CKP101", "CKP105"):
        mine = read_header(source, file).tensors
        theirs = {tensor: (info["dtype"], tuple(info["shape"])) for tensor, info in read_by_library(changed)}
        assert {tensor: (info.dtype, info.shape) for tensor, info in mine.items()} == theirs


@tier(400)
@given(st.data())
def test_damaged_gguf(data: st.DataObject) -> None:
    """Bytes of the header. What passes as clean is read by gguf-py, with the same shapes."""
    name = data.draw(st.sampled_from(GGUF))
    file, raw = weights(name)
    changed = data.draw(damaged_bytes(raw, first=data.draw(st.sampled_from((64, 2_000, 40_000)))))
    source = with_files(healthy(name), {file: changed})
    report = judged(source, data.draw(LEVELS))
    if is_clean(report, "CKP101", "CKP105", "CKP106"):
        mine = read_gguf(source, file).tensors
        with tempfile.NamedTemporaryFile(suffix=".gguf") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Path(stream.name).write_bytes(changed)
            theirs = {
                tensor.name: tuple(map(int, reversed(tensor.shape))) for tensor in GGUFReader(stream.name).tensors
            }
        assert {tensor: info.shape for tensor, info in mine.items()} == theirs


def damaged_json(data: st.DataObject, raw: bytes) -> bytes:
    """Three times in four one node of the tree, else the bytes."""
    if data.draw(st.integers(0, 3)):
        return json.dumps(data.draw(damaged_tree(json.loads(raw)))).encode()
    return data.draw(damaged_bytes(raw))


@tier(600)
@given(st.data())
def test_damaged_configs(data: st.DataObject) -> None:
    """config.json and the sidecars of every method, by node and by byte."""
    name = data.draw(st.sampled_from(CONFIGS))
    source = healthy(name)
    file = data.draw(
        st.sampled_from(sorted(f for f in source.files() if f.endswith(".json") and f not in ("oracle.json",)))
    )
    raw = source.read(file)
    judged(with_files(source, {file: damaged_json(data, raw)}), data.draw(LEVELS))


@tier(300)
@given(st.data())
def test_damaged_indices(data: st.DataObject) -> None:
    """The shard index by node and by byte; names in it are never opened unless they are files of the folder."""
    source = healthy("own-sharded-bf16")
    file = "model.safetensors.index.json"
    raw = source.read(file)
    judged(with_files(source, {file: damaged_json(data, raw)}), data.draw(LEVELS))


@tier(300)
@given(st.data())
def test_damaged_gguf_metadata(data: st.DataObject) -> None:
    """Metadata values of every type, in headers that are otherwise sound."""
    name = data.draw(st.sampled_from(GGUF))
    file, _ = weights(name)
    workspace = Workspace(healthy(name))
    edit = workspace.shard(file)
    assert isinstance(edit, GgufEdit)
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(edit.metadata)))
        value, kind = data.draw(st.sampled_from(METADATA))
        if data.draw(st.booleans()):
            edit.set_metadata(key, value, kind)
        elif key in edit.metadata:
            edit.drop_metadata(key)
    edit.changed = True
    judged(workspace.source(), data.draw(LEVELS))


@pytest.mark.parametrize("name", SAFETENSORS + GGUF)
def test_healthy_files_pass_as_clean(name: str) -> None:
    """The comparison above is not vacuous."""
    assert is_clean(judged(healthy(name)), "CKP101", "CKP105", "CKP106")
