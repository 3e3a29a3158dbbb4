"""The layer walk: several models over one batch, in step, one decoder layer of each in memory.

    walk = LayerWalk([reference, candidate], batch)
    for step in walk:                       # weights of layer `step.index` are loaded here …
        reference, candidate = step.runs    # … each with its own input, output and taps
        candidate.again(reference.input)    # the candidate's layer on the reference's input: its *local* error
        walk.note({"anything": "JSON"})     # kept with the state, if the walk is resumable
    walk.hidden                             # the hidden states behind the last layer, one for each model

With `state`, a folder, the hidden states and notes are saved after every layer (one file, replaced atomically), and a walk
over the same files, batch and precision goes on where the last one stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from degarble.errors import UsageError
from degarble_engine.numerics.tap import Taps
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel

STATE_FILE, STATE_VERSION = "walk.safetensors", 2
Watch = Callable[[int, int], None]
"""(layers done, all layers)."""


@dataclass(slots=True)
class LayerRun:
    """One layer of one model: its weights are there as long as the step lasts."""

    model: WalkedModel
    index: int
    module: nn.Module
    input: Tensor  # [batch, tokens, hidden]
    output: Tensor  # [batch, tokens, hidden]
    taps: Taps

    def again(self, hidden: Tensor) -> tuple[Tensor, Taps]:
        """The same layer on another input."""
        taps = Taps(self.taps.valid)
        return self.model.run(self.index, self.module, hidden.to(self.input.dtype), taps), taps


@dataclass(slots=True)
class LayerStep:
    """One layer of every model."""

    index: int
    runs: tuple[LayerRun, ...]


@dataclass(slots=True)
class LayerWalk:
    """See the top of the file."""

    models: Sequence[WalkedModel]
    batch: TokenBatch
    state: Path | None = None
    progress: Watch | None = None
    hidden: list[Tensor] = field(default_factory=list)
    notes: dict[int, Any] = field(default_factory=dict)
    _done: int = 0
    """Layers behind us."""

    @property
    def num_layers(self) -> int:
        """Layers that all models have."""
        return min(model.num_layers for model in self.models)

    def note(self, value: Any) -> None:
        """Keep JSON with the step at hand."""
        self.notes[self._done] = value

    def __iter__(self) -> Iterator[LayerStep]:
        """Start, or go on from a saved state, and take every layer."""
        self.hidden = [model.start(self.batch) for model in self.models]
        if self.state is not None:
            self._resume(self.state)
        for index in range(self._done, self.num_layers):
            if self.progress is not None:
                self.progress(index, self.num_layers)
            yield from self._step(index)
            self._done = index + 1
            if self.state is not None:
                self._save(self.state)
        if self.progress is not None:
            self.progress(self.num_layers, self.num_layers)

    def _step(self, index: int) -> Iterator[LayerStep]:
        with ExitStack() as loaded:
            runs = []
            for number, model in enumerate(self.models):
                module = loaded.enter_context(model.layer(index))
                taps = Taps(self.batch.valid)
                output = model.run(index, module, self.hidden[number], taps)
                runs.append(LayerRun(model, index, module, self.hidden[number], output, taps))
            yield LayerStep(index, tuple(runs))
        self.hidden = [run.output for run in runs]

    def _key(self) -> str:
        """What must be equal for a saved state to be of this walk."""
        parts: list[Any] = [STATE_VERSION, self.batch.digest()]
        for model in self.models:
            source = model.evidence.get("source")
            parts.append([source.path, sorted(source.files().items()), model.precision.name, model.config_values])
        return hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()

    def _save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        metadata = {"key": self._key(), "done": str(self._done), "notes": json.dumps(self.notes)}
        partial = folder / f".{STATE_FILE}.{os.getpid()}"
        try:
            save_file({str(n): one.contiguous() for n, one in enumerate(self.hidden)}, partial, metadata)
            partial.replace(folder / STATE_FILE)
        finally:
            partial.unlink(missing_ok=True)

    def _resume(self, folder: Path) -> None:
        """Take over a saved state. Raises UsageError if it is of another walk, or damaged."""
        from safetensors import safe_open

        file = folder / STATE_FILE
        if not file.exists():
            return
        try:
            with safe_open(file, "pt") as stored:
                metadata = stored.metadata() or {}
                hidden = [stored.get_tensor(str(number)) for number in range(len(self.models))]
            done, notes = int(metadata["done"]), json.loads(metadata["notes"])
        except Exception as error:  # safetensors raises its own and bare ones
            raise UsageError(
                f"{file}: not the state of a walk ({type(error).__name__}): delete it to start anew"
            ) from None
        if metadata.get("key") != self._key():
            raise UsageError(
                f"{file}: of other models, texts, another --dtype or an older version: delete it to start anew"
            )
        self.hidden, self._done = hidden, done
        self.notes = {int(number): value for number, value in notes.items()}


@torch.no_grad()
def final_states(models: Sequence[WalkedModel], batch: TokenBatch) -> list[Tensor]:
    """Only the hidden states behind the last layer, valid tokens: [tokens, hidden] for each model."""
    walk = LayerWalk(models, batch)
    for _ in walk:
        pass
    return [hidden[batch.valid] for hidden in walk.hidden]
