"""Names for what makes a live cache's rows wrong, tried from the plainest: each explains the rows that become right by it.

Rows of the first layer depend on their own token only. Further up, attention has read whatever was wrong below, so a
wrong row that nothing explains, behind one that is explained in a lower layer, is counted as its consequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import prod

import numpy as np
import torch
from torch import Tensor

from degarble.errors import LayoutMismatch
from degarble.kvcache.dump import make_dump
from degarble.kvcache.layout import CATALOGUE, KVLayout
from degarble_engine.live_cache.laid import Expected, Laid, row_errors
from degarble_engine.live_cache.own_rows import MAX_NAMED, foreign_ids, own_tokens
from degarble_engine.numerics.walked_model import WalkedModel

MAX_TURN, MAX_PATTERNS = 64, 32
Rows = dict[tuple[int, str], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One explanation and the rows that it explains."""

    rule: str
    name: str
    told: str
    rows: Rows
    measured: dict[str, float | int | str] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows of all layers and parts."""
        return sum(int(mask.sum()) for mask in self.rows.values())

    @property
    def first(self) -> tuple[int, str, int]:
        """(layer, part, token) of the first row: the earliest token of the lowest layer."""
        layer = min(layer for layer, _ in self.rows)
        token, part = min((int(mask.nonzero()[0]), part) for (at, part), mask in self.rows.items() if at == layer)
        return layer, part, token


def patterns(laid: Laid, model: WalkedModel) -> Iterator[Pattern]:
    """Explanations, each time the one that explains most rows; ties go to what moves whole pages.

    A row of position 1 that was turned by 1 more is also one that was turned twice: the other rows tell the two apart.
    """
    makers = (_exchanged, _other_layouts, _other_layers, _other_heads, _emptied, _other_tokens, _turned, _scaled)
    for _ in range(MAX_PATTERNS):
        tried = [found for make in makers for found in make(laid)]
        if not tried:
            break
        best = max(tried, key=lambda one: one.num_rows)
        laid.take(best.rows)
        yield best
    if laid.num_wrong:
        yield from _foreign(laid, model)


def _emptied(laid: Laid) -> Iterator[Pattern]:
    """Rows of zeros, and rows with numbers that are none."""
    for name, told in (("zeros", "hold zeros"), ("not-finite", "hold values that are not finite")):
        rows: Rows = {}
        for (layer, part), mask in laid.wrong.items():
            own = laid.found[layer][part].flatten(1)
            is_so = (own == 0).all(dim=1) if name == "zeros" else ~torch.isfinite(own).all(dim=1)
            if (mask & is_so).any():
                rows[layer, part] = mask & is_so
        if rows:
            yield Pattern(rule="KVC606", name=name, told=f"{told}: they were never written, or wiped", rows=rows)


def _tried(laid: Laid, rule: str, name: str, told: str, expected: Expected) -> Iterator[Pattern]:
    rows = laid.explained(expected)
    if rows:
        yield Pattern(rule=rule, name=name, told=told, rows=rows)


def _exchanged(laid: Laid) -> Iterator[Pattern]:
    other = {"k": "v", "v": "k"}
    told = "keys stand where values should, and values where keys should"
    yield from _tried(laid, "KVC601", "k-and-v-exchanged", told,
                      lambda it, layer, part: it.rows[layer].exact[other[part]] if part in other else None)  # fmt: skip


def _other_layouts(laid: Laid) -> Iterator[Pattern]:
    """The same bytes under another order of axes: what a kernel wrote that believes in another layout."""
    declared = laid.request.layout
    for layout in CATALOGUE:
        if layout.axes == declared.axes or set(layout.atoms) != set(declared.atoms):
            continue
        rows: Rows = {}
        for (layer, part), mask in laid.wrong.items():
            if not mask.any():
                continue
            read = _reread(laid, layer, part, layout)
            if read is None:
                continue
            exact = laid.rows[layer].exact[part]
            fits = mask & (row_errors(read, exact) <= laid.bounds[layer, part])
            if fits.any():
                rows[layer, part] = fits
        if rows:
            told = f"were written as {layout.name} {list(layout.axes)} and are declared as {declared.name}"
            yield Pattern(rule="KVC601", name=f"laid-out-as-{layout.name}", told=told, rows=rows)


def _reread(laid: Laid, layer: int, part: str, layout: KVLayout) -> Tensor | None:
    request = laid.request
    stored = "kv" if "kv" in request.pages[layer] else part
    dump = request.dump(layer, stored)
    shape = [prod(dump.sizes[atom] for atom in axis.split("*")) for axis in layout.axes]
    again = np.ascontiguousarray(dump.stored).reshape(shape)
    try:
        other = make_dump(again, layout, dump.sizes, dump.table, dump.num_tokens)
    except LayoutMismatch:
        return None
    return request.scaled(layer, part, other.rows()[0][1 if stored == "kv" and part == "v" else 0])


def _other_layers(laid: Laid) -> Iterator[Pattern]:
    """A layer's pages hold another layer's rows. One row of each part is tried first."""
    for layer in sorted({layer for (layer, _), mask in laid.wrong.items() if mask.any()}):
        for other in (one for one in laid.rows if one != layer and _is_row_of(laid, layer, one)):
            rows = laid.explained(
                lambda it, at, part, other=other, own=layer: it.rows[other].exact[part] if at == own else None  # type: ignore[misc]
            )
            if rows:
                yield Pattern(rule="KVC618", name="another-layer", told=f"are those of layer {other}", rows=rows)


def _is_row_of(laid: Laid, layer: int, other: int) -> bool:
    for part, exact in laid.rows[other].exact.items():
        mask = laid.wrong[layer, part]
        if mask.any():
            token = int(mask.nonzero()[0])
            return laid.fits(layer, part, token, exact[token])
    return False


def _other_heads(laid: Laid) -> Iterator[Pattern]:
    """Heads in another order, the same in every row."""
    rows: Rows = {}
    orders: set[tuple[int, ...]] = set()
    for (layer, part), mask in laid.wrong.items():
        exact, found = laid.rows[layer].exact[part], laid.found[layer][part]
        if not mask.any() or exact.shape[1] < 2:
            continue
        wanted, own = (
            exact[mask].transpose(0, 1).flatten(1),
            found[mask].transpose(0, 1).flatten(1).nan_to_num(0.0, 0.0, 0.0),
        )
        order = torch.cdist(own, wanted).argmin(dim=1)
        if order.tolist() == list(range(len(order))):
            continue
        fits = mask & (row_errors(found, exact[:, order]) <= laid.bounds[layer, part])
        if fits.any():
            rows[layer, part] = fits
            orders.add(tuple(order.tolist()))
    if rows:
        shown = "; ".join(str(list(order)) for order in sorted(orders)[:3])
        yield Pattern(rule="KVC614", name="heads-permuted", told=f"have their heads in the order {shown}", rows=rows)


def _other_tokens(laid: Laid) -> Iterator[Pattern]:
    """Rows of other tokens of the same request: shifted, or blocks in each other's place."""
    layer = min(laid.rows)
    wrong = torch.stack([mask for (at, _), mask in laid.wrong.items() if at == layer]).any(dim=0)
    tokens = wrong.nonzero().flatten().tolist()
    sources = own_tokens(laid, layer, tokens) if tokens else {}
    if not sources:
        return
    at = torch.arange(len(wrong))
    for token, source in sources.items():
        at[token] = source
    moved = torch.zeros_like(wrong)
    moved[list(sources)] = True
    rows = laid.explained(lambda it, one, part: it.rows[one].exact[part][at])
    rows = {key: mask & moved for key, mask in rows.items() if (mask & moved).any()}
    for steps, group in _by_shift(sources):
        chosen = torch.zeros_like(wrong)
        chosen[group] = True
        own = {key: mask & chosen for key, mask in rows.items() if (mask & chosen).any()}
        if own:
            yield Pattern(rule="KVC602", name="tokens-moved", told=_moved(laid, steps, sources, group), rows=own,
                          measured={"moved_by_tokens": steps})  # fmt: skip


