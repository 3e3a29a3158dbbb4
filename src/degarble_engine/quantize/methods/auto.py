"""`auto`: scale is moved as AWQ does, then rounded as GPTQ does. See awq.py and gptq.py for both papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from degarble_engine.quantize.methods.gptq import Gptq


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto(Gptq):
    """`--method auto`."""

    name: ClassVar[str] = "auto"
    moves_scale: ClassVar[bool] = True
