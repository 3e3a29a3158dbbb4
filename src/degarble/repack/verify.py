"""Proves that a chain of steps loses no code, or names the step, the place and the codes that it loses.

    identity    codes come back as they went in: all 2**bits codes at every position, among many kinds of neighbours
    lossless    nothing is lost; the order was not checked, since nobody said what it should be
    lost        two codes at one place end as the same bytes: no later step can tell them apart
    misplaced   nothing is lost, and codes come back at other places
    altered     nothing is lost, and codes come back as other codes (a sign or an offset was taken for granted)
    undecided   the steps mix places in a way that this cannot untangle

Where the result is to be unpacked, the proof is a comparison. Where it is not, the steps are tried on one place at a
time: if every place has bits of its own in the result, every code a pattern of its own, and random matrices are the sum
of such patterns, then no two different matrices can give one result. "Every step" below includes the states in between,
so the first state in which two codes are equal names the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack import probe
from degarble.repack.interface import Layout, Relayout, Step, layouts
from degarble.repack.probe import Position
from degarble.repack.verdict import Outcome, Verdict

MAX_PLACES = 512
"""Places that are tried one at a time."""

MAX_LISTED = 16

MAX_BATCH = 1 << 26
"""Codes in one batch."""

States = Sequence[Sequence[Array]]

Chain = Callable[[Sequence[Array]], States]
"""Code matrices -> for each the states after every step, the first being what the first step was given."""

Unpack = Callable[[Array], Array]


def verify_relayout(relayout: Relayout, num_bits: int, tiles: tuple[int, int] = (2, 2)) -> Verdict:
    """Prove one of the package's relayouts on a matrix of some granules in each direction."""
    source, target = layouts()[relayout.source], layouts()[relayout.target]
    shape = common_shape((source, target), num_bits, tiles)
    steps = relayout.steps(num_bits, shape)
    chain = chain_of(lambda codes: source.pack(codes, num_bits), steps)
    names = tuple(step.name for step in steps)
    return verify(chain, names, num_bits, shape, lambda stored: target.unpack(stored, num_bits, shape))


def common_shape(parties: Sequence[Layout], num_bits: int, tiles: tuple[int, int] = (2, 2)) -> tuple[int, int]:
    """The smallest matrix that all layouts hold, times `tiles`."""
    granules = [layout.granule(num_bits) for layout in parties]
    out, inputs = (int(np.lcm.reduce([granule[axis] for granule in granules])) for axis in (0, 1))
    return out * tiles[0], inputs * tiles[1]


def chain_of(pack: Callable[[Array], Array], steps: Sequence[Step]) -> Chain:
    """Runs the steps in this process."""

    def run(codes: Sequence[Array]) -> list[list[Array]]:
        results = []
        for matrix in codes:
            states = [pack(matrix)]
            for step in steps:
                states.append(np.asarray(step.function(states[-1])))
            results.append(states)
        return results

    return run


def verify(
    chain: Chain, names: Sequence[str], num_bits: int, shape: tuple[int, int], unpack: Unpack | None = None
) -> Verdict:
    """Judge a chain of steps. `unpack` reads the last state as codes; without it only losses are looked for.

    `names` are those of the steps. Raises ValueError if `unpack` cannot read what the last step gives.
    """
    trial = Trial(chain, tuple(names), num_bits, shape)
    if unpack is None:
        return trial.judge_losses()
    matrices = probe.proofs(shape, num_bits)
    final = [states[-1] for states in trial.run(matrices)]
    returned = _unpacked(final, unpack)
    if returned is not None and all(np.array_equal(a, b) for a, b in zip(matrices, returned, strict=True)):
        return trial.verdict(Outcome.IDENTITY)
    return trial.explain(matrices, returned, unpack)


def _unpacked(final: Sequence[Array], unpack: Unpack) -> list[Array] | None:
    """None where values came back that are no codes; the sizes must be right for at least one of them."""
    returned, refused = [], None
    for state in final:
        try:
            returned.append(unpack(state))
        except ValueError as error:
            refused = error
    if refused is not None and not returned:
        raise refused
    return returned if refused is None else None


