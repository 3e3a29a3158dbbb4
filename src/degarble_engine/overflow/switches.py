"""An engine's profile with the served dtype filled in; engines that compute alike share one lane of the walk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from degarble.engines.arithmetic import EngineArithmetic, engine_arithmetics

NAMES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LARGEST = {torch.float16: 65504.0, torch.bfloat16: 3.3895313892515355e38, torch.float32: 3.4028234663852886e38}


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """Dtypes at every place where a number can leave the range; the default rounds nowhere."""

    model: torch.dtype = torch.float32
    residual: torch.dtype = torch.float32
    residual_add: torch.dtype = torch.float32
    norm_weight_mul: torch.dtype = torch.float32
    gemm_acc: torch.dtype = torch.float32
    pv_acc: torch.dtype = torch.float32
    kv: torch.dtype = torch.float32
    router: torch.dtype = torch.float32
    clamp: bool = False
    activation: torch.dtype = torch.float32
    qk: torch.dtype = torch.float32
    norm_acc: torch.dtype = torch.float32
    pv_offset: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether nothing is rounded at all."""
        return self == EXACT


EXACT = Switches()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One way to compute, and the engines that do."""

    dtype: str
    engines: tuple[str, ...]
    switches: Switches


def resolve(profile: EngineArithmetic, dtype: str) -> Switches:
    """The profile's switches for a model served in `dtype`."""
    served = NAMES[dtype]
    values = {name: cell.value for name, cell in profile.cells()}

    def dtype_of(name: str) -> torch.dtype:
        value = values[name]
        return served if value == "model" else NAMES[str(value)]

    return Switches(
        model=served,
        residual=dtype_of("residual_dtype"),
        residual_add=dtype_of("residual_add_dtype"),
        norm_weight_mul=dtype_of("norm_weight_mul_dtype"),
        gemm_acc=dtype_of("gemm_acc_dtype"),
        pv_acc=dtype_of("pv_acc_dtype"),
        kv=dtype_of("kv_dtype"),
        router=dtype_of("router_dtype"),
        clamp=bool(values["clamp"]) and served is torch.float16,
        activation=dtype_of("activation_dtype"),
        qk=dtype_of("qk_dtype"),
        norm_acc=dtype_of("norm_acc_dtype") if served is torch.float16 else torch.float32,
        pv_offset=float(values["pv_offset"]),
    )


def lanes_of(dtypes: Iterable[str], engines: Iterable[str] | None = None) -> list[Lane]:
    """Every distinct arithmetic of the named engines (all of them if None), in the order of dtypes."""
    profiles = engine_arithmetics()
    chosen = list(profiles) if engines is None else list(engines)
    found: dict[tuple[str, Switches], Lane] = {}
    for dtype in dtypes:
        for name in chosen:
            key = dtype, resolve(profiles[name], dtype)
            known = found.get(key)
            found[key] = (
                Lane(dtype=dtype, engines=(name,), switches=key[1])
                if known is None
                else replace(known, engines=(*known.engines, name))
            )
    return list(found.values())


def rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """To the nearest number of `dtype`, infinite beyond its range; in fp32."""
    return values if dtype is torch.float32 else values.to(dtype).float()
