"""A recipe as a YAML file: the options of `degarble quantize` under their names, with rules for single modules.

    scheme: W4A16_ASYM
    group_size: 64
    method: gptq
    target_bits: 4.5
    rules: [...]                         see rule.py

Read by PyYAML's safe loader, which makes plain values only; aliases are refused, since a few lines of them can stand for
gigabytes.
"""

from __future__ import annotations

import importlib
from typing import Any

import msgspec

from degarble.errors import UsageError
from degarble_engine.numerics.tokens import read_text_file
from degarble_engine.quantize.recipe import Recipe

MAX_BYTES = 1 << 20
MAX_DEPTH = 20


def read_recipe(path: str) -> dict[str, Any]:
    """Options that the file gives, checked. Raises UsageError with the place, what was expected there and what was found."""
    text = read_text_file("--recipe", path, MAX_BYTES)
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError:
        raise UsageError("--recipe: needs PyYAML: pip install 'degarble[recipes]'") from None
    try:
        _refuse_depth(yaml, text, path)
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"--recipe {path}: {_place(error)}expected YAML, found {_problem(error)}") from None
    if not isinstance(found, dict) or not found:
        raise UsageError(f"--recipe {path}: expected options by name, found {type(found).__name__}")
    unknown = sorted(str(name) for name in found if name not in Recipe.__struct_fields__)
    if unknown:
        known = ", ".join(Recipe.__struct_fields__)
        raise UsageError(f"--recipe {path}: {unknown[0][:60]!r}: expected one of {known}")
    try:
        checked = msgspec.convert(found, Recipe)
    except msgspec.ValidationError as error:
        raise UsageError(f"--recipe {path}: {error}") from None
    return {name: getattr(checked, name) for name in found}


def _refuse_depth(yaml: Any, text: str, path: str) -> None:
    """Walks the events, which cost no more than the text is long."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise UsageError(f"--recipe {path}: line {line}: aliases are not read: write the values out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise UsageError(f"--recipe {path}: line {line}: more than {MAX_DEPTH} levels deep")


def _place(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}: " if mark is not None else ""


def _problem(error: Any) -> str:
    return str(getattr(error, "problem", None) or error)[:120]
