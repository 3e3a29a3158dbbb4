"""Folders made to hang, exhaust or mislead: links, pipes, sparse files, bombs of nesting and shape."""

from __future__ import annotations

import json
import os
import struct
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from degarble.api import check, check_source
from degarble.checkpoint.workspace import Workspace
from degarble.errors import DegarbleError
from degarble.report.interface import Report
from degarble.report.json import render
from degarble.target import open_target
from tests.checkpoint.raw_files import entry, in_memory, safetensors


@contextmanager
def within(seconds: float, megabytes: float | None = None) -> Iterator[None]:
    """Fails if the block takes longer, or more memory than this. Counting memory makes Python several times slower."""
    start = time.perf_counter()
    if megabytes is None:
        yield
    else:
        tracemalloc.start()
        try:
            yield
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < megabytes * 1e6, f"{peak / 1e6:.0f} MB"
    assert time.perf_counter() - start < seconds


def copied(golden: Path, name: str, to: Path) -> Path:
    """A golden checkpoint in a folder that may be damaged."""
    Workspace(open_target(golden / name)).save(to)
    for path in to.iterdir():  # not the hard links into the shared copy
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    return to


def rules_of(report: Report) -> set[str]:
    """Ids of the rules that found something."""
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    json.loads(render(report))
    return {finding.rule for finding in report.findings}


def test_links_loops_and_pipes(golden: Path, tmp_path: Path) -> None:
    """They are named as not read, and the report is not `ok`."""
    folder = copied(golden, "own-sharded-bf16", tmp_path / "m")
    (folder / "loop.safetensors").symlink_to("loop.safetensors")
    (folder / "up").symlink_to("..")
    (folder / "out.safetensors").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe.safetensors")
    with within(5):
        report = check(folder)
    assert {"loop.safetensors", "out.safetensors", "pipe.safetensors", "up"} <= set(report.unjudged)
    assert report.status == "partial"


def test_a_shard_that_is_a_pipe_or_a_folder(golden: Path, tmp_path: Path) -> None:
    """The index names it, so it is missing; it is never opened."""
    for number, make in enumerate((os.mkfifo, os.mkdir)):
        folder = copied(golden, "own-sharded-bf16", tmp_path / f"m{number}")
        shard = folder / "model-00002-of-00002.safetensors"
        shard.unlink()
        make(shard)
        with within(5):
            report = check(folder)
        assert report.causes[0].finding.rule == "CKP102"
        assert report.causes[0].finding.location.file == shard.name
        assert shard.name in report.unjudged


def test_only_a_folder_named_like_weights(tmp_path: Path) -> None:
    """Nothing was read, so nothing is called clean."""
    (tmp_path / "model.safetensors").mkdir()
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    report = check(tmp_path)
    assert report.status != "ok" and "model.safetensors" in report.unjudged


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "a/../../x", "..", "C:\\x", "file:///etc/passwd", "x\0y", "/dev/zero"]
)
def test_names_in_the_index_that_lead_out(golden: Path, tmp_path: Path, name: str) -> None:
    """An error at the index, and no attempt to open the file."""
    folder = copied(golden, "own-sharded-bf16", tmp_path / "m")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensor = sorted(index["weight_map"])[3]
    index["weight_map"][tensor] = name
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with within(5):
        first = check(folder).causes[0].finding
    assert (first.rule, first.location.file, first.location.tensor) == (
        "CKP102",
        "model.safetensors.index.json",
        tensor,
    )
    assert "never opened" in first.message


def test_a_sparse_json_file_is_refused_unread(golden: Path, tmp_path: Path) -> None:
    """300 MB of zeros cost a look at the size."""
    for file in ("config.json", "model.safetensors.index.json"):
        folder = copied(golden, "own-sharded-bf16", tmp_path / file)
        (folder / file).touch()
        os.truncate(folder / file, 300_000_000)
        with within(5, 30):
            report = check(folder)
        assert report.status in ("findings", "partial"), file
        assert any(file in str(f.location.file) for f in report.findings) or any(
            file in what for what in report.unjudged
        )


