"""Healthy quantised forms by our own packers: a base, a rounding, a layout. Written once, kept in `.work/healthy/forms`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import ml_dtypes
import numpy as np
from scripts.calibration.bases import HEALTHY, base, inputs
from scripts.calibration.layouts import FLOATS, INTEGERS, Declaration, Parts
from scripts.calibration.rounding import Rounding, rounded
from scripts.calibration.untrained import names

from degarble.checkpoint.folder import LocalFolder
from degarble.checkpoint.tensor_data import Array
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.formats.interface import StoredModule

FORMS = HEALTHY / "forms"
JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""What engines make one matrix of."""
BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True, slots=True)
class Form:
    """One checkpoint to be made."""

    base: str
    layout: str
    how: Rounding | None = None
    """None for floating-point layouts."""

    @property
    def name(self) -> str:
        """A folder name that says all of it."""
        if self.how is None:
            return f"{self.base}-{self.layout}"
        how = self.how
        words = [self.base, self.layout, f"{how.bits}b", f"g{how.group}" if how.group else "channel", how.convention]
        words += [word for word, said in (("mse", how.clip), ("gptq", how.compensate)) if said]
        return "-".join([*words, *([f"order_{how.order}"] if how.order else [])])

    @property
    def path(self) -> Path:
        """Where it lies."""
        return FORMS / self.name


def all_forms() -> Iterator[Form]:
    """Every form, the cheapest first."""
    yield from _floats()
    yield from _plain_rounding()
    yield from _folded_and_rotated()
    yield from _compensated()
    yield from _untrained()


def _floats() -> Iterator[Form]:
    for name in ("smooth", "folded", "rotated"):
        yield from (Form(name, layout) for layout in FLOATS)
    yield from (Form("bf16", layout) for layout in ("fp8-block", "fp8-channel", "nvfp4", "mxfp4"))


def _plain_rounding() -> Iterator[Form]:
    """Widths, group sizes, conventions and scale searches."""
    for group in (32, 64, 96, 192, 0):
        for convention in ("asymmetric", "symmetric"):
            how = Rounding(group=group, convention=convention)
            yield Form("smooth", "gptq", how)
            if group in (32, 64, 96):
                yield Form("smooth", "compressed", replace(how, clip=True, scale_dtype=BF16))
    for bits in (2, 3, 8):
        for convention in ("asymmetric", "symmetric"):
            yield Form("smooth", "gptq", Rounding(bits=bits, convention=convention))
            yield Form("smooth", "compressed", Rounding(bits=bits, group=32, convention=convention, clip=bits < 8))
    for convention in ("narrow", "signed"):
        yield Form("smooth", "compressed", Rounding(convention=convention))
        yield Form("smooth", "compressed", Rounding(group=32, convention=convention, clip=True))
    yield Form("smooth", "modelopt", Rounding(convention="narrow"))
    for bits, group in ((2, 64), (3, 64), (4, 32), (4, 64), (8, 64)):
        yield Form("smooth", "mlx", Rounding(bits=bits, group=group))
    yield Form("smooth", "int8", Rounding(bits=8, group=0, convention="narrow"))
    yield Form("smooth", "int8", Rounding(bits=8, group=0))
    yield Form("smooth", "gptq_v2", Rounding())
    yield Form("smooth", "awq", Rounding(clip=True))
    for layout, convention in (("gptq", "asymmetric"), ("compressed", "symmetric"), ("awq", "asymmetric")):
        yield from (Form("bf16", layout, Rounding(group=group, convention=convention)) for group in (32, 64))


def _folded_and_rotated() -> Iterator[Form]:
    for name in ("folded", "rotated"):
        for group in (32, 64):
            yield Form(name, "awq", Rounding(group=group, clip=True))
            yield Form(name, "compressed", Rounding(group=group, convention="symmetric", scale_dtype=BF16))
        yield Form(name, "gptq", Rounding(bits=3, group=96))
    for name in ("layers-4", "layers-6"):
        yield Form(name, "gptq", Rounding())
        yield Form(name, "compressed", Rounding(convention="symmetric", clip=True, scale_dtype=BF16))
        yield Form(name, "fp8-block")
        yield Form(name, "nvfp4")


def _compensated() -> Iterator[Form]:
    """GPTQ with and without activation order."""
    for name in ("smooth", "folded"):
        for convention in ("asymmetric", "symmetric"):
            how = Rounding(convention=convention, compensate=True)
            yield Form(name, "gptq", how)
            yield Form(name, "gptq", replace(how, order="stored"))
            yield Form(name, "compressed", replace(how, order="static", group=32))
    for bits in (2, 3):
        yield Form("smooth", "gptq", Rounding(bits=bits, compensate=True, order="stored"))
    yield Form(
        "smooth", "gptq", Rounding(group=192, convention="symmetric", compensate=True, clip=True, order="stored")
    )


def _untrained() -> Iterator[Form]:
    """Random models: the question is whether anything is said about them."""
    for name in names():
        for layout, how in (
            ("gptq", Rounding(group=32)),
            ("gptq", Rounding(group=32, convention="symmetric")),
            ("compressed", Rounding(group=64, convention="signed", clip=True)),
        ):
            yield Form(name, layout, how)
        yield from (Form(name, layout) for layout in ("nvfp4", "mxfp4", "fp8-block"))


def write_form(form: Form) -> Path:
    """Quantise every linear of the base; kept if it is there already."""
    if form.path.exists():
        return form.path
    source = LocalFolder(base(form.base))
    work = Workspace(source)
    linears = [m for m in Evidence(source, Settings()).get("modules").linears() if m.kind == "linear" and m.payload]
    weights = {module.name: module.dequantize() for module in linears}
    for module in linears:
        shard = module.any_part.file
        work.drop(module.any_part.name)
        for suffix, array in _parts(form, module, weights).items():
            work.add(shard, f"{module.name}.{suffix}", array)
    config = work.json("config.json")
    config["quantization_config"] = _declaration(form)
    if form.layout == "mlx":
        config["quantization"] = config["quantization_config"]
    work.save(form.path)
    return form.path


def _declaration(form: Form) -> Declaration:
    return FLOATS[form.layout][1] if form.how is None else INTEGERS[form.layout][1](form.how)


def _parts(form: Form, module: StoredModule, weights: dict[str, Array]) -> Parts:
    if form.how is None:
        return FLOATS[form.layout][0](weights[module.name], _largest(module.name, weights))
    needed = inputs(form.base)[module.name] if form.how.compensate else None
    return INTEGERS[form.layout][0](rounded(weights[module.name], form.how, needed), form.how)


def _largest(name: str, weights: dict[str, Array]) -> float:
    """Of the modules that an engine joins with this one."""
    parent, _, leaf = name.rpartition(".")
    group = next((group for group in JOINED if leaf in group), (leaf,))
    return max(float(np.abs(weights[f"{parent}.{one}"]).max()) for one in group)
