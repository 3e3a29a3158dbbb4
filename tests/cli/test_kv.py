"""`degarble kv lint|stress|compare-dump` as commands: output, status, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from degarble.cli.app import run

HEALTHY = Path(__file__).parents[1] / "cases" / "kv" / "healthy.json"


def test_lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kv", "lint", str(HEALTHY)]) == 0
    assert "nothing wrong found" in capsys.readouterr().out
    wrong = tmp_path / "kv.json"
    document = json.loads(HEALTHY.read_text())
    document["groups"][0]["strides"][0] = 100
    wrong.write_text(json.dumps(document))
    assert run(["kv", "lint", str(wrong), "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["causes"][0]["rule"] == "KVC601"
    assert report["findings"][0]["location"] == {"file": "kv.json", "key": "groups[0].strides"}
    assert run(["kv", "lint", str(tmp_path / "absent.json")]) == 2
    assert run(["kv", "lint", str(HEALTHY), "--fail-on", "never"]) == 2


@pytest.mark.parametrize("format", ["text", "json", "sarif", "junit", "markdown", "github", "html"])
def test_lint_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str) -> None:
    wrong = tmp_path / "kv.json"
    wrong.write_text(HEALTHY.read_text().replace('"written": 3072', '"written": 4096'))
    assert run(["kv", "lint", str(wrong), "--format", format]) == 1
    assert "KVC609" in capsys.readouterr().out


def test_stress(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--seeds", "2", "--operations", "60"]
    assert run(["kv", "stress", *few]) == 0
    assert "2 seeds" in capsys.readouterr().err
    assert run(["kv", "stress", "--seeds", "30", "--plant", "salt-ignored", "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["causes"][0]["rule"] == "KVC608" and report["target"]["kind"] == "kv-allocator"
    assert run(["kv", "stress", "--plant", "list"]) == 0
    assert "rollback-short" in capsys.readouterr().out
    assert run(["kv", "stress", "--plant", "nothing"]) == 2
    assert run(["kv", "stress", "no_such_module:make"]) == 2
    assert "no_such_module" in capsys.readouterr().err
    assert run(["kv", "stress", "degarble.kvcache.allocator:make", *few, "--host-blocks", "9", "--window", "30"]) == 0


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).standard_normal((4, 8, 2, 16)).astype(np.float32)
    np.save(tmp_path / "nhd.npy", rows)
    np.save(tmp_path / "hnd.npy", np.ascontiguousarray(rows.transpose(0, 2, 1, 3)))
    np.save(tmp_path / "misread.npy", np.ascontiguousarray(rows.transpose(0, 2, 1, 3)).reshape(rows.shape))
    return tmp_path


def compare(folder: Path, first: str, second: str, *more: str) -> int:
    return run(["kv", "compare-dump", str(folder / first), str(folder / second), *more])


def test_compare_dump(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(dumps, "nhd.npy", "hnd.npy", "--layout", "NHD", "--second-layout", "HND") == 0
    assert "equal: [layer, kv, token, head, dim] = [1, 1, 32, 2, 16]" in capsys.readouterr().out
    assert compare(dumps, "misread.npy", "nhd.npy", "--layout", "NHD") == 1
    assert "the first dump is laid out as HND" in capsys.readouterr().out
    axes = "num_blocks,block_size,num_kv_heads,head_dim"
    table = ["--table", "3,1", "--second-table", "1,3", "--num-tokens", "9"]
    assert compare(dumps, "nhd.npy", "nhd.npy", "--layout", axes, *table, "--format", "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["difference"]["token"] == 0 and document["difference"]["explanation"] is None
    assert document["shape"] == [1, 1, 9, 2, 16]


def test_the_first_bad_token_names_a_boundary(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.load(dumps / "nhd.npy")
    for name, first in (("chunk", 20), ("nowhere", 21)):
        wrong = rows.copy().reshape(32, 2, 16)
        wrong[first:, :, 3] += 1
        np.save(dumps / f"{name}.npy", wrong.reshape(rows.shape))
    options = ["--layout", "NHD", "--chunk", "20", "--window", "15", "--rejected", "3,9"]
    assert compare(dumps, "chunk.npy", "nhd.npy", *options) == 1
    assert "token 20 is a multiple of the chunk size 20 (by chance 0.05)" in capsys.readouterr().out
    assert compare(dumps, "nowhere.npy", "nhd.npy", *options, "--format", "json") == 1
    found = json.loads(capsys.readouterr().out)["difference"]
    assert found["first_token"] == 21
    assert found["boundary"].startswith(
        "token 21 lies on no boundary that was tried (block 8, chunk 20, window 15, edge"
    )
    assert compare(dumps, "nhd.npy", "chunk.npy", "--layout", "NHD", "--rejected", "x") == 2


def test_compare_safetensors(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    rows = np.load(dumps / "nhd.npy")
    safetensors.save_file({"k.0": rows}, dumps / "one.safetensors")
    safetensors.save_file({"k.0": rows, "k.1": rows + 1}, dumps / "two.safetensors")
    assert compare(dumps, "nhd.npy", "one.safetensors", "--layout", "NHD") == 0
    assert compare(dumps, "one.safetensors", "two.safetensors", "--layout", "NHD") == 2
    assert "name one of its tensors with --tensor: k.0, k.1" in capsys.readouterr().err
    assert compare(dumps, "two.safetensors", "two.safetensors", "--layout", "NHD", "--tensor", "k.0") == 0
    both = ["--tensor", "k.0", "--second-tensor", "k.1"]
    assert compare(dumps, "two.safetensors", "two.safetensors", "--layout", "NHD", *both) == 1


@pytest.mark.parametrize(
    ("name", "data", "options", "said"),
    [
        ("a.npy", b"no array", [], "no .npy array"),
        ("a.npy", b"", [], "no .npy array"),
        ("a.bin", b"x", [], "expected a .npy or .safetensors file"),
        ("a.safetensors", b"x", [], "a.safetensors"),
        (None, b"", [], "No such file"),
        ("nhd.npy", None, ["--table", "1;2"], "block ids or positions with commas"),
        ("nhd.npy", None, ["--table", "9"], "names blocks outside"),
        ("nhd.npy", None, ["--layout", "DHN"], "no layout is called"),
        ("nhd.npy", None, ["--layout", "MLA"], "has 3 axes"),
        ("nhd.npy", None, ["--format", "xml"], "text or json"),
    ],
)
def test_bad_dumps(
    dumps: Path, capsys: pytest.CaptureFixture[str], name: str | None, data: bytes | None, options: list[str], said: str
) -> None:
    if name is not None and data is not None:
        (dumps / name).write_bytes(data)
    layout = [] if "--layout" in options else ["--layout", "NHD"]
    assert compare(dumps, name or "absent.npy", "nhd.npy", *layout, *options) == 2
    assert said in capsys.readouterr().err


def test_pickled_arrays_are_refused(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(dumps / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert compare(dumps, "objects.npy", "nhd.npy", "--layout", "NHD") == 2
    np.save(dumps / "text.npy", np.array(["a"]))
    assert compare(dumps, "text.npy", "nhd.npy", "--layout", "NHD") == 2
    assert "expected numbers" in capsys.readouterr().err
