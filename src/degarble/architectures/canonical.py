"""Names: from what is on disk to the canonical name, and from there to a template with placeholders.

Both run once for every tensor of a checkpoint, 92,000 times for DeepSeek-V3 with its scales. What stands
behind the layer number repeats in every layer, so that part is memoised and the rest is two slices.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files

import msgspec

_LAYER_MARK = ".layers."
_EXPERT_MARK = ".experts."
_MAX_DIGITS = 7


def template_of(name: str) -> tuple[str, int | None, int | None]:
    """Split a canonical name into its template, layer number and expert number.

    `model.layers.3.mlp.experts.17.up_proj.weight` gives
    `("model.layers.{layer}.mlp.experts.{expert}.up_proj.weight", 3, 17)`.
    """
    head, mark, rest = name.partition(_LAYER_MARK)
    if not mark:
        return name, None, None
    digits, dot, tail = rest.partition(".")
    layer = _number(digits)
    if layer is None or not dot:
        return name, None, None
    template, expert = _around_layer(head, tail)
    return template, layer, expert


@lru_cache(maxsize=65_536)
def _around_layer(head: str, tail: str) -> tuple[str, int | None]:
    """The template of what stands before and behind a layer number, with the expert number taken out.

    Peers share one string, so that comparing and hashing them costs nothing further on.
    """
    before, mark, rest = tail.partition(_EXPERT_MARK)
    digits, dot, end = rest.partition(".")
    expert = _number(digits) if mark else None
    if expert is None:
        return sys.intern(f"{head}.layers.{{layer}}.{tail}"), None
    return sys.intern(f"{head}.layers.{{layer}}.{before}.experts.{{expert}}{dot}{end}"), expert


@lru_cache(maxsize=16_384)
def _number(digits: str) -> int | None:
    """A decimal number in its one spelling: `03` and `٣` would let two tensors claim one place."""
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MAX_DIGITS:
        return None
    return None if digits[0] == "0" and digits != "0" else int(digits)


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """How one checkpoint spells `model.` and `lm_head`, decided once for all its names."""

    model: str
    """What stands for `model.`: empty in a bare decoder, `language_model.model.` in LLaVA."""
    head: str
    """What stands for `lm_head.`."""

    def on_disk(self, canonical: str) -> str:
        """The name that this checkpoint would use, for messages about missing tensors."""
        if canonical.startswith("model."):
            return self.model + canonical[6:]
        if canonical.startswith("lm_head."):
            return self.head + canonical[8:]
        return canonical


PLAIN = Prefix(model="model.", head="lm_head.")


def text_prefix(names: Iterable[str]) -> Prefix:
    """Find the layout that most names of decoder layers have, so that one stray name cannot decide."""
    layouts, _ = _layouts()
    starts = Counter([name.partition("layers.")[0] for name in names if "layers." in name])
    best = max(layouts, key=lambda layout: starts[layout.model])
    return best if starts[best.model] else PLAIN


def canonical_name(name: str, prefix: Prefix) -> str | None:
    """Rename to the plain decoder's names; None for tensors of other towers, which are not judged.

    A name that is neither stays as it is, so that an unknown tensor is reported and not hidden.
    """
    if name.startswith(prefix.model) and name.startswith("layers.", len(prefix.model)):
        return name if prefix.model == "model." else f"model.{name[len(prefix.model) :]}"
    if is_other_tower(name):
        return None
    if prefix.model == "model.":
        return name
    if name.startswith(prefix.head):
        return f"lm_head.{name[len(prefix.head) :]}"
    if prefix.model:
        return f"model.{name[len(prefix.model) :]}" if name.startswith(prefix.model) else name
    return f"model.{name}" if name.startswith(("embed_tokens.", "norm.", "rotary_emb.")) else name


def is_other_tower(name: str) -> bool:
    """Whether the first or second part of the name is a vision, audio or projector module."""
    _, starts = _layouts()
    first, _, rest = name.partition(".")
    return name.startswith(starts) or (first in _WRAPPERS and rest.startswith(starts))


_WRAPPERS = frozenset({"model", "thinker", "language_model"})


@cache
def _layouts() -> tuple[tuple[Prefix, ...], tuple[str, ...]]:
    """Known layouts, longest first, and how names of other towers start."""
    text = (files("degarble.data") / "architectures" / "prefixes.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    layouts = [Prefix(model=row["model"], head=row["head"]) for row in data["layouts"]]
    return tuple(sorted(layouts, key=lambda layout: -len(layout.model))), tuple(data["other_towers"])
