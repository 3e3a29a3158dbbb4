"""Hostile files: refused by name, with what was expected and found; nothing of them is run."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from degarble.errors import MalformedFile
from degarble_engine.dumps.tensor_file import keys_of, read_tensor


class Evil:
    """Would leave a file behind if anything ran it."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("ran", "w")


def npy_objects(path: Path) -> Path:
    np.save(path / "x.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    return path / "x.npy"


def npy_huge(path: Path) -> Path:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1048576, 1048576), }"
    padded = header + b" " * (117 - len(header)) + b"\n"
    (path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + b"\x00" * 64)
    return path / "x.npy"


def npy_overflowing(path: Path) -> Path:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (2**62, 2**62)
    (path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    return path / "x.npy"


def npy_of_text(path: Path) -> Path:
    np.save(path / "x.npy", np.array(["a", "b"]))
    return path / "x.npy"


def npy_cut(path: Path) -> Path:
    np.save(path / "x.npy", np.ones(100, np.float32))
    (path / "x.npy").write_bytes((path / "x.npy").read_bytes()[:-9])
    return path / "x.npy"


def pt_evil(path: Path) -> Path:
    torch.save({"value": Evil()}, path / "x.pt")
    return path / "x.pt"


def pt_bare_pickle(path: Path) -> Path:
    (path / "x.pt").write_bytes(pickle.dumps(Evil()))
    return path / "x.pt"


def pt_stretched(path: Path) -> Path:
    torch.save(torch.zeros(1).as_strided((1 << 20, 1 << 20), (0, 0)), path / "x.pt")
    return path / "x.pt"


def pt_compressed(path: Path) -> Path:
    stored = io.BytesIO()
    torch.save(torch.zeros(1000), stored)
    with zipfile.ZipFile(stored) as old, zipfile.ZipFile(path / "x.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return path / "x.pt"


def pt_of_words(path: Path) -> Path:
    torch.save({"value": "no tensor", "meta": {}}, path / "x.pt")
    return path / "x.pt"


def pt_sparse(path: Path) -> Path:
    torch.save(torch.eye(4).to_sparse(), path / "x.pt")
    return path / "x.pt"


def safetensors_cut(path: Path) -> Path:
    save_file({"a": torch.ones(100)}, path / "x.safetensors")
    (path / "x.safetensors").write_bytes((path / "x.safetensors").read_bytes()[:-9])
    return path / "x.safetensors"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (npy_objects, "no pickle"), (npy_huge, "x.npy: header"), (npy_overflowing, "x.npy: header"),
        (npy_of_text, "x.npy: dtype"), (npy_cut, "x.npy: header"), (pt_evil, "x.pt: pickle"),
        (pt_bare_pickle, "the zip of torch.save"), (pt_stretched, "x.pt: shape"), (pt_compressed, "a compressed entry"),
        (pt_of_words, "a dense tensor, found str"), (pt_sparse, "x.pt"), (safetensors_cut, "x.safetensors"),
        (lambda path: path / "nowhere.npy", "nowhere.npy: file"),
    ],
)  # fmt: skip
def test_bad_files_are_named_and_not_run(
    make: Callable[[Path], Path], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = make(tmp_path)
    with pytest.raises(MalformedFile, match=message):
        read_tensor(file, "a")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_values_come_as_they_were(dtype: torch.dtype, tmp_path: Path) -> None:
    values = torch.arange(12).reshape(3, 4).to(dtype)
    torch.save({"value": values, "meta": {"rank": 0}}, tmp_path / "a.pt")
    torch.save(values, tmp_path / "b.pt")
    save_file({"k": values}, tmp_path / "c.safetensors")
    assert list(keys_of(tmp_path / "c.safetensors")) == ["k"]
    for file, key in (("a.pt", None), ("b.pt", None), ("c.safetensors", "k")):
        found = read_tensor(tmp_path / file, key)
        assert found.dtype == dtype and torch.equal(found, values)


def test_foreign_byte_order_is_turned(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5, dtype=">f4"))
    assert read_tensor(tmp_path / "x.npy").tolist() == [0, 1, 2, 3, 4]


def test_keys_of_a_damaged_file_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(MalformedFile, match=r"x\.safetensors: header"):
        list(keys_of(tmp_path / "x.safetensors"))
