"""What is measured: an endpoint, a load, and the bounds that make an answer good."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from degarble.errors import UsageError

BOUNDS = ("ttft", "tpot", "itl", "e2e_latency")


class LoadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Raises UsageError for what cannot be."""

    url: str
    model: str | None = None
    """None: the first one served."""
    api: str = "chat"
    """chat or completions."""
    num_requests: int = 64
    rate: float = math.inf
    """Requests a second in the mean, arrivals by a Poisson process; inf: all at once."""
    max_concurrency: int = 1024
    input_words: int = 128
    output_tokens: int = 128
    spread: float = 0.0
    """Lengths are drawn evenly from (1 - spread) to (1 + spread) of these."""
    shared_words: int = 0
    """Of the input, the same in all requests."""
    temperature: float = 0.0
    ignore_eos: bool = False
    """A field of vLLM's that others refuse."""
    timeout_seconds: float = 600.0
    """From sending to the end of an answer."""
    goodput: Mapping[str, float] = {}
    """Measure -> most seconds."""
    seed: int = 0
    num_warm_up: int = 1

    def __post_init__(self) -> None:
        bounds = {
            "num_requests": (1, 1_000_000), "rate": (1e-6, math.inf), "max_concurrency": (1, 100_000),
            "input_words": (1, 1_000_000), "output_tokens": (1, 1_000_000), "spread": (0.0, 1.0),
            "shared_words": (0, self.input_words), "timeout_seconds": (1e-3, 1e6), "num_warm_up": (0, 1000),
        }  # fmt: skip
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise UsageError(f"{name} must be from {low:g} to {high:g}, found {value}")
        if self.api not in ("chat", "completions"):
            raise UsageError(f"api must be chat or completions, found {self.api!r}")


def read_goodput(given: str) -> tuple[str, float]:
    """`ttft=500` means at most 500 ms. Raises UsageError."""
    name, _, value = given.replace(":", "=").partition("=")
    name = "e2e_latency" if name in ("e2e", "e2el") else name
    try:
        seconds = float(value) / 1000
    except ValueError:
        seconds = -1.0
    if name not in BOUNDS or not 0 < seconds < math.inf:
        raise UsageError(f"{given!r}: a bound is {', '.join(BOUNDS)}, then = and milliseconds")
    return name, seconds
