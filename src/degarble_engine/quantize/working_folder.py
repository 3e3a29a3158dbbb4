"""The folder beside the result where a job keeps what is done, so that it can be killed and go on.

    .OUT.quantizing/job.json              what the job is: recipe, model, text, versions
    .OUT.quantizing/layer-00003.safetensors   a layer that is done
    .OUT.quantizing/state.safetensors     hidden states of the calibration text behind the last layer that is done

Files appear whole. The layer comes first, then the state: a job killed in between makes that layer again, from the same
state, to the same bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from degarble.checkpoint.safetensors import header_bytes
from degarble.checkpoint.workspace import dtype_name
from degarble.errors import UsageError
from degarble.whole_file import write_whole
from degarble_engine.quantize.calibration_stream import Chunk
from degarble_engine.quantize.layer_file import layer_name

JOB, PLAN, STATE = "job.json", "plan.json", "state.safetensors"


class WorkingFolder:
    """Of one job."""

    def __init__(self, out: Path, job: dict[str, Any]) -> None:
        self.path = out.parent / f".{out.name}.quantizing"
        written = msgspec.json.format(msgspec.json.encode(job), indent=2)
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / JOB
        if not file.exists():
            write_whole(file, written)
        elif file.read_bytes() != written:
            raise UsageError(f"{self.path}: of another recipe, model, text or version: delete it to start anew")

    @property
    def scratch(self) -> Path:
        """For what one layer puts aside."""
        return self.path / "scratch"

    @property
    def plan(self) -> Path:
        """Schemes that were found for a number of bits."""
        return self.path / PLAN

    def layer(self, index: int) -> Path:
        """The file of a layer."""
        return self.path / layer_name(index)

    def layers_done(self) -> int:
        """Layers in order from the first that have a file."""
        index = 0
        while self.layer(index).exists():
            index += 1
        return index

    def save(self, chunks: Sequence[Chunk], done: int) -> None:
        """Keep the hidden states behind `done` layers, written from where they lie: of a long text there is no room for two."""
        arrays = {f"{chunk.number}.hidden": chunk.hidden.contiguous().numpy() for chunk in chunks}
        arrays |= {f"{chunk.number}.reference": chunk.reference.contiguous().numpy() for chunk in chunks}
        entries = ((name, dtype_name(array), array.shape, array.nbytes) for name, array in arrays.items())
        partial = self.path / f".{STATE}.{os.getpid()}"
        try:
            with partial.open("wb") as stream:
                stream.write(header_bytes(entries, {"done": str(done)}))
                for array in arrays.values():
                    stream.write(array.data)
            partial.replace(self.path / STATE)
        finally:
            partial.unlink(missing_ok=True)

    def resume(self, chunks: Sequence[Chunk]) -> int:
        """Put saved states into the chunks; layers that are done."""
        from safetensors import safe_open

        file = self.path / STATE
        if not file.exists():
            return 0
        try:
            with safe_open(file, "pt") as stored:
                done = int((stored.metadata() or {})["done"])
                for chunk in chunks:
                    chunk.hidden = stored.get_tensor(f"{chunk.number}.hidden")
                    chunk.reference = stored.get_tensor(f"{chunk.number}.reference")
        except Exception as error:  # safetensors raises its own and bare ones
            raise UsageError(f"{file}: damaged ({type(error).__name__}): delete its folder to start anew") from None
        return min(done, self.layers_done())

    def remove(self) -> None:
        """The job is over."""
        shutil.rmtree(self.path, ignore_errors=True)