BOMBS = {
    "nested arrays": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "closed nesting": b"[" * 100_000 + b"]" * 100_000,
    "just too deep": b'{"a":' * 101 + b"1" + b"}" * 101,
    "byte order mark": b'\xef\xbb\xbf{"model_type": "llama"}',
    "utf-16": '{"model_type": "llama"}'.encode("utf-16"),
    "latin-1": b'{"model_type": "\xe9"}',
    "lone surrogate": b'{"model_type": "\\ud800"}',
    "huge number": b'{"hidden_size": 1' + b"0" * 50_000 + b"}",
    "huge exponent": b'{"hidden_size": 1e999999}',
    "nan": b'{"hidden_size": NaN}',
    "empty": b"",
    "zeros": bytes(4096),
    "array": b"[1]",
    "text": b'"x"',
    "null": b"null",
    "cut": b'{"model_type": "lla',
    "same key twice": b'{"hidden_size": 1, "hidden_size": 2}',
    "page": b"<!DOCTYPE html><html></html>",
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "empty lists": b'{"a": [' + b"[]," * 300_000 + b"[]]}",
    "many keys": json.dumps({f"k{number}": number for number in range(100_000)}).encode(),
}


@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors.index.json", "generation_config.json", "hf_quant_config.json"]
)
@pytest.mark.parametrize("bomb", BOMBS)
def test_json_bombs(golden: Path, bomb: str, file: str) -> None:
    """A report, quickly, in bounded memory; the file is named unless it is harmless."""
    workspace = Workspace(open_target(golden / "own-sharded-bf16"))
    workspace.write(file, BOMBS[bomb])
    with within(15):
        report = check_source(workspace.source())
    rules_of(report)
    if file == "model.safetensors.index.json" and bomb not in ("empty lists", "many keys", "same key twice"):
        assert any(f.rule == "CKP105" and f.location.file == file for f in report.findings)


def sparse_gguf(path: Path, start: bytes, size: int) -> None:
    """A file that begins like this and is zeros up to `size`, at no cost on the disk."""
    path.write_bytes(start)
    os.truncate(path, size)


GB = 1 << 30


@pytest.mark.parametrize(
    "start",
    [
        b"GGUF" + struct.pack("<IQQ", 3, 20_000, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 20_000),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2 * GB),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IQ", 8, 2 * GB),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, GB // 8),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, GB // 4),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 9, GB // 16),
    ],
)
def test_sparse_gguf_with_huge_promises(tmp_path: Path, start: bytes) -> None:
    """Counts and lengths that the (sparse) file could hold still decide over no memory."""
    sparse_gguf(tmp_path / "m.gguf", start, 3 * GB)
    with within(40, 300):
        report = check(tmp_path / "m.gguf")
    assert rules_of(report) & {"CKP101", "CKP105"}


def test_sparse_safetensors_with_huge_promises(tmp_path: Path) -> None:
    """A header of 90 MB that is zeros behind its first bracket."""
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 90_000_000) + b"{")
    os.truncate(tmp_path / "model.safetensors", 3 * GB)
    with within(8, 300):
        assert "CKP105" in rules_of(check(tmp_path))


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [([2**60], 2**62), ([2**30, 2**30], 2**62), ([2**62, 0], 0), ([1] * 1000, 4), ([0] * 1000, 0), ([2**31], 2**33)],
)
@pytest.mark.parametrize(
    "name", ["model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.qweight", "lm_head.weight", "x"]
)
def test_shapes_like_bombs(golden: Path, name: str, shape: list[int], nbytes: int) -> None:
    """Elements by the exabyte are arithmetic, never an array."""
    config = (golden / "own-untied-bf16" / "config.json").read_bytes()
    header = {
        name: entry("F32", shape, 0, nbytes),
        "model.layers.0.mlp.up_proj.scales": entry("F16", [2**40, 0], nbytes, nbytes),
    }
    source = in_memory({"config.json": config, "model.safetensors": safetensors(header)})
    with within(5):
        found = rules_of(check_source(source))
    assert nbytes == 0 or "CKP101" in found


