"""Tensors put aside on disk between two passes of one layer, so that memory holds one chunk of tokens at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class Shelf:
    """A folder of arrays; gone when it is closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def put(self, chunk: int, name: str, values: Tensor) -> None:
        """Keep a tensor of fp32."""
        np.save(self._file(chunk, name), values.numpy(), allow_pickle=False)

    def get(self, chunk: int, name: str) -> Tensor | None:
        """Take a copy; None where nothing was put."""
        file = self._file(chunk, name)
        return torch.from_numpy(np.load(file, allow_pickle=False)) if file.exists() else None

    def _file(self, chunk: int, name: str) -> Path:
        return self._folder / f"{chunk}.{name.replace('/', '_')}.npy"

    def clear(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder, ignore_errors=True)
