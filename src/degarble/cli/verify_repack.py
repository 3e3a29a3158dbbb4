"""`degarble verify-repack`: does a function that rearranges packed weights lose codes?"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from degarble.errors import UsageError

if TYPE_CHECKING:
    from degarble.checkpoint.tensor_data import Array
    from degarble.repack.verdict import Verdict
    from degarble.repack.verify import Unpack

EPILOG = """The function is called with one numpy array and returns one (or a tensor). The array is what LAYOUT stores
for a small matrix of codes (out, in): `codes` uint8 (out, in) (int8 with --signed), `gptq` and `exllama` int32
(in*bits/32, out), `awq-gemm` int32 (in, out/8), `awq-gemv` and `compressed-tensors` int32 (out, in*bits/32), `marlin`
int32 (in/16, out*bits/2), `gguf-halves` uint8 (out, in/2), `q4-0-4x4` uint8 (out/4, in*2). Several functions are run
one after the other, and the one that loses codes is named. They run in a process of their own, with your rights: name
only code you trust. Status 0: nothing is lost; 1: codes are lost, misplaced or altered; 2: it could not be run or
judged."""

MIB = 1 << 20
SHOWN_GROUPS = 8
MAX_CODES = 1 << 16
"""In one matrix."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify-repack", epilog=EPILOG)(verify_repack)


