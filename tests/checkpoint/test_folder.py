"""Local places: links, devices, odd names, records of the hub."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from degarble.checkpoint import folder as folder_module
from degarble.checkpoint.folder import LocalFile, LocalFolder
from degarble.errors import TargetError, UsageError
from degarble.target import open_target

SHA = "ab" * 32


def test_links_inside_are_followed_and_links_out_are_not(tmp_path: Path) -> None:
    """A link out, a loop, a dangling link and a linked folder are refused with a reason."""
    secret = tmp_path / "secret"
    secret.write_text("key")
    root = tmp_path / "model"
    (root / "sub").mkdir(parents=True)
    (root / "real.safetensors").write_bytes(b"x")
    (root / "inside.safetensors").symlink_to("real.safetensors")
    (root / "out.json").symlink_to(secret)
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nothing")
    (root / "etc").symlink_to("/etc")
    (root / "up").symlink_to("..")
    source = LocalFolder(root)
    assert dict(source.files()) == {"real.safetensors": 1, "inside.safetensors": 1}
    assert set(source.refused()) == {"out.json", "loop", "dangling", "etc", "up"}
    with pytest.raises(TargetError):
        source.read("out.json")
    with pytest.raises(TargetError):
        source.read("../secret")


def test_devices_and_folders_under_weight_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never opened: a pipe would hang, a folder is no file."""
    os.mkfifo(tmp_path / "model.safetensors")
    (tmp_path / "config.json").mkdir()
    (tmp_path / "a.gguf").mkdir()
    (tmp_path / "a.gguf" / "inner.gguf").write_bytes(b"GGUF")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # the address of a socket is short
        server.bind("tokenizer.json")
        source = LocalFolder(tmp_path)
        assert set(source.files()) == set()
        assert set(source.refused()) == {"model.safetensors", "a.gguf", "tokenizer.json"}
    with pytest.raises(TargetError, match="not a regular file"):
        LocalFile(tmp_path / "model.safetensors", "safetensors")


def test_odd_names(tmp_path: Path) -> None:
    """Spaces, quotes, line ends and letters of any script are names; bytes that are no text are refused."""
    names = ["a b.safetensors", "l\nine.json", "ü‮.json", "-rf.json", "'\"$(x).json"]
    for name in names:
        (tmp_path / name).write_bytes(b"{}")
    with open(os.fsencode(tmp_path) + b"/\xff.json", "wb"):
        pass
    source = LocalFolder(tmp_path)
    assert set(source.files()) == set(names)
    assert len(source.refused()) == 1
    assert all(source.read(name) == b"{}" for name in names)


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed sub-folder is refused; a closed folder is an error; a closed file is an error when read."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "config.json").write_text("{}")
    scandir = os.scandir

    def closed(path: os.PathLike[str]) -> object:
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    source = LocalFolder(tmp_path)
    assert set(source.files()) == {"config.json"}
    assert source.refused() == {"sub/": "Permission denied"}
    with pytest.raises(TargetError, match="Permission denied"):
        LocalFolder(tmp_path / "sub").files()
    (tmp_path / "config.json").unlink()
    with pytest.raises(TargetError, match=r"config\.json"):
        source.read("config.json")


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing ends, and says so."""
    monkeypatch.setattr(folder_module, "MAX_FILES", 5)
    for number in range(9):
        (tmp_path / f"{number}.json").write_text("{}")
    source = LocalFolder(tmp_path)
    assert len(source.files()) == 5 and "more than 5" in next(iter(source.refused().values()))


def test_a_snapshot_of_the_hub_cache(tmp_path: Path) -> None:
    """Links into the same cache are followed, and the blob's name is the digest; another model's blobs are not."""
    cache = tmp_path / "models--org--name"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots" / "rev").mkdir(parents=True)
    (cache / "blobs" / SHA).write_bytes(b"weights")
    (cache / "blobs" / ("cd" * 20)).write_bytes(b"{}")
    other = tmp_path / "models--org--other" / "blobs"
    other.mkdir(parents=True)
    (other / SHA).write_bytes(b"x")
    root = cache / "snapshots" / "rev"
    (root / "model.safetensors").symlink_to(f"../../blobs/{SHA}")
    (root / "config.json").symlink_to("../../blobs/" + "cd" * 20)
    (root / "stranger.safetensors").symlink_to(other / SHA)
    source = LocalFolder(root)
    assert source.read("model.safetensors") == b"weights"
    assert dict(source.digests()) == {"model.safetensors": SHA}
    assert set(source.refused()) == {"stranger.safetensors"}


def test_notes_of_a_download(tmp_path: Path) -> None:
    """`.cache/huggingface/download` holds the etag; a link, a pipe or other text there is passed over."""
    notes = tmp_path / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    names = ["good", "git", "link", "pipe", "short", "long", "none"]
    for name in names:
        (tmp_path / f"{name}.safetensors").write_bytes(b"x")
    (notes / "good.safetensors.metadata").write_text(f"{'c' * 40}\n{SHA}\n1700000000.0\n")
    (notes / "git.safetensors.metadata").write_text(f"{'c' * 40}\n{'d' * 40}\n1700000000.0\n")
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text(f"\n{SHA}\n")
    (notes / "link.safetensors.metadata").symlink_to(outside)
    os.mkfifo(notes / "pipe.safetensors.metadata")
    (notes / "short.safetensors.metadata").write_text("")
    (notes / "long.safetensors.metadata").write_bytes(b"\xff" * 10_000)
    assert dict(LocalFolder(tmp_path).digests()) == {"good.safetensors": SHA}


def test_targets_that_are_none(tmp_path: Path) -> None:
    """Every wrong target is an error that says what to give instead."""
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "x").mkdir()
    for target, error in (
        ("", UsageError),
        ("a\0b", UsageError),
        (str(tmp_path / "missing"), TargetError),
        (str(tmp_path / "notes.txt"), UsageError),
        (str(tmp_path / "x"), TargetError),
    ):
        with pytest.raises(error):
            open_target(target)