class Trial:
    """One chain under trial."""

    def __init__(self, chain: Chain, names: tuple[str, ...], num_bits: int, shape: tuple[int, int]) -> None:
        self._chain, self._names = chain, names
        self._num_bits, self._shape = num_bits, shape
        self.num_runs = 0

    def run(self, matrices: Sequence[Array]) -> States:
        """The states of every matrix."""
        self.num_runs += len(matrices)
        return self._chain(matrices)

    def verdict(self, outcome: Outcome, **facts: object) -> Verdict:
        """A verdict with what is known to all of them."""
        fixed = {"num_bits": self._num_bits, "shape": self._shape, "num_runs": self.num_runs}
        return Verdict(outcome=outcome, **fixed, **facts)  # type: ignore[arg-type]

    def explain(self, matrices: Sequence[Array], returned: Sequence[Array] | None, unpack: Unpack) -> Verdict:
        """Why codes did not come back: a loss before a permutation before another meaning."""
        every = list(probe.all_positions(self._shape))
        wrong = every
        if returned is not None:
            is_wrong = np.any([a != b for a, b in zip(matrices, returned, strict=True)], axis=0)
            wrong = [position for position in every if is_wrong[position]]
        lost = self._loss(probe.spread(wrong, MAX_PLACES // 32))
        if lost is not None:
            return lost
        if returned is None:
            return self.verdict(Outcome.ALTERED, detail="values came back that are no codes of this width")
        moved = self._moves(wrong, unpack)
        if moved:
            return self.verdict(Outcome.MISPLACED, position=moved[0][0], places=moved[:MAX_LISTED])
        return self._altered(matrices, returned, wrong)

    def _moves(self, wrong: Sequence[Position], unpack: Unpack) -> tuple[tuple[Position, Position], ...]:
        """Where a single code of ones among zeros comes back, for places where it is alone and unchanged."""
        places, top = probe.spread(wrong, MAX_LISTED), (1 << self._num_bits) - 1
        blank = np.zeros(self._shape, np.uint8)
        marked = [blank.copy() for _ in places]
        for matrix, place in zip(marked, places, strict=True):
            matrix[place] = top
        moves = []
        base, *results = [unpack(states[-1]) for states in self.run([blank, *marked])]
        for place, result in zip(places, results, strict=True):
            changed = np.argwhere(result != base)
            if len(changed) == 1 and tuple(changed[0]) != place:
                moves.append((place, (int(changed[0][0]), int(changed[0][1]))))
        return tuple(moves)

    def _altered(self, matrices: Sequence[Array], returned: Sequence[Array], wrong: Sequence[Position]) -> Verdict:
        """Which codes came back as which, at the first wrong place."""
        place = wrong[0]
        pairs = sorted({(int(a[place]), int(b[place])) for a, b in zip(matrices, returned, strict=True)})
        seen = [code for code, _ in pairs]
        if len(seen) == len(set(seen)):
            changed = tuple(pair for pair in pairs if pair[0] != pair[1])
            return self.verdict(Outcome.ALTERED, position=place, mapping=changed)
        ambiguous = tuple(pair for pair in pairs if seen.count(pair[0]) > 1)[:MAX_LISTED]
        detail = "what a code becomes depends on its neighbours: a carry, a borrow or a bit that was not masked"
        return self.verdict(Outcome.ALTERED, position=place, mapping=ambiguous, detail=detail)

    def _loss(self, places: Sequence[Position]) -> Verdict | None:
        """The first step after which two codes at one of the places are equal."""
        cases = [(place, ground) for place in places for ground in probe.backgrounds(self._num_bits)]
        for place, runs in self._one_at_a_time(cases):
            found = self._collision(runs, place)
            if found is not None:
                return found
        return None

    def _one_at_a_time(self, cases: Sequence[tuple[Position, int]]) -> Iterator[tuple[Position, States]]:
        """All codes at each place in turn, in one batch: a batch may cost a process."""
        matrices = [
            matrix for place, ground in cases for matrix in probe.alone(self._shape, place, self._num_bits, ground)
        ]
        runs, size = self.run(matrices), 1 << self._num_bits
        for index, (place, _) in enumerate(cases):
            yield place, runs[index * size : (index + 1) * size]

    def _collision(self, runs: States, place: Position) -> Verdict | None:
        for index in range(1, len(self._names) + 1):
            states = [states[index] for states in runs]
            groups = _groups(states)
            if len(groups) < len(states):
                values = _single_values([states[group[0]] for group in groups])
                name = self._names[index - 1]
                return self.verdict(Outcome.LOST, step=name, position=place, collisions=groups, values=values)
        return None

    def judge_losses(self) -> Verdict:
        """Whether different matrices always give different results, without knowing what they mean."""
        places = list(probe.all_positions(self._shape))
        tried = probe.spread(places, max(1, min(MAX_PLACES, MAX_BATCH // (len(places) << self._num_bits))))
        lost = self._loss(probe.spread(tried, MAX_PLACES // 32))
        if lost is not None:
            return lost
        return self._untangled(tried, is_every_place=len(tried) == len(places))

    def _untangled(self, tried: Sequence[Position], *, is_every_place: bool) -> Verdict:
        """Each place with bits of its own, and sums of them: nothing can be lost."""
        patterns: dict[Position, list[Array]] = {}
        used: Array | None = None
        base: Array | None = None
        for place, runs in self._one_at_a_time([(place, 0) for place in tried]):
            found = self._collision(runs, place)
            if found is not None:
                return found
            results = [_bytes(states[-1]) for states in runs]
            base = results[0] if base is None else base
            if any(result.size != base.size for result in results):
                return self.verdict(Outcome.UNDECIDED, detail="the size of the result depends on the codes")
            patterns[place] = [result ^ base for result in results]
            own = np.bitwise_or.reduce(patterns[place])
            if used is not None and (own & used).any():
                return self._shared(patterns, place)
            used = own if used is None else own | used
        if not is_every_place:
            return self.verdict(Outcome.LOSSLESS, detail=f"{len(tried)} of the places were tried one at a time")
        return self._summed(np.zeros(0, np.uint8) if base is None else base, patterns)

    def _summed(self, base: Array, patterns: dict[Position, list[Array]]) -> Verdict:
        matrices = probe.proofs(self._shape, self._num_bits)[-probe.NUM_RANDOM :]
        for matrix, states in zip(matrices, self.run(matrices), strict=True):
            result = _bytes(states[-1])
            expected = base.copy()
            for place, own in patterns.items():
                expected ^= own[int(matrix[place])]
            if result.size != expected.size or (result != expected).any():
                detail = "what a code becomes depends on the codes at other places"
                return self.verdict(Outcome.UNDECIDED, detail=detail)
        return self.verdict(Outcome.LOSSLESS)

    def _shared(self, patterns: dict[Position, list[Array]], place: Position) -> Verdict:
        """Two places write the same bits: look for two pairs of codes with one result."""
        own = np.bitwise_or.reduce(patterns[place])
        other = next(p for p in patterns if p != place and (np.bitwise_or.reduce(patterns[p]) & own).any())
        pairs, matrices = [], []
        step = max(1, (1 << self._num_bits) // 16)
        for first in range(0, 1 << self._num_bits, step):
            for second in range(0, 1 << self._num_bits, step):
                matrix = np.zeros(self._shape, np.uint8)
                matrix[other], matrix[place] = first, second
                pairs.append((first, second))
                matrices.append(matrix)
        runs = self.run(matrices)
        for index, name in enumerate(self._names, start=1):
            groups = _groups([states[index] for states in runs])
            group = next((group for group in groups if len(group) > 1), None)
            if group is not None:
                one, two = pairs[group[0]], pairs[group[1]]
                detail = f"the codes at {list(other)} and {list(place)} run into each other: {one} and {two} end alike"
                return self.verdict(Outcome.LOST, step=name, position=place, detail=detail)
        detail = f"{list(other)} and {list(place)} write the same bits of the result"
        return self.verdict(Outcome.UNDECIDED, position=place, detail=detail)


def _bytes(state: Array) -> Array:
    return np.frombuffer(np.ascontiguousarray(state).tobytes(), np.uint8)


def _groups(states: Sequence[Array]) -> tuple[tuple[int, ...], ...]:
    """Indices of equal arrays, in order of their first member."""
    found: dict[tuple[object, ...], list[int]] = {}
    for index, state in enumerate(states):
        key = (state.shape, state.dtype.str, np.ascontiguousarray(state).tobytes())
        found.setdefault(key, []).append(index)
    return tuple(tuple(group) for group in found.values())


def _single_values(states: Sequence[Array]) -> tuple[float | int | None, ...]:
    """The one element in which the arrays differ; () if they differ in more, or in none."""
    first = states[0]
    if len(states) < 2 or any(state.shape != first.shape or state.dtype.kind not in "iuf" for state in states):
        return ()
    differing = np.any([(state != first).reshape(-1) for state in states[1:]], axis=0).nonzero()[0]
    if differing.size != 1:
        return ()
    return tuple(state.reshape(-1)[differing[0]].item() for state in states)
