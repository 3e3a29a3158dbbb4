"""Where headers and declaration meet: the comparisons every format needs, and the facts it may rely on afterwards."""

from __future__ import annotations

from degarble.checkpoint.interface import TensorInfo
from degarble.formats.interface import PAYLOAD, Contradiction, StoredModule
from degarble.formats.scheme import Scheme


def declared_against_stored(declared: Scheme | None, stored: Scheme, *, methods: frozenset[str]) -> list[Contradiction]:
    """Layout, bits, group and block size of the config against those the shapes prove.

    `methods` are the declared quant_methods that a file of this layout may carry. Nothing declared: nothing to contradict.
    """
    if declared is None:
        return []
    found: list[Contradiction] = []
    if declared.method not in methods:
        found.append(Contradiction(about="layout", role=PAYLOAD, expected=declared.method, found=stored.method))
    if declared.num_bits and stored.num_bits and declared.num_bits != stored.num_bits:
        found.append(
            Contradiction(about="num_bits", role=PAYLOAD, expected=str(declared.num_bits), found=str(stored.num_bits))
        )
    elif declared.strategy in ("group", "channel") and stored.strategy in ("group", "channel"):
        is_said = declared.strategy == "channel" or declared.group_size is not None
        if is_said and declared.group_size != stored.group_size:
            found.append(
                Contradiction(about="group_size", role="scale", expected=_grouping(declared), found=_grouping(stored))
            )
    return found


def _grouping(scheme: Scheme) -> str:
    return str(scheme.group_size) if scheme.group_size else f"none (one scale per {scheme.strategy})"


def shape_contradiction(about: str, role: str, expected: str, info: TensorInfo) -> Contradiction:
    """A part whose dtype or shape is not what the others demand."""
    return Contradiction(about=about, role=role, expected=expected, found=f"{info.dtype} {list(info.shape)}")


def bits_of(module: StoredModule) -> int:
    """The bit width; raises ValueError where headers do not tell it."""
    if module.form.scheme is None or module.form.scheme.num_bits is None:
        raise ValueError(f"{module.name}: the bit width cannot be told from its headers")
    return module.form.scheme.num_bits


def shape_of(module: StoredModule) -> tuple[int, ...]:
    """The logical shape; raises ValueError where headers do not tell it."""
    if module.form.shape is None:
        raise ValueError(f"{module.name}: the logical shape cannot be told from its headers")
    return module.form.shape
