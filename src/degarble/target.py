"""From what the user typed to a Source: a folder, a file, or `hf:org/name[@revision]`."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from degarble.checkpoint.folder import LocalFile, LocalFolder
from degarble.checkpoint.interface import Source
from degarble.errors import TargetError, UsageError

RECOGNISED = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".json", ".model", ".npz")
"""A folder without any file of these kinds is no checkpoint."""


def open_target(target: str | os.PathLike[str]) -> Source:
    """Open what the user named. Raises TargetError or UsageError with what to do."""
    text = os.fspath(target)
    if text.startswith("hf:"):
        from degarble.checkpoint.hub import open_hub

        return open_hub(text)
    if not text or "\0" in text:
        raise UsageError("an empty target: give a folder, a .safetensors or .gguf file, or hf:org/name")
    path = Path(text)
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:
        raise TargetError(f"{text[:200]}: {getattr(error, 'strerror', None) or error}") from None
    if is_folder:
        return _folder(text)
    if not is_there:
        raise TargetError(f"{text}: no such file or folder (a hub repository is written hf:org/name)")
    if text.endswith(".gguf"):
        return LocalFile(text, "gguf", siblings_of(path))
    if text.endswith(".safetensors"):
        return LocalFile(text, "safetensors")
    raise UsageError(f"{text}: not a checkpoint: give its folder, a .safetensors or a .gguf file")


def siblings_of(path: Path) -> tuple[Path, ...]:
    """All parts of a split file (`model-00001-of-00003.gguf`) that are there, itself included."""
    split = re.fullmatch(r"(.+)-\d{5}-of-(\d{5})\.gguf", path.name)
    if split is None:
        return (path,)
    return tuple(sorted(path.parent.glob(f"{glob.escape(split.group(1))}-?????-of-{split.group(2)}.gguf"))) or (path,)


def _folder(text: str) -> Source:
    folder = LocalFolder(text)
    names = [name for name in folder.files() if "/" not in name]
    if not any(name.endswith(RECOGNISED) for name in names):
        if folder.refused():
            name, reason = next(iter(folder.refused().items()))
            raise TargetError(f"{text}: nothing in it could be read: {name}: {reason}")
        raise TargetError(f"{text}: no weights, config or tokenizer in this folder")
    models = [name for name in names if name.endswith(".gguf")]
    if models and not any(name.endswith(".safetensors") for name in names):
        _one_gguf_model(text, models)
        folder.kind = "gguf"  # type: ignore[misc]  # a folder around one GGUF model
    return folder


def _one_gguf_model(text: str, names: list[str]) -> None:
    """Parts of one split model are fine; several models are a question back to the user."""
    stems = {name.rsplit("-of-", 1)[0].rsplit("-", 1)[0] if "-of-" in name else name for name in names}
    projector = {stem for stem in stems if "mmproj" in stem.lower()}
    if len(stems - projector) > 1:
        raise UsageError(f"{text}: holds {len(stems)} GGUF models; name one of {', '.join(sorted(names)[:5])}")
