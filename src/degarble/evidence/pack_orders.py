"""Evidence about packing: modules whose rows or columns fit their partner's only in another order.

A pair says that one side is permuted, not which. The side follows from the format, since an order goes wrong inside
the words that codes are packed in:

    suspicion in     codes packed along inputs (GPTQ, …)     along outputs (AWQ)
    channels         the first of the pair (up, gate, v)     the second (down, o)
    neurons          the second (down, o)                    the first

q and k share both sides; the one is taken whose channels resemble those of v and of the neighbouring layers less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.errors import EvidenceMissing
from degarble.evidence.block_look import BlockLook, deinterleaved, half_order_restores
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.profile.codes import correlation
from degarble.profile.joint import deviations, orders_of
from degarble.profile.layer import JointProfile, PairScore, rows
from degarble.profile.sample import UNREADABLE, sampled_outputs

MIN_DEVIATIONS, MIN_RATIO = 8.0, 1.25
"""Healthy pairs: 3.7 at most in 13 files; random weights: 5.0."""
DISTINCT = 2.0
"""How much more than any other order the right one gains: in weights that are scrambled otherwise, several gain a little."""
RELATED = 2.0
"""Partners below this in every order are no partners: untrained weights, or the value side of a first layer."""

PARTNER_ORDERS = ("pairs-swapped", "halves-swapped")
"""Rotary partners: in q and k a row resembles its partner's row, which is its neighbour or half a head away."""

INVERSES: Mapping[str, str] = {
    "awq": "awq-inverse",
    "awq-inverse": "awq",
    "halves-interleaved": "halves-deinterleaved",
    "halves-deinterleaved": "halves-interleaved",
}
"""The others undo themselves."""


class Misorder(msgspec.Struct, frozen=True, kw_only=True):
    """One module in another order than its partner."""

    module: StoredModule
    partner: str
    side: str
    """inputs | outputs"""
    order: str
    """A key of joint.ORDERS: what lies at each place of the file."""
    stored: float
    restored: float
    """T as it is, and in that order."""
    deviations: float
    or_module: str | None = None
    """The other candidate, where the pair does not tell."""

    @property
    def places(self) -> tuple[int, ...]:
        """The order, inside 8 or 32 neighbours."""
        return orders_of(32).get(self.order, ()) if "halves" in self.order else orders_of(8)[self.order]


class PackOrders(msgspec.Struct, frozen=True, kw_only=True):
    """All suspicions of a checkpoint."""

    misorders: tuple[Misorder, ...]
    num_blocks: int
    """Attentions and MLPs in which an order can be told."""
    num_misordered: int


class _Suspicion(msgspec.Struct, frozen=True):
    profile: JointProfile
    pair: PairScore
    side: str
    order: str
    restored: float


@provides("pack_orders")
def pack_orders(joint: Sequence[JointProfile], modules: Modules, block_look: BlockLook) -> PackOrders:
    """Judge every pair of every layer."""
    judged = [(profile, pair) for profile in joint for pair in profile.pairs]
    related = [one for one in judged if max(bests(*one).values(), default=0.0) > RELATED or one[1].stored > RELATED]
    if not judged:
        raise EvidenceMissing("no two modules of a layer that work on the same channels")
    if not related:
        top = max(pair.stored for _, pair in judged)
        raise EvidenceMissing(
            f"rows of up_proj and columns of down_proj are unrelated (T = {top:.1f} at most, 1 by chance): untrained "
            "weights, whose packing order cannot be told"
        )
    suspicions = [one for profile, pair in judged if (one := _suspicion(profile, pair)) is not None]
    found = [one for one in suspicions if not _is_explained(one, block_look)]
    return PackOrders(
        misorders=tuple(_resolved(found, modules)),
        num_blocks=len({id(profile) for profile, _ in related}),
        num_misordered=len({id(one.profile) for one in found}),
    )


def packs_outputs(module: StoredModule) -> bool:
    """Whether the codes that share a word are neighbours among the outputs rather than among the inputs."""
    axes = module.format.axes.get(PAYLOAD)
    return axes is not None and axes[0][1] != 1


def bests(profile: JointProfile, pair: PairScore) -> dict[tuple[str, str], float]:
    """(side, order) -> T, without the orders that healthy attentions show."""
    is_attention_key = pair.left == profile.modules.get("q")
    found = {("channels", name): value for name, value in pair.channels.items()}
    for name, value in pair.neurons.items():
        if not (is_attention_key and name in PARTNER_ORDERS):
            found["neurons", name] = value
    return found