def _by_shift(sources: dict[int, int]) -> Iterator[tuple[int, list[int]]]:
    """(tokens that rows are late, the rows)"""
    ordered = sorted(sources, key=lambda token: (token - sources[token], token))
    for steps, group in groupby(ordered, key=lambda token: token - sources[token]):
        yield steps, list(group)


def _moved(laid: Laid, steps: int, sources: dict[int, int], group: Sequence[int]) -> str:
    size = laid.request.block_size
    way = f"{abs(steps)} slots too {'late' if steps > 0 else 'early'}"
    if steps % size == 0:
        return f"are those of block column {sources[group[0]] // size} and on: whole blocks are exchanged ({way})"
    return f"are those of token {sources[group[0]]} and on: they were written {way}"


def _turned(laid: Laid) -> Iterator[Pattern]:
    """Keys that are right but for their rotation."""
    layer = min(laid.rows)
    part = "k" if "k" in laid.found[layer] else "latent"
    mask, rotary = laid.wrong[layer, part], laid.rows[layer].rotary
    if rotary is None or not mask.any():
        return
    positions = torch.arange(len(mask))
    kinds = [("unrotated", "are not rotated at all", -positions), ("rotated-twice", "are rotated twice", positions)]
    for by in sorted(range(-MAX_TURN, MAX_TURN + 1), key=abs):
        if by:
            place = f"stand {abs(by)} position{'s' * (abs(by) > 1)} {'further on' if by > 0 else 'back'}"
            kinds.append(("rotated-by-other-position", f"{place} than their tokens", torch.full_like(positions, by)))
    for name, told, by in kinds:
        errors = row_errors(laid.found[layer][part], rotary.turned(laid.rows[layer].exact[part], by))
        if not (mask & (errors <= laid.bounds[layer, part])).any():
            continue
        yield from _if_any(laid, part, name, told, lambda it, at, one, by=by: _turn(it, at, one, part, by))  # type: ignore[misc]
    told = "are rotated in pairs of neighbouring lanes, where halves belong together"
    yield from _if_any(
        laid, part, "rotary-lanes-paired-otherwise", told, lambda it, at, one: _paired(it, at, one, part)
    )


