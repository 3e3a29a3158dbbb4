"""Strict reading of the data files in `data/engines`: a typing slip must fail loudly, not switch a rule off."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import msgspec

from degarble.errors import MalformedFile

Table = TypeVar("Table")

_TYPE_ERROR = re.compile(r"Expected (?P<expected>.+), got (?P<found>.+?)(?: - at `(?P<place>.+)`)?")
_OTHER_ERROR = re.compile(r"(?P<found>.+?)(?: - at `(?P<place>.+)`)?")


class BadTable(MalformedFile, ValueError):
    """A data file breaks its schema; a ValueError too, because the file may be one that a caller wrote."""


def read_table(schema: type[Table], name: str, path: Path | None = None) -> Table:
    """Decode `path`, or the shipped `data/engines/<name>`, into `schema`.

    Raises BadTable with file, key, expected and found; OSError if `path` cannot be opened.
    """
    file = str(path) if path else name
    raw = path.read_bytes() if path else files("degarble").joinpath("data", "engines", name).read_bytes()
    try:
        return msgspec.convert(tomllib.loads(raw.decode("utf-8")), schema)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadTable(file, "file", "TOML in UTF-8", str(error)) from None
    except msgspec.ValidationError as error:
        raise _located(file, str(error)) from None


def _located(file: str, message: str) -> BadTable:
    """Turn the decoder's sentence into place, expected and found."""
    if found := _TYPE_ERROR.fullmatch(message):
        return BadTable(file, found["place"] or "file", found["expected"], found["found"])
    other = _OTHER_ERROR.fullmatch(message)
    return BadTable(
        file, (other and other["place"]) or "file", "what the schema asks for", other["found"] if other else message
    )
