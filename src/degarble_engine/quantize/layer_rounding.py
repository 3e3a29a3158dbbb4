"""One decoder layer: its linears are rounded in the order in which they run, each on what the ones before it now give.

    pass over the reference     inputs of every stage to the shelf, and the reference's next hidden state
    for every stage             q k v | o | gate up | down          (whatever reads one tensor is one stage)
        pass as far as it       sums of its inputs, behind all that is quantised
        round                   all rows of the stage side by side; the new values take the place of the old
    pass over the layer         the next hidden state behind the quantised prefix

A method that needs no inputs skips every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from degarble_engine.numerics.tap import is_experts
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.calibration_stream import (
    Caught,
    Chunk,
    input_of,
    inputs_of_all,
    remembering,
    settled_blocks,
    stages_of,
)
from degarble_engine.quantize.expert_rounding import STARVED_TOKENS, Catch, expert_statistics
from degarble_engine.quantize.input_statistics import InputStatistics
from degarble_engine.quantize.interface import MatrixTask, Method, Rounded
from degarble_engine.quantize.layer_folding import LayerFolding, forget_compensation
from degarble_engine.quantize.scheme import QuantScheme
from degarble_engine.quantize.shelf import Shelf
from degarble_engine.quantize.site import DOWN, FUSED, Site, Wanted, sites_of

ON_RESIDUAL = frozenset({"o_proj", "down_proj", "out_proj", "dense", "c_proj", "fc2", "w2"})
"""Linears whose output is added to the residual stream, by their names in transformers."""
Take = Callable[[Site, Rounded, int], None]
"""(matrix, what became of it, tokens that it was calibrated on)."""
KeepPlain = Callable[[str, Tensor], None]
"""(parameter that stays plain and changed, its values): the other half of a fold."""


@dataclass(slots=True, kw_only=True)
class LayerRounding:
    """What stays the same from layer to layer."""

    model: WalkedModel
    scheme: QuantScheme
    """The usual one, by which folds are searched."""
    schemes: Mapping[str, QuantScheme]
    """Of every matrix, by its name in the file."""
    method: Method
    scale_dtype: torch.dtype
    wanted: Wanted
    chunks: Sequence[Chunk]
    scratch: Path
    """A folder that may be made and removed."""
    keep_plain: KeepPlain
    note: Callable[[str], None]
    known_stages: dict[object, list[list[str]]] = field(default_factory=dict)
    needs_inputs: bool = True
    """Of the method, or of a scheme whose activations have a scale of calibration."""
    forgotten_layers: int = 0
    """The origin's failure, on purpose: in so many last layers, rows of up_proj give scale away that nobody takes up."""

    @torch.no_grad()
    def round_layer(self, index: int, take: Take) -> None:
        """Round everything that is wanted, and move the chunks on to the next layer."""
        with self.model.layer(index) as layer:
            sites = sites_of(self.model, index, layer, self.wanted)
            if not self.needs_inputs:
                for stage in self._blind_stages(sites):
                    self.round_matrices(stage, None, take)
                return
            shelf = Shelf(self.scratch)
            try:
                _LayerPass(self, index, layer, sites, shelf, take).run()
            finally:
                shelf.clear()

    def _blind_stages(self, sites: Mapping[str, Sequence[Site]]) -> Iterator[list[Site]]:
        """Matrices one by one, but those that engines fuse under one global scale."""
        groups = enumerate(self.model.evidence.get("fused_groups"))
        group_of = {module.name: number for number, group in groups for module in group}
        found: dict[int | str, list[Site]] = {}
        for site in (site for own in sites.values() for site in own):
            scheme = self.schemes[site.name]
            is_shared = scheme.scale_type == "e4m3" or scheme.strategy == "tensor"
            found.setdefault(group_of.get(site.name, site.name) if is_shared else site.name, []).append(site)
        yield from found.values()

    def round_matrices(
        self, sites: Sequence[Site], statistics: InputStatistics | None, take: Take, reached: int | None = None
    ) -> None:
        """Round matrices that read one input, put them in place, and hand them on."""
        for group in self._together(sites):
            weights = [site.weight.float() for site in group]
            task = MatrixTask(
                weight=torch.cat(weights),
                scheme=self.schemes[group[0].name],
                scale_dtype=self.scale_dtype,
                statistics=statistics,
                is_on_residual=all(site.path.rpartition(".")[2] in ON_RESIDUAL or site.leaf == DOWN for site in group),
            )
            rounded = self.method.round(task)
            rounded.largest_input = statistics.largest if statistics is not None else 0.0
            start = 0
            for site, weight in zip(group, weights, strict=True):
                part = rounded.of_rows(start, start + weight.shape[0])
                start += weight.shape[0]
                assert torch.equal(part.grid.decode(part.grid.encode(part.values)), part.values)
                site.weight.copy_(part.values)
                tokens = statistics.tokens if statistics is not None else 0
                take(site, part, tokens if reached is None else reached)

    def _together(self, sites: Sequence[Site]) -> Iterator[Sequence[Site]]:
        """Those of one scheme, unless its blocks reach over rows."""
        for scheme in dict.fromkeys(self.schemes[site.name] for site in sites):
            own = [site for site in sites if self.schemes[site.name] == scheme]
            if scheme.rows_are_apart:
                yield own
            else:
                yield from ([site] for site in own)


