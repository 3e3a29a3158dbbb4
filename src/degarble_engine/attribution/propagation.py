"""How the error of each layer reaches the end: gains, whether they add in quadrature, a ledger of KL, growth with depth.

Each layer of the candidate is put alone into the reference: what it adds at once is *injected*, what is left of that
behind the last layer is *carried*, gain = carried / injected. Beside it a probe: noise of the same size and random direction
in the injected error's place, which needs no candidate, only a prediction of the size. Then, by token:

    quadrature   sqrt(Σ carried²)   against the whole candidate's error: right if layers err independently
    sum          Σ carried          what adding bounds comes to
    local        sqrt(Σ injected²)  what leaving propagation out comes to
    ledger       Σ KL of each layer alone against the whole candidate's KL
    exponent     of depth in the relative error of the hidden state, fitted in logarithms: 1 is linear
    contraction  what one layer does to the relative error of a probe: below 1 the stream grows faster than the error

Numbers are medians over tokens: the first token, which carries massive activations, would be all of a norm over all.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

import torch
from torch import Tensor

from degarble_engine.attribution.counterfactual import HiddenStore
from degarble_engine.numerics.divergence import divergence
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel

PROBE_TOKENS = 128
"""Whole sequences are taken until there are so many: the work grows with the square of the depth."""
NOISE_SEED = 20
PLANTED, NOISE = "planted", "probe"
MIN_ERROR = 1e-7
"""Relative; below it two layers are the same and the rest is the order of additions."""


@dataclass(slots=True, kw_only=True)
class LayerShare:
    """One layer alone."""

    layer: int
    injected: float
    """Relative to the hidden state behind the layer."""
    carried: float
    """Relative to the hidden state behind the last layer."""
    gain: float | None
    """Of absolute norms; None where nothing was injected."""
    probe_gain: float | None
    kl: float


@dataclass(slots=True, kw_only=True)
class Propagation:
    """Of a whole candidate. Errors are relative to the last hidden state."""

    tokens: int
    layers: list[LayerShare] = field(default_factory=list)
    measured: float = 0.0
    quadrature: float = 0.0
    probed: float = 0.0
    """Quadrature of what the probes predict."""
    linear_sum: float = 0.0
    local: float = 0.0
    kl: float = 0.0
    kl_sum: float = 0.0
    growth_exponent: float | None = None
    contraction: float | None = None
    """Median over layers."""
    contraction_range: tuple[float, float] | None = None


def keep_planted(store: HiddenStore, layer: int, hidden: Tensor) -> None:
    """Note what the candidate's layer makes of the reference's input: where this layer's error starts."""
    store.put(f"{PLANTED}-{layer}", layer + 1, hidden)


def first_sequences(batch: TokenBatch) -> TokenBatch:
    """Whole sequences from the beginning, until there are tokens enough."""
    lengths = batch.valid.sum(1)
    count = int((lengths.cumsum(0) < PROBE_TOKENS).sum()) + 1
    width = int(lengths[:count].max())
    return TokenBatch(
        ids=batch.ids[:count, :width],
        valid=batch.valid[:count, :width],
        origin=batch.origin,
        pieces=batch.pieces[:count],
    )


@torch.no_grad()
def propagation(
    reference: WalkedModel, candidate: WalkedModel, batch: TokenBatch, store: HiddenStore
) -> Propagation | None:
    """All of it, from hidden states that the walk kept; None where it kept none (a walk that was resumed)."""
    depth = reference.num_layers
    if any(store.get(f"{PLANTED}-{layer}", layer + 1) is None for layer in range(depth)):
        return None
    cut = first_sequences(batch)
    runner = reference.counterfactual()
    runner.start(cut)
    trace = _Trace(runner, cut, store)
    trace.run()
    return _summary(reference, candidate, trace)


