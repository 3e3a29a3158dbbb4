"""A folder of plain files: `model.layers.0.mlp.output.npy`, or such names as keys of a safetensors file.

`<module>.input[.<n>]` and `<module>.output[.<n>]`; a name without a role is an output. `input_ids` and `positions` are what
the model was given. A part `.forward.0` and a class name before it, as msprobe writes them, are passed over.
"""

from __future__ import annotations

import re
from pathlib import Path

from degarble_engine.dumps.interface import INPUT, OUTPUT, Activation, Dump, files_under, named
from degarble_engine.dumps.tensor_file import ENDINGS, keys_of

MODEL_INPUTS = ("input_ids", "positions", "seq_lens")
_FORWARD = re.compile(r"\.[A-Za-z_]\w*\.forward\.0(?=\.)")


def read(path: Path) -> Dump:
    """All names; no values."""
    found: list[Activation] = []
    ignored: list[str] = []
    for file in files_under(path):
        if file.suffix not in ENDINGS:
            ignored.append(file.name)
            continue
        keys = list(keys_of(file)) if file.suffix == ".safetensors" else [None]
        for key in keys:
            name = file.stem if key is None else key
            module, role, which = _place(name)
            found.append(Activation(module=module, role=role, which=which, file=file, key=key))
    return Dump(kind="folder", path=path, activations=tuple(found), ignored=tuple(ignored))


def _place(name: str) -> tuple[str, str, str]:
    if name in MODEL_INPUTS:
        return "", INPUT, name
    plain = _FORWARD.sub("", name.removeprefix("Module."))
    return named(plain) or (plain, OUTPUT, "0")