def _suspicion(profile: JointProfile, pair: PairScore) -> _Suspicion | None:
    orders = bests(profile, pair)
    if not orders:
        return None
    (side, order), value = max(orders.items(), key=lambda item: item[1])
    is_sure = deviations(value, pair.stored, pair.count) > MIN_DEVIATIONS and value > MIN_RATIO * pair.stored
    others = [other for (_, name), other in orders.items() if name != order]
    is_sure = is_sure and value > RELATED and value - pair.stored > DISTINCT * (max(others, default=0.0) - pair.stored)
    return _Suspicion(profile, pair, side, order, value) if is_sure else None


def _is_explained(one: _Suspicion, block_look: BlockLook) -> bool:
    """Whether rows in pairs instead of halves (WGT225) fit better than any order inside words."""
    block = block_look.block(one.profile)
    try:
        if block is None:
            return False
        if one.pair.left == one.profile.modules.get("q"):
            return max(restored for _, restored, _ in half_order_restores(block).values()) > one.restored
        return {"gate", "up"} <= one.profile.modules.keys() and deinterleaved(block)[1] > one.restored
    except UNREADABLE:
        return False


def _resolved(found: Sequence[_Suspicion], modules: Modules) -> Iterator[Misorder]:
    """One entry a module: two pairs may accuse the same one."""
    known: set[str] = set()
    for one in found:
        is_shared = sum(other.profile is one.profile and other.side == one.side for other in found) > 1
        guilty, other_name = _guilty(one, modules, is_shared)
        if guilty in known or guilty not in modules:
            continue
        known.add(guilty)
        is_left = guilty == one.pair.left
        side = (
            "inputs"
            if (one.side == "channels") == (is_left or one.pair.left == one.profile.modules.get("q"))
            else "outputs"
        )
        yield Misorder(
            module=modules[guilty],
            partner=one.pair.right if is_left else one.pair.left,
            side=side,
            order=INVERSES.get(one.order, one.order) if is_left else one.order,
            stored=one.pair.stored,
            restored=one.restored,
            deviations=deviations(one.restored, one.pair.stored, one.pair.count),
            or_module=other_name,
        )


def _guilty(one: _Suspicion, modules: Modules, is_shared: bool) -> tuple[str, str | None]:
    """The permuted module of the pair, and the other one where that is a guess."""
    left, right = one.pair.left, one.pair.right
    if left == one.profile.modules.get("q"):
        if one.side == "channels":
            return _by_channels(one, modules)
        return left, right
    module = modules.get(left)
    if (
        module is not None
        and module.form.is_quantized
        and (module.form.scheme is None or module.form.scheme.num_bits != 8)
    ):
        is_left = packs_outputs(module) == (one.side == "neurons")
    else:
        is_left = not is_shared
    return (left, None) if is_left else (right, None)


def _by_channels(one: _Suspicion, modules: Modules) -> tuple[str, str | None]:
    """Of q and k, the one whose input channels look less like those of v and of the neighbouring layers."""
    pair = (one.pair.left, one.pair.right)
    try:
        strengths = {name: _channel_rms(modules[name]) for name in pair}
        anchors = [_channel_rms(modules[name]) for name in _anchors(one, modules)]
    except (KeyError, *UNREADABLE):
        return pair[0], pair[1]
    if not anchors:
        return pair[0], pair[1]
    anchor = np.mean(anchors, axis=0)
    likeness = [correlation(strengths[name], anchor) or 0.0 for name in pair]
    return (pair[0], None) if likeness[0] < likeness[1] else (pair[1], None)


def _anchors(one: _Suspicion, modules: Modules) -> list[str]:
    """Names of v of the same layer, and of q and k of the layers before and behind."""
    names = [one.profile.modules[part] for part in ("v",) if part in one.profile.modules]
    templates = {modules[name].template for name in (one.pair.left, one.pair.right)}
    layers = (one.profile.layer - 1, one.profile.layer + 1)
    return names + [
        m.name for m in modules.values() if m.template in templates and m.layer in layers and m.expert is None
    ]


def _channel_rms(module: StoredModule) -> Array:
    """Logarithm of the rms of each input over sampled outputs."""
    values = rows(module, sampled_outputs(module))
    return np.asarray(0.5 * np.log(np.einsum("nd,nd->d", values, values) / len(values) + 1e-30))