def verify_repack(
    functions: Annotated[list[str], typer.Argument(help="module:function or file.py:function, in order.")],
    layout: Annotated[str, typer.Option(help="Layout of the array that the first function is given.")] = "codes",
    to: Annotated[str | None, typer.Option(help="Layout that the last function should give.")] = None,
    inverse: Annotated[str | None, typer.Option(help="Function that should undo them.", metavar="FUNCTION")] = None,
    bits: Annotated[int, typer.Option(help="Bits a code: 2, 3, 4 or 8.")] = 4,
    signed: Annotated[bool, typer.Option("--signed", help="Codes are two's complement, -8..7 for 4 bits.")] = False,
    shape: Annotated[
        str | None, typer.Option(help="Size of the matrix, if the function needs one.", metavar="OUTxIN")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each process.", min=0.1)] = 60.0,
    memory: Annotated[int, typer.Option(help="Address space for each process, in MiB.", min=64)] = 4096,
    format_: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    output: Annotated[str | None, typer.Option("--output", help="Write to this file.")] = None,
) -> int:
    """Try a repack function on all codes at all positions, and name the codes that it loses."""
    from degarble.cli.output import write_text
    from degarble.repack.verdict import Outcome

    if format_ not in ("text", "json"):
        raise UsageError(f"--format {format_}: text or json")
    if to is not None and inverse is not None:
        raise UsageError("give --to or --inverse, not both")
    names = [*functions, *([inverse] if inverse is not None else [])]
    verdict = _judge(names, layout, layout if inverse is not None else to, bits, signed, shape, (timeout, memory * MIB))
    if verdict.outcome is Outcome.UNDECIDED:
        raise UsageError(f"could not be judged: {verdict.detail}; give --to LAYOUT or --inverse FUNCTION")
    facts = describe(verdict, names, layout, to, inverse, signed)
    if format_ == "json":
        write_text(json.dumps(facts, indent=2) + "\n", output)
    else:
        write_text("\n".join(_text(verdict, facts)) + "\n", output)
    sys.stdout.flush()
    return 0 if verdict.is_lossless else 1


def _judge(
    names: list[str],
    layout: str,
    target: str | None,
    bits: int,
    signed: bool,
    size: str | None,
    limits: tuple[float, int],
) -> Verdict:
    from degarble.repack.foreign import foreign_chain
    from degarble.repack.interface import layouts
    from degarble.repack.verify import common_shape, verify

    known = layouts()
    for name in (layout, target):
        if name is not None and name not in known:
            raise UsageError(f"no layout is called {name!r}; there are {', '.join(known)}")
        if name is not None and bits not in known[name].widths:
            widths = ", ".join(map(str, known[name].widths))
            raise UsageError(f"{name} knows {widths} bits, not {bits}")
    source = known[layout]
    shape = _shape(size, common_shape([source, *([known[target]] if target is not None else [])], bits, (1, 1)))

    def present(matrix: Array) -> Array:
        return signed_values(matrix, bits) if signed and layout == "codes" else source.pack(matrix, bits)

    unpack: Unpack | None = None
    if target is not None:
        reader = known[target]

        def unpack(stored: Array) -> Array:
            return reader.unpack(stored, bits, shape)

    chain = foreign_chain(names, present, timeout_seconds=limits[0], memory_bytes=limits[1])
    try:
        return verify(chain, names, bits, shape, unpack)
    except ValueError as error:
        raise UsageError(f"the result cannot be read as {target}: {error}") from None


def _shape(size: str | None, granule: tuple[int, int]) -> tuple[int, int]:
    """The matrix to try: the given size, or at least two granules and 16 x 32 codes."""
    if size is None:
        out, inputs = (granule[axis] * max(2, -(-least // granule[axis])) for axis, least in ((0, 16), (1, 32)))
        return out, inputs
    parts = size.lower().split("x")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--shape {size}: expected OUTxIN, such as 64x128")
    out, inputs = int(parts[0]), int(parts[1])
    if not 0 < out * inputs <= MAX_CODES or out % granule[0] or inputs % granule[1]:
        raise UsageError(f"--shape {size}: expected multiples of {granule[0]}x{granule[1]}, at most {MAX_CODES} codes")
    return out, inputs


def signed_values(fields: Array, bits: int) -> Array:
    """Fields as two's complement, int8."""
    import numpy as np

    values = fields.astype(np.int16)
    return np.where(values >> (bits - 1) & 1, values - (1 << bits), values).astype(np.int8)


def describe(
    verdict: Verdict, names: list[str], layout: str, to: str | None, inverse: str | None, signed: bool
) -> dict[str, Any]:
    """The JSON document."""
    from degarble.version import __version__

    def code(field: int) -> int:
        return field - (1 << verdict.num_bits) if signed and field >> (verdict.num_bits - 1) else field

    values = verdict.values or (None,) * len(verdict.collisions)
    groups = [(sorted(map(code, fields)), value) for fields, value in zip(verdict.collisions, values, strict=True)]
    return {
        "schema_version": 1,
        "tool": {"name": "degarble", "version": __version__},
        "command": "verify-repack",
        "status": "ok" if verdict.is_lossless else "findings",
        "functions": names,
        "layout": layout,
        "to": to,
        "inverse": inverse,
        "num_bits": verdict.num_bits,
        "signed": signed,
        "shape": list(verdict.shape),
        "runs": verdict.num_runs,
        "outcome": verdict.outcome.value,
        "step": verdict.step,
        "position": None if verdict.position is None else list(verdict.position),
        "lost_codes": sorted(code(field) for field in verdict.lost_codes),
        "collisions": [{"codes": codes, "value": value} for codes, value in sorted(groups, key=lambda group: group[0])],
        "misplaced": [{"from": list(start), "to": list(end)} for start, end in verdict.places],
        "altered": [{"code": code(before), "comes_back_as": code(after)} for before, after in verdict.mapping],
        "detail": verdict.detail,
    }


def _text(verdict: Verdict, facts: dict[str, Any]) -> list[str]:
    """The same for people."""
    place = f"output {facts['position'][0]}, input {facts['position'][1]}" if facts["position"] else ""
    detail = [verdict.detail] if verdict.detail else []
    tried = (
        f"{1 << verdict.num_bits} codes at {verdict.shape[0]} x {verdict.shape[1]} positions, {verdict.num_runs} runs"
    )
    if facts["outcome"] == "identity":
        return [f"identity: every code comes back ({tried})"]
    if facts["outcome"] == "lossless":
        return [f"lossless: no two inputs give one result ({tried})", *detail, "the order was not checked: give --to"]
    if facts["outcome"] == "misplaced":
        pairs = ", ".join(f"{m['from']} at {m['to']}" for m in facts["misplaced"][:SHOWN_GROUPS])
        return ["misplaced: no code is lost, but codes come back at other places", f"[output, input] {pairs}"]
    if facts["outcome"] == "altered":
        pairs = ", ".join(f"{m['code']} as {m['comes_back_as']}" for m in facts["altered"][:SHOWN_GROUPS])
        return [f"altered: codes come back as other codes, first at {place}" if place else "altered", *detail, pairs]
    lines = [f"lost: {verdict.step} makes different codes equal, first at {place}", *detail]
    if facts["collisions"]:
        count = 1 << verdict.num_bits
        lines.append(f"{count} codes become {len(facts['collisions'])}; {len(facts['lost_codes'])} of them are lost")
    for group in facts["collisions"][: 2 * SHOWN_GROUPS]:
        value = "" if group["value"] is None else f" -> {group['value']}"
        lines.append(f"  {_ranges(group['codes'])}{value}")
    return lines


def _ranges(codes: list[int]) -> str:
    """`-8..-1`, `0`, `1 3 5 …`: runs of neighbours, shortened."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    shown = [str(low) if low == high else f"{low}..{high}" for low, high in runs[:SHOWN_GROUPS]]
    return " ".join(shown) + (" …" if len(runs) > SHOWN_GROUPS else "")
