"""A small Llama in compressed-tensors' packed INT4, in a folder of its own."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from tests.degarble_engine.numerics.test_walk import quantised
from tests.degarble_engine.tiny_models import folder


@cache
def packed_folder() -> Path:
    """Groups of 32, symmetric; made once."""
    made = Path(tempfile.mkdtemp(prefix="degarble-packed.")) / "int4"
    quantised(folder("llama"), made, "int4")
    return made


def packed_evidence() -> Evidence:
    """Of that folder."""
    return Evidence(open_target(packed_folder()), Settings())
