"""Lists of sha256 digests that travel with files: `SHA256SUMS` and its relatives."""

from __future__ import annotations

import re

from degarble.checkpoint.index import is_plain_name

MAX_MANIFEST_BYTES = 4 << 20
"""A list of 20,000 files is about 2 MB."""

NAMES = re.compile(
    r"(sha256sums?|checksums?|checksum[._-]sha256|sha256|manifest\.sha256)(\.txt|\.sha256|\.sum)?\Z", re.IGNORECASE
)
GNU = re.compile(r"\\?([0-9a-fA-F]{64})[ \t]+\*?(?:\./)?(\S.*)\Z")
"""`<hex>  name` as sha256sum writes it; `*` marks binary mode."""
BSD = re.compile(r"SHA2?-?256 ?\((?:\./)?(.+)\) ?= ?([0-9a-fA-F]{64})\Z")
ALONE = re.compile(r"([0-9a-fA-F]{64})\Z")


def is_manifest(name: str) -> bool:
    """Whether a file of the folder is a list of digests, by its name."""
    return "/" not in name and (NAMES.match(name) is not None or name.endswith(".sha256"))


def read_manifest(raw: bytes, name: str) -> dict[str, str]:
    """File -> sha256 (lower case). Lines that are neither form are passed over, names that lead elsewhere too.

    `model.safetensors.sha256` may hold the bare digest of `model.safetensors`.
    """
    found: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").splitlines():
        text = line.strip()
        if match := GNU.match(text):
            digest, file = match[1], match[2]
        elif match := BSD.match(text):
            file, digest = match[1], match[2]
        elif (match := ALONE.match(text)) and name.endswith(".sha256"):
            file, digest = name.removesuffix(".sha256"), match[1]
        else:
            continue
        if is_plain_name(file):
            found[file] = digest.lower()
    return found