def test_gguf_shapes_like_bombs() -> None:
    """The same in GGUF, with axes that multiply past 64 bits."""
    for axes in ([2**60, 2**60], [2**63], [2**62, 4, 0], [0, 0, 0, 0], []):
        for kind in (0, 12, 30):
            name = b"blk.0.ffn_up.weight"
            info = struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, 0)
            data = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + info
            with within(5):
                found = rules_of(check_source(in_memory({"m.gguf": data + bytes(64)})))
            assert found & {"CKP101", "CKP105"} or 0 in axes or not axes


def test_a_header_of_a_million_tensors() -> None:
    """More tensors than any model has in one file are refused before they are built."""
    one = b'"%07d":{"dtype":"U8","shape":[],"data_offsets":[0,0]}'
    raw = b"{" + b",".join(one % number for number in range(600_000)) + b"}"
    source = in_memory({"model.safetensors": safetensors(raw)})
    with within(8, 100):
        assert "CKP105" in rules_of(check_source(source))


def test_odd_names_of_tensors_and_files(golden: Path) -> None:
    """Names with every kind of letter reach the report intact and break nothing."""
    config = (golden / "base-bf16" / "config.json").read_bytes()
    names = [
        "",
        ".",
        "..",
        "a..b",
        "\u202e",
        "\ud7ff",
        "é" * 1000,
        "x\ny",
        "'; DROP",
        "\x1b[31m",
        "blk.1e9.attn_q.weight",
    ]
    names += ["model.layers.99999999999999999999.x.weight", "model.layers.-1.y", "model.layers.٣.z"]
    names += ["model.layers.0.mlp.experts.99999999.up_proj.weight", "blk.1e9.attn_q.weight"]
    header = {name: entry("F32", [1], 4 * at, 4 * at + 4) for at, name in enumerate(names)}
    files = {"config.json": config, "model.safetensors": safetensors(header, bytes(4 * len(names)))}
    files |= {"\u202e.safetensors": safetensors({"y": entry("F32", [1], 0, 8)}, bytes(4)), "é\n.bin": b"x"}
    assert {"CKP105", "CKP109"} <= rules_of(check_source(in_memory(files)))


def test_unreadable_files(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is listed and cannot be opened is a finding or unjudged, never a crash, never clean."""
    from degarble.checkpoint import folder as module

    folder = copied(golden, "own-sharded-bf16", tmp_path / "m")
    for name in sorted(path.name for path in folder.iterdir()):
        if name in ("oracle.json", "tokenizer.json", "chat_template.jinja"):
            continue

        def closed(path: os.PathLike[str], mode: str = "r", name: str = name) -> object:
            if Path(path).name == name:
                raise PermissionError(13, "Permission denied")
            return open(path, mode)

        monkeypatch.setattr(module, "open", closed, raising=False)
        report = check(folder)
        rules_of(report)
        mentioned = [str(f.location.file) for f in report.findings] + list(report.unjudged)
        is_read = name.endswith(".safetensors") or name in ("config.json", "model.safetensors.index.json")
        assert not is_read or any(name in what for what in mentioned), (name, mentioned)


def test_targets_that_are_hostile(tmp_path: Path) -> None:
    """Devices, pipes and loops as the target itself: a message, at once."""
    os.mkfifo(tmp_path / "p.safetensors")
    (tmp_path / "l.gguf").symlink_to("l.gguf")
    (tmp_path / "z.safetensors").symlink_to("/dev/zero")
    for target in (
        tmp_path / "p.safetensors",
        tmp_path / "l.gguf",
        tmp_path / "z.safetensors",
        "/dev/zero",
        "/dev/null",
    ):
        with within(5):
            try:
                report = check(target)
            except DegarbleError:
                continue
            assert report.status == "error" and report.failure
