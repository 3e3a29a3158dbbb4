"""How engines compute, as far as the range of numbers is concerned: one file an engine in `data/engines/arithmetic`.

A cell says a dtype (`model` is the one the model is served in) and the source it was read in, or why it is unverified.
Eight of the switches are where engines are known to differ; `activation_dtype`, `qk_dtype` and `norm_acc_dtype` complete
them, so that a walk with these switches gives infinities where the engine would.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

import msgspec

from degarble.engines.table import BadTable, read_table
from degarble.errors import UsageError

FOLDER = "arithmetic"
DTYPES = ("model", "fp32", "fp16", "bf16")


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One switch of one engine."""

    value: str | bool | float
    source: str = ""
    """File or thread in which it was read."""
    unverified: str = ""
    """Where it was not read: what is believed, and why."""


class EngineArithmetic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All switches of one engine."""

    title: str
    residual_dtype: Cell
    """The stream that blocks add to."""
    residual_add_dtype: Cell
    """In which the sum is formed; fp32 with a stream of the model's dtype: the next norm reads the unrounded sum."""
    norm_weight_mul_dtype: Cell
    """Whether the normalised value is rounded before the gain multiplies it."""
    gemm_acc_dtype: Cell
    """Sums inside a linear. fp16 also means that its input is converted to fp16."""
    pv_acc_dtype: Cell
    """Sums of probabilities times values."""
    kv_dtype: Cell
    router_dtype: Cell
    clamp: Cell
    """Whether inputs of norms are held inside fp16's range, so that an infinity is hidden."""
    activation_dtype: Cell
    """What operators hand to each other inside a block."""
    qk_dtype: Cell
    """Attention scores before the softmax."""
    norm_acc_dtype: Cell
    """Sum of squares."""
    pv_offset: Cell = Cell(value=0.0, source="no offset")
    """Nats added to the largest score before exponentials are summed without normalisation."""

    def cells(self) -> Iterator[tuple[str, Cell]]:
        """Every switch by name."""
        for name in self.__struct_fields__:
            if name != "title":
                yield name, getattr(self, name)

    @property
    def unverified(self) -> tuple[str, ...]:
        """Switches that nobody read in a source."""
        return tuple(name for name, cell in self.cells() if cell.unverified)


@cache
def engine_arithmetics() -> Mapping[str, EngineArithmetic]:
    """Every profile by name. Raises BadTable for a file that breaks the schema."""
    folder = files("degarble").joinpath("data", "engines", FOLDER)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {name.removesuffix(".toml"): _read(f"{FOLDER}/{name}") for name in names}


def engine_arithmetic(name: str) -> EngineArithmetic:
    """One profile. Raises UsageError with the names there are."""
    found = engine_arithmetics().get(name.strip().lower())
    if found is None:
        raise UsageError(f"--engine-profile {name!r}: expected {', '.join(engine_arithmetics())}")
    return found


def page() -> str:
    """All profiles as a page: what every switch is set to, and where that was read."""
    profiles = engine_arithmetics()
    names = [name for name, _ in next(iter(profiles.values())).cells()]
    parts = [
        "# Arithmetic of engines\n\nWhat `degarble overflow` simulates; `model` is the dtype that is served in. "
        "[Overflow](explanation/overflow.md) says what the switches do. A star marks what nobody read in a source.\n",
        "| engine | " + " | ".join(one.removesuffix("_dtype").replace("_", " ") for one in names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for engine, profile in profiles.items():
        parts.append(f"| {engine} | " + " | ".join(_shown(cell) for _, cell in profile.cells()) + " |")
    for engine, profile in profiles.items():
        parts.append(f"\n## {engine}\n\n{profile.title}\n\n| switch | value | source |\n|---|---|---|")
        for name, cell in profile.cells():
            parts.append(f"| {name} | {_shown(cell)} | {_plain(cell.source or f'unverified: {cell.unverified}')} |")
    return "\n".join(parts) + "\n"


def _shown(cell: Cell) -> str:
    value = {True: "yes", False: "no"}[cell.value] if isinstance(cell.value, bool) else cell.value
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return f"{text} \\*" if cell.unverified else text


def _plain(text: str) -> str:
    """Text of a table's cell: Markdown's signs stand for themselves."""
    return re.sub(r"([|*<>\[\]_])", r"\\\1", text)


def _read(name: str) -> EngineArithmetic:
    found = read_table(EngineArithmetic, name)
    for key, cell in found.cells():
        if bool(cell.source) == bool(cell.unverified):
            raise BadTable(name, key, "either a source or a word on why it is unverified", "both or neither")
        if isinstance(cell.value, str) and cell.value not in DTYPES:
            raise BadTable(name, f"{key}.value", " or ".join(DTYPES), repr(cell.value))
    return found