@dataclass(slots=True)
class _LayerPass:
    """One layer with calibration text."""

    job: LayerRounding
    index: int
    layer: nn.Module
    sites: dict[str, list[Site]]
    shelf: Shelf
    take: Take

    def run(self) -> None:
        """See the top of the file."""
        chunks = self.job.chunks
        self._move_scale()
        stages = self._stages()
        self._read_reference(stages)
        settled: list[str] = []
        for stage in stages:
            if is_experts(self.layer.get_submodule(stage[0])):
                self._round_experts(stage[0], settled)
            else:
                statistics = self._statistics(stage[0], settled)
                self.job.round_matrices([site for path in stage for site in self.sites[path]], statistics, self.take)
                settled += stage
        for path in sorted(set(self.sites) - {path for stage in stages for path in stage}):
            self.job.round_matrices(self.sites[path], None, self.take)
        for chunk in chunks:
            with self._remembering(settled, chunk):
                chunk.hidden = chunk.model.run(self.index, self.layer, chunk.hidden)

    def _remembering(self, settled: Sequence[str], chunk: Chunk) -> AbstractContextManager[None]:
        blocks = settled_blocks(self.sites, settled)
        return remembering(self.layer, settled, self.shelf, chunk.number, blocks)

    def _stages(self) -> list[list[str]]:
        """Found once for all layers that are built alike."""
        kinds = tuple((path, type(module).__name__) for path, module in self.layer.named_modules())
        key = (kinds, tuple(self.sites))
        known = self.job.known_stages
        if key not in known:
            known[key] = stages_of(self.job.chunks[0], self.index, self.layer, list(self.sites)) if self.sites else []
        return known[key]

    def _move_scale(self) -> None:
        """Folds come first: they change nothing that the layer computes, so every pass after them sees one basis."""
        if self.job.method.moves_scale:
            folding = LayerFolding(self.job.model, self.index, self.layer, self.sites, self.job.chunks)
            folding.run(self.job.scheme, self.job.scale_dtype, self.job.keep_plain)
            for reason in folding.refused:
                self.job.note(f"{self.job.model.skeleton.layer_name(self.index)}: {reason}")
        if self.index >= self.job.model.num_layers - self.job.forgotten_layers:
            forget_compensation(self.layer)

    def _read_reference(self, stages: Sequence[Sequence[str]]) -> None:
        for chunk in self.job.chunks:
            caught, output = inputs_of_all(chunk, self.index, self.layer, chunk.reference, stages)
            for path, rows in caught.items():
                self.shelf.put(chunk.number, f"in.{path}", rows)
            chunk.reference = output

    def _statistics(self, path: str, settled: Sequence[str]) -> InputStatistics:
        found: InputStatistics | None = None
        for chunk in self.job.chunks:
            with self._remembering(settled, chunk):
                caught = input_of(chunk, self.index, self.layer, path)
            if caught is None:
                continue
            found = found or InputStatistics.empty(caught.rows.shape[1], has_reference=True)
            found.add(caught.rows, self._reference(chunk, path, caught.rows))
        return found or InputStatistics.empty(self.sites[path][0].weight.shape[1], has_reference=False)

    def _reference(self, chunk: Chunk, path: str, rows: Tensor) -> Tensor | None:
        known = self.shelf.get(chunk.number, f"in.{path}")
        return known if known is not None and known.shape == rows.shape else None

    def _round_experts(self, path: str, settled: Sequence[str]) -> None:
        """Gate and up of every expert on its own tokens; then down, behind the new gate and up."""
        module = self.layer.get_submodule(path)
        for leaf in (FUSED, DOWN):
            sites = [site for site in self.sites[path] if site.leaf == leaf]
            for sums in expert_statistics(self.job.chunks, self._catcher(path, settled), module, leaf):
                for number, own in sums.items():
                    matrices = [site for site in sites if site.expert == number]
                    if matrices:
                        self.job.round_matrices(matrices, own.statistics, self.take, own.reached)
                    if matrices and own.reached < STARVED_TOKENS:
                        self.job.note(
                            f"{matrices[0].name}: starved, {own.reached} tokens reached it: calibrated on all tokens"
                        )

    def _catcher(self, path: str, settled: Sequence[str]) -> Catch:
        def catch(chunk: Chunk) -> Caught | None:
            with self._remembering(settled, chunk):
                found: Caught | None = input_of(chunk, self.index, self.layer, path)
            return found

        return catch
