"""Leaves the result of a check beside the weights: `degarble-report.json`, and tags in the model card.

Weights are never opened for writing. The saved report names its target `.`, so that it says the same wherever the folder
is moved to, and a second stamp changes no byte.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec

from degarble.checkpoint.digest_manifest import MAX_MANIFEST_BYTES, is_manifest, read_manifest
from degarble.errors import TargetError, UsageError
from degarble.model_card import NAME, with_tags
from degarble.report.interface import Report
from degarble.report.json import render

REPORT = "degarble-report.json"
OWN_TAGS = re.compile(r"degarble(-[a-z]+)?")
MAX_CARD_BYTES = 16 << 20


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written: files and their texts, the card only where it changes."""

    folder: Path
    files: dict[str, str]


def plan(target: str, report: Report, *, card: bool = True) -> Stamp:
    """Texts of the files that a stamp writes. Raises UsageError or TargetError where it may not."""
    if target.startswith("hf:"):
        raise UsageError(f"{target}: a hub repository cannot be written to; stamp the folder before it is uploaded")
    if report.failure is not None:
        raise TargetError(f"nothing was written: {report.failure}")
    path = Path(target)
    folder = path if path.is_dir() else path.parent
    text = render(replace(report, target=replace(report.target, path="."), profile=None))
    wanted = {REPORT: text} | ({NAME: _card(folder, report)} if card else {})
    return Stamp(folder=folder, files={name: text for name, text in wanted.items() if _read(folder / name) != text})


def tags_of(report: Report) -> tuple[str, str]:
    """That it was checked, and with which status."""
    return "degarble", f"degarble-{report.status.value}"


def _card(folder: Path, report: Report) -> str:
    for name in sorted(entry.name for entry in folder.iterdir() if is_manifest(entry.name)):
        with (folder / name).open("rb") as stream:
            listed = read_manifest(stream.read(MAX_MANIFEST_BYTES), name)
        if NAME in listed:
            raise UsageError(f"{NAME} may not change: {name} lists its digest; stamp with --no-card")
    return with_tags(_read(folder / NAME) or "", tags_of(report), OWN_TAGS)


def _read(path: Path) -> str | None:
    """Text of a file with its line ends as they are; None if there is none."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_CARD_BYTES + 1)
        if len(data) > MAX_CARD_BYTES:
            raise UsageError(f"{path.name}: larger than {MAX_CARD_BYTES:,} bytes")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path.name}: not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise UsageError(f"{path.name}: {error.strerror}") from None
