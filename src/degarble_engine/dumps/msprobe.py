"""Dumps of msprobe (MindStudio): `dump.json` beside `dump_tensor_data/`, under `step<N>/rank<N>/` or where it stands.

    {"task": "tensor", "level": "L0", "data": {
       "Module.model.layers.0.mlp.down_proj.RowParallelLinear.forward.0": {
          "input_args": [{"dtype": …, "shape": […], "data_name": "Module.….forward.0.input.0.pt"}],
          "input_kwargs": {"name": {…}}, "output": [{…}], "parameters": {…}}}}

Only modules are read (levels L0 and mix): names of single functions say no module. A file is looked for by its
`data_name` beside the JSON, wherever `dump_data_dir` points. Source: msprobe's description of dump.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from degarble.errors import MalformedFile, TargetError
from degarble_engine.dumps.interface import INPUT, OUTPUT, Activation, Dump, files_under

FILE, DATA_FOLDER = "dump.json", "dump_tensor_data"
MAX_JSON = 1 << 27
_ENTRY = re.compile(r"^(?:Module|Cell)\.(?:\d+\.)?(?P<module>.+)\.(?P<type>[A-Za-z_]\w*)\.forward\.(?P<call>\d{1,6})$")
_NUMBERED = re.compile(r"^(step|rank)(\d{1,6})$")


def recognises(path: Path) -> bool:
    """Whether there is a `dump.json`."""
    return any(file.name == FILE for file in files_under(path))


def read(path: Path) -> Dump:
    """All names; no values. Raises TargetError for a dump of statistics, which holds no tensor."""
    found: list[Activation] = []
    ignored: list[str] = []
    for file in files_under(path):
        if file.name != FILE:
            continue
        document = _document(file)
        if document.get("task") == "statistics":
            raise TargetError(f'--dump {file}: expected "task": "tensor", found "statistics", which keeps no tensors')
        numbers = {kind: int(n) for part in file.parts if (m := _NUMBERED.match(part)) for kind, n in [m.groups()]}
        data = document.get("data")
        if not isinstance(data, Mapping):
            raise MalformedFile(file.name, "data", "an object of modules", type(data).__name__)
        for name, entry in data.items():
            one = list(_entry(file, str(name), entry, numbers))
            found += one
            ignored += [] if one else [str(name)]
    return Dump(kind="msprobe", path=path, activations=tuple(found), ignored=tuple(ignored))


def _document(file: Path) -> Mapping[str, Any]:
    if file.stat().st_size > MAX_JSON:
        raise MalformedFile(file.name, "size", f"at most {MAX_JSON:,} bytes", f"{file.stat().st_size:,}")
    try:
        found = msgspec.json.decode(file.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFile(file.name, "JSON", "an object", str(error)[:200]) from None
    if not isinstance(found, Mapping):
        raise MalformedFile(file.name, "JSON", "an object", type(found).__name__)
    return found


def _entry(file: Path, name: str, entry: Any, numbers: Mapping[str, int]) -> Iterator[Activation]:
    """The tensors of a module's first call in a step."""
    place = _ENTRY.match(name)
    if place is None or int(place["call"]) or not isinstance(entry, Mapping):
        return
    kwargs = entry.get("input_kwargs")
    named = [(INPUT, str(n), one) for n, one in enumerate(_list(entry.get("input_args")))]
    named += [(INPUT, str(key), one) for key, one in kwargs.items()] if isinstance(kwargs, Mapping) else []
    named += [(OUTPUT, str(n), one) for n, one in enumerate(_list(entry.get("output")))]
    for role, which, one in named:
        data_name = one.get("data_name") if isinstance(one, Mapping) else None
        if not isinstance(data_name, str):
            continue
        if Path(data_name).name != data_name or data_name in ("", ".", ".."):
            raise MalformedFile(file.name, name[:200], "a plain file name as data_name", data_name[:200])
        yield Activation(
            module=place["module"], role=role, which=which, step=numbers.get("step", 0), rank=numbers.get("rank", 0),
            file=file.parent / DATA_FOLDER / data_name,
        )  # fmt: skip


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