def _if_any(laid: Laid, part: str, name: str, told: str, expected: Expected) -> Iterator[Pattern]:
    if any(mask.any() for (_, one), mask in laid.wrong.items() if one == part):
        yield from _tried(laid, "KVC607", name, f"{told}: only rotary lanes differ", expected)


def _turn(laid: Laid, layer: int, part: str, turning: str, by: Tensor) -> Tensor | None:
    rotary = laid.rows[layer].rotary
    return None if part != turning or rotary is None else rotary.turned(laid.rows[layer].exact[part], by)


def _paired(laid: Laid, layer: int, part: str, turning: str) -> Tensor | None:
    rotary, exact = laid.rows[layer].rotary, laid.rows[layer].exact.get(part)
    if part != turning or rotary is None or exact is None:
        return None
    return rotary.wrongly_paired(exact, torch.arange(exact.shape[0]))


def _scaled(laid: Laid) -> Iterator[Pattern]:
    """One factor for a layer's part: a scale that one side did not apply, or applied twice."""
    rows: Rows = {}
    factors: dict[str, float] = {}
    for (layer, part), mask in laid.wrong.items():
        if int(mask.sum()) < 2:
            continue
        found, exact = laid.found[layer][part], laid.rows[layer].exact[part]
        factor = float((found[mask] * exact[mask]).sum() / exact[mask].square().sum().clamp_min(1e-30))
        if not np.isfinite(factor) or factor == 0 or abs(factor - 1) <= laid.bounds[layer, part]:
            continue
        fits = mask & (row_errors(found / factor, exact) <= laid.bounds[layer, part])
        if int(fits.sum()) >= 2:
            rows[layer, part] = fits
            factors[f"layers.{layer}.{part}"] = factor
    if rows:
        shown = ", ".join(f"{name} x {factor:.6g}" for name, factor in list(factors.items())[:4])
        yield Pattern(rule="KVC628", name="scaled", rows=rows, measured={"factor": next(iter(factors.values()))},
                      told=f"are what they should be times a constant ({shown}): a scale that one side left out")  # fmt: skip


def _foreign(laid: Laid, model: WalkedModel) -> Iterator[Pattern]:
    """Rows of another text, by their ids; then rows that nothing explains."""
    wrong: Rows = {key: mask for key, mask in laid.wrong.items() if mask.any()}
    layer = min(at for at, _ in wrong)
    lowest = torch.stack([mask for (at, _), mask in wrong.items() if at == layer]).any(dim=0)
    tokens = lowest.nonzero().flatten().tolist()
    ids = foreign_ids(laid, model, tokens) if layer == 0 else {}
    ids = {token: one for token, one in ids.items() if one != laid.request.token_ids[token]}
    if ids:
        chosen = torch.zeros_like(lowest)
        chosen[list(ids)] = True
        if len(tokens) > MAX_NAMED:
            chosen |= lowest & (torch.arange(len(lowest)) > tokens[MAX_NAMED - 1])  # too many to name each
        rows = {key: mask & chosen for key, mask in wrong.items() if (mask & chosen).any()}
        laid.take(rows)
        is_prefix = min(ids) // laid.request.block_size == 0
        yield Pattern(
            rule="KVC608" if is_prefix else "KVC604",
            name="foreign-tokens",
            told=f"are those of another text: ids {list(ids.values())[:8]}{' …' if len(ids) > 8 else ''} stand where "
            f"{[laid.request.token_ids[token] for token in list(ids)[:8]]}{' …' if len(ids) > 8 else ''} were computed",
            rows=rows,
            measured={"foreign_token_ids": str(list(ids.values())[:32])},
        )


def consequences(laid: Laid, found: Sequence[Pattern]) -> int:
    """Take out what lies behind explained rows of lower layers; how many rows that were."""
    if not found:
        return 0
    starts = [one.first for one in found]
    taken = 0
    for (layer, part), mask in laid.wrong.items():
        tokens = [token for at, _, token in starts if at < layer]
        if tokens and mask.any():
            behind = mask & (torch.arange(len(mask)) >= min(tokens))
            taken += int(behind.sum())
            laid.take({(layer, part): behind})
    return taken
