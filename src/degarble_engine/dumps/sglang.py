"""Dumps of SGLang's dumper: `<dir>/<run>/step=0___rank=0___dump_index=7___name=<name>___layer_id=0.pt`.

    name                                                       what it is
    input_ids, positions, seq_lens                             what the model was given (mode `core`)
    non_intrusive__model.layers.0.mlp.gate_up_proj.output      of a module (mode `all`); `.inputs.0`, `.output.1` of several
    layer_start__hidden_states, with layer_id                  what a layer was given, of a call somebody wrote in

Older versions say `forward_pass_id` for `step`. Source: sglang/srt/debug_utils/dumper.py.
"""

from __future__ import annotations

from pathlib import Path

from degarble_engine.dumps.interface import INPUT, Activation, Dump, files_under, named

SEPARATOR, PREFIX, LAYER_START = "___", "non_intrusive__", "layer_start__hidden_states"
CORE = ("input_ids", "positions", "seq_lens")


def recognises(path: Path) -> bool:
    """Whether file names are of this kind."""
    return any(_tags(file).get("name") for file, _ in zip(files_under(path), range(64), strict=False))


def read(path: Path) -> Dump:
    """All names; no values."""
    found: list[Activation] = []
    ignored: list[str] = []
    for file in sorted(files_under(path), key=_order):
        tags = _tags(file)
        if not tags.get("name"):
            continue
        place = _place(tags)
        if place is None:
            ignored.append(file.name)
            continue
        step, rank = _number(tags.get("step") or tags.get("forward_pass_id")), _number(tags.get("rank"))
        found.append(Activation(module=place[0], role=place[1], which=place[2], step=step, rank=rank, file=file))
    return Dump(kind="sglang", path=path, activations=tuple(found), ignored=tuple(ignored))


def _tags(file: Path) -> dict[str, str]:
    if file.suffix != ".pt":
        return {}
    parts = (part.partition("=") for part in file.name.removesuffix(".pt").split(SEPARATOR))
    return {name: value for name, equals, value in parts if equals}


def _order(file: Path) -> int:
    return _number(_tags(file).get("dump_index"))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _place(tags: dict[str, str]) -> tuple[str, str, str] | None:
    name = tags["name"]
    if name in CORE:
        return "", INPUT, name
    if name == LAYER_START and tags.get("layer_id", "").isdigit():
        return f"model.layers.{int(tags['layer_id'])}", INPUT, "hidden_states"
    return named(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
