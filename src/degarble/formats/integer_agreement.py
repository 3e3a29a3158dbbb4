"""What packed-integer formats ask of headers beyond `agreement.py`: bit width, grouping, and parts of a wrong shape.

A width is seldom told by one shape alone (16 words are 128 codes of 4 bits or 64 of 8), so every shape names the widths
it allows; what the config says is believed as long as the shapes allow it. Groups likewise: a config's group size is
right if it gives the stored number of groups, be the last one short or the only one longer than the row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import declared_against_stored, shape_contradiction
from degarble.formats.interface import PAYLOAD, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.packing import num_words
from degarble.formats.scheme import Scheme

WIDTHS = range(2, 9)
WORDS = frozenset({"I32", "U32"})
INTEGERS = frozenset({"I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64"})
SCALE_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})

USUAL_WIDTH = 4
"""Taken where shapes allow several widths and exclude the declared one."""


def widths_for(length: int | None, words: int) -> frozenset[int]:
    """Bit widths at which `length` codes fill exactly `words` 32-bit words."""
    return frozenset(bits for bits in WIDTHS if length and num_words(length, bits) == words)


def pick_width(evidence: Iterable[frozenset[int]], declared: Scheme | None) -> int | None:
    """The width that all evidence allows, the strongest first; what contradicts the stronger is left out."""
    possible: frozenset[int] = frozenset()
    for widths in evidence:
        possible = (possible & widths or possible) if possible else widths
    said = declared.num_bits if declared is not None and declared.num_bits in WIDTHS else None
    if not possible or said in possible:
        return said
    return USUAL_WIDTH if USUAL_WIDTH in possible else max(possible)


def grouping(in_features: int | None, groups: int | None, declared: Scheme | None) -> tuple[str | None, int | None]:
    """Strategy and group size; the declared ones where they give this number of groups."""
    said = declared.group_size if declared is not None else None
    if not in_features or not groups:
        return (declared.strategy if declared is not None else None), said
    if said and -(-in_features // said) == groups:
        return "group", said
    return ("channel", None) if groups == 1 else ("group", -(-in_features // groups))


def stored_scheme(
    declared: Scheme | None, *, method: str, num_bits: int | None, strategy: str | None, group_size: int | None
) -> Scheme:
    """The integer scheme that shapes prove, with the declared facts that no shape shows."""
    said = declared or Scheme(method=method)
    return Scheme(
        method=method,
        format=said.format,
        type="int",
        num_bits=num_bits,
        strategy=strategy,
        group_size=group_size,
        symmetric=said.symmetric,
        act_order=said.act_order,
        activations=said.activations,
    )


def disagreements(
    declared: Scheme | None,
    stored: Scheme,
    *,
    methods: frozenset[str],
    labels: tuple[str, ...] = (),
) -> list[Contradiction]:
    """Declaration against stored scheme: layout, kind of number, bits, group size, one scale a tensor or more.

    `labels` are the layouts that the config may name for what is stored, the proper one first; empty: the label decides
    nothing.
    """
    found = declared_against_stored(declared, stored, methods=methods)
    if declared is None:
        return found
    if labels and declared.method in methods and declared.format not in (None, *labels):
        found.append(Contradiction(about="layout", role=PAYLOAD, expected=str(declared.format), found=labels[0]))
    if declared.type == "float":
        found.append(Contradiction(about="dtype", role=PAYLOAD, expected="float", found="integers"))
    extents = {declared.strategy, stored.strategy}
    if "tensor" in extents and len(extents & {"tensor", "channel", "group"}) == 2:
        found.append(
            Contradiction(
                about="group_size",
                role="scale",
                expected=f"scales per {declared.strategy}",
                found=f"scales per {stored.strategy}",
            )
        )
    return found


def needed_roles(declared: Scheme | None, *always: str, asymmetric: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Roles a module needs: those of its format, and those its declaration makes necessary."""
    if declared is None:
        return always
    more = asymmetric if declared.symmetric is False else ()
    grouped = declared.strategy in (None, "group", "tensor_group")
    order = ("g_idx",) if declared.act_order == "group" and grouped else ()
    static = ("input_scale",) if declared.activations == "static" else ()
    return (*always, *more, *order, *static)


def absent(needed: Iterable[str], present: Collection[str]) -> tuple[str, ...]:
    """The needed roles that are not there."""
    return tuple(role for role in needed if role not in present)


def part_contradictions(
    part: TensorInfo | None,
    role: str,
    about: str,
    dtypes: frozenset[str],
    shape: Iterable[int | None],
    packing: str = "",
) -> list[Contradiction]:
    """One part against the dtypes and the shape it should have; None stands for an axis that nothing tells."""
    if part is None:
        return []
    want = list(shape)
    text = f"{want}{packing}".replace("None", "?")
    fits = len(want) == len(part.shape) and all(w in (None, s) for w, s in zip(want, part.shape, strict=True))
    if not fits:
        return [shape_contradiction(about, role, text, part)]
    if part.dtype in dtypes:
        return []
    kind = about if about == "zero_point" else "dtype"
    return [shape_contradiction(kind, role, f"{' or '.join(sorted(dtypes))} {text}", part)]


def matrix(module: StoredModule, role: str) -> Array:
    """A stored part that has to have two axes or more. Raises ValueError if it has fewer, KeyError if it is absent."""
    array = module.array(role)
    if array.ndim < 2:
        raise ValueError(f"{module.parts[module.form.roles[role]].name}: expected a matrix, found {list(array.shape)}")
    return array


def malformed(
    fmt: WeightFormat,
    parts: Parts,
    declared: Scheme | None,
    *,
    method: str,
    methods: frozenset[str],
    needed: Iterable[str],
    expected: str,
) -> Form:
    """The form of a module whose payload has a shape or dtype that its format does not know."""
    by_role = fmt.by_role(parts)
    scheme = stored_scheme(declared, method=method, num_bits=None, strategy=None, group_size=None)
    found = disagreements(declared, scheme, methods=methods)
    found.append(shape_contradiction("shape", PAYLOAD, expected, by_role[PAYLOAD]))
    return Form(
        format=fmt.name,
        scheme=scheme,
        shape=None,
        roles=fmt.role_suffixes(parts),
        missing=absent(needed, by_role),
        contradictions=tuple(found),
    )