class _Trace:
    """Hidden states of all planted layers and probes, carried through the reference together: one file each on disk."""

    def __init__(self, runner: WalkedModel, batch: TokenBatch, store: HiddenStore) -> None:
        self.runner, self.batch, self.store = runner, batch, store
        self.depth = runner.num_layers
        self.contractions: list[float] = []  # by layer, median over probes
        self.injected: list[Tensor] = []  # [tokens] norms, by layer
        self._relative: dict[str, float] = {}
        self._generator = torch.Generator().manual_seed(NOISE_SEED)

    def kept(self, lane: str, layer: int) -> Tensor:
        """A hidden state of the walk, cut to the batch. [sequences, tokens, hidden]"""
        found = self.store.get(lane, layer)
        assert found is not None
        count, width = self.batch.ids.shape
        return found[:count, :width]

    def rows(self, hidden: Tensor) -> Tensor:
        """[valid tokens, hidden]"""
        return hidden[self.batch.valid]

    def state(self, lane: str) -> Tensor:
        """Where a planted layer or a probe has come to. [sequences, tokens, hidden]"""
        return self.kept(f"carried-{lane}", 0)

    def run(self) -> None:
        """Take every layer once; everything that started before it goes through."""
        for index in range(self.depth):
            if index:
                self._pass(index)
            self._start(index)

    def _pass(self, index: int) -> None:
        healthy = self.kept("reference", index + 1)
        changes = []
        with self.runner.layer(index) as module:
            for lane in (f"{kind}-{layer}" for layer in range(index) for kind in (PLANTED, NOISE)):
                hidden = self.runner.run(index, module, self.state(lane))
                self.store.put(f"carried-{lane}", 0, hidden)
                if lane.startswith(NOISE):
                    before, after = self._relative[lane], self._relative_error(hidden, healthy)
                    self._relative[lane] = after
                    changes += [after / before] if before > MIN_ERROR else []
        if changes:
            self.contractions.append(statistics.median(changes))

    def _start(self, index: int) -> None:
        healthy, planted = self.kept("reference", index + 1), self.kept(f"{PLANTED}-{index}", index + 1)
        sizes = (planted - healthy).norm(dim=-1, keepdim=True)
        noise = torch.randn(planted.shape, generator=self._generator)
        probe = healthy + noise * sizes / noise.norm(dim=-1, keepdim=True)
        self.injected.append(self.rows(sizes)[:, 0])
        self.store.put(f"carried-{PLANTED}-{index}", 0, planted)
        self.store.put(f"carried-{NOISE}-{index}", 0, probe)
        self._relative[f"{NOISE}-{index}"] = self._relative_error(probe, healthy)

    def _relative_error(self, hidden: Tensor, healthy: Tensor) -> float:
        return float(
            (self.rows(hidden - healthy).norm(dim=1) / self.rows(healthy).norm(dim=1).clamp_min(1e-30)).median()
        )

    def size(self, layer: int) -> Tensor:
        """[tokens] norm of the reference's hidden state before a layer."""
        return self.rows(self.kept("reference", layer)).norm(dim=1).clamp_min(1e-30)

    def at_end(self, lane: str) -> Tensor:
        """[tokens] norm of what is left of a planted layer or a probe behind the last layer."""
        return self.rows(self.state(lane) - self.kept("reference", self.depth)).norm(dim=1)

    def candidate_error(self, layer: int) -> float:
        """Of the candidate's own run, relative, before a layer."""
        return self._relative_error(self.kept("candidate", layer), self.kept("reference", layer))


def _summary(reference: WalkedModel, candidate: WalkedModel, trace: _Trace) -> Propagation:
    depth, end = trace.depth, trace.size(trace.depth)
    healthy = trace.rows(trace.kept("reference", depth))
    found = Propagation(tokens=trace.batch.num_tokens)
    carried, probed = [], []
    for layer, injected in enumerate(trace.injected):
        alone, noise = trace.at_end(f"{PLANTED}-{layer}"), trace.at_end(f"{NOISE}-{layer}")
        carried.append(alone)
        probed.append(noise)
        planted = trace.rows(trace.state(f"{PLANTED}-{layer}"))
        found.layers.append(LayerShare(
            layer=layer,
            injected=float((injected / trace.size(layer + 1)).median()),
            carried=float((alone / end).median()),
            gain=_gain(alone, injected),
            probe_gain=_gain(noise, injected),
            kl=divergence(reference, healthy, reference, planted).kl,
        ))  # fmt: skip
    found.measured = trace.candidate_error(depth)
    found.quadrature, found.probed = _quadrature(carried, end), _quadrature(probed, end)
    found.local = _quadrature(trace.injected, end)
    found.linear_sum = float((torch.stack(carried).sum(0) / end).median())
    found.kl = divergence(reference, healthy, candidate, trace.rows(trace.kept("candidate", depth))).kl
    found.kl_sum = sum(one.kl for one in found.layers)
    found.growth_exponent = growth_exponent([trace.candidate_error(layer + 1) for layer in range(depth)])
    if trace.contractions:
        found.contraction = statistics.median(trace.contractions)
        found.contraction_range = (min(trace.contractions), max(trace.contractions))
    return found


def _gain(carried: Tensor, injected: Tensor) -> float | None:
    alive = injected > 0
    return float((carried[alive] / injected[alive]).median()) if bool(alive.any()) else None


def _quadrature(errors: list[Tensor], size: Tensor) -> float:
    return float((torch.stack(errors).square().sum(0).sqrt() / size).median())


def growth_exponent(errors: list[float]) -> float | None:
    """Slope of ln(error) over ln(layers passed), least squares; None for fewer than three layers with an error."""
    points = [(math.log(layer), math.log(error)) for layer, error in enumerate(errors, 1) if error > MIN_ERROR]
    if len(points) < 3:
        return None
    mean_x = statistics.fmean(x for x, _ in points)
    mean_y = statistics.fmean(y for _, y in points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else None
