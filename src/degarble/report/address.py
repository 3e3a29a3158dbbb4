"""Where the file of a finding lies, seen from where the tool was started: for annotations and for SARIF."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import quote

from degarble.report.interface import Target

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_FILES = (".gguf", ".safetensors")


def path_of(target: Target, file: str | None) -> str:
    """Path of a file of the target, with forward slashes; of the target itself where no file is known."""
    path = target.path.replace("\\", "/") if _DRIVE.match(target.path) else target.path
    if file is None:
        return posixpath.normpath(path) if path else path
    folder = posixpath.dirname(path) if path.endswith(_FILES) else path
    return posixpath.normpath(posixpath.join(folder, file))


def is_local(target: Target) -> bool:
    """Whether the target is on this machine, not in a hub."""
    return bool(target.path) and not target.path.startswith("hf:")


def uri_of(target: Target, file: str | None) -> str:
    """The same as a URI: relative for a relative target, `file:` for an absolute one, `hf:` for a repository."""
    if not is_local(target):
        return quote(target.path + (f"/{file}" if file else ""), safe="/:@")
    path = path_of(target, file)
    if _DRIVE.match(path):
        return "file:///" + quote(path, safe="/:")
    return ("file://" if path.startswith("/") else "") + quote(path)
