"""fp16's end, and the names by which it is asked for."""

from __future__ import annotations

LARGEST_HALF = 65504.0
HALF = frozenset({"float16", "half", "fp16", "f16"})
