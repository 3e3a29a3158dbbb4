"""A hub repository as a Source: file list by one request, headers and small files by range requests.

    GET /api/models/{repo}/revision/{rev}?blobs=true     names, sizes, sha256 of large files, the commit
    GET /{repo}/resolve/{commit}/{file}                  with Range: bytes=a-b; redirects to where the bytes are

Nothing is written to disk. The first bytes of weight files are kept in memory, so that a header costs one request, or
two if it is longer than the first; those of all shards are fetched at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import msgspec

from degarble.checkpoint.folder import LocalFolder, is_sha256
from degarble.checkpoint.hub_address import COMMIT, HubAddress, read_address
from degarble.checkpoint.hub_client import HubClient
from degarble.checkpoint.index import is_plain_name
from degarble.checkpoint.interface import MAX_SMALL_FILE_BYTES, Source
from degarble.errors import HubError, TargetError

FIRST_BYTES = 256 * 1024
MAX_KEPT_BYTES = 128 * 1024 * 1024
"""Headers end long before this; what lies behind is read and not kept."""
MAX_FILES = 20_000
MAX_LIST_BYTES = 64 * 1024 * 1024
THREADS = 8
SHARD = re.compile(r"[^/]*-\d{5,6}-of-\d{5,6}\.safetensors\Z")


def open_hub(spec: str, environment: Mapping[str, str] | None = None) -> Source:
    """Open `hf:org/name[@revision]`; offline, the snapshot in the local cache. Raises UsageError or HubError."""
    address = read_address(spec, environment)
    if address.offline:
        return LocalFolder(address.snapshot())
    source = HubSource(address, HubClient(address))
    source.files()
    return source


class HubSource(Source):
    """One revision of one repository."""

    kind = "hub"

    def __init__(self, address: HubAddress, client: HubClient) -> None:
        self._address = address
        self._client = client
        self._heads: dict[str, bytes | TargetError] = {}
        self._small: dict[str, bytes] = {}

    @property
    def path(self) -> str:
        """What the user typed."""
        return self._address.text

    def files(self) -> Mapping[str, int]:
        """Sizes as the hub lists them."""
        return self._listing[0]

    def digests(self) -> Mapping[str, str]:
        """The sha256 of files in large-file storage."""
        return self._listing[1]

    def refused(self) -> Mapping[str, str]:
        """Names that would lead out of a folder, and files without a size."""
        return self._listing[2]

    @cached_property
    def _listing(self) -> tuple[dict[str, int], dict[str, str], dict[str, str], str]:
        url = self._address.api_url()
        raw = self._client.get(url, "the list of files", 0, MAX_LIST_BYTES, exact=False)
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise HubError(f"{self.path}: the hub's list of files is no JSON: {error}") from None
        siblings = value.get("siblings") if isinstance(value, dict) else None
        if not isinstance(siblings, list):
            raise HubError(f"{self.path}: the hub's answer holds no list of files")
        sizes: dict[str, int] = {}
        digests: dict[str, str] = {}
        refused: dict[str, str] = {}
        for entry in siblings[:MAX_FILES]:
            _add_entry(entry, sizes, digests, refused)
        if len(siblings) > MAX_FILES:
            refused["."] = f"more than {MAX_FILES} files: the rest was not listed"
        commit = value.get("sha")
        known = isinstance(commit, str) and COMMIT.match(commit)
        return sizes, digests, refused, str(commit) if known else self._address.revision

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See Source."""
        if name not in self.files():
            raise TargetError(f"{name}: not a file of {self.path}")
        size = self.files()[name]
        end = size if length is None else min(start + length, size)
        if start >= end:
            return b""
        if not name.endswith((".safetensors", ".gguf")):
            if end - start > MAX_SMALL_FILE_BYTES:
                raise HubError(f"{self.path}: {name}: {end - start} bytes are more than a small file has")
            is_kept = size <= MAX_KEPT_BYTES
            return self._small_file(name)[start:end] if is_kept else self._fetch(name, start, end)
        head = self._head(name)
        if len(head) < end <= MAX_KEPT_BYTES and start <= len(head):
            head += self._fetch(name, len(head), end)
            self._heads[name] = head
        return head[start:end] if end <= len(head) else self._fetch(name, start, end)

    def _small_file(self, name: str) -> bytes:
        """The whole file, asked for once: several readers want the same configs."""
        if name not in self._small:
            self._small[name] = self._fetch(name, 0, self.files()[name])
        return self._small[name]

    def _head(self, name: str) -> bytes:
        """The first bytes of a weight file; the first question about a shard fetches those of all its siblings."""
        if name not in self._heads:
            shards = [other for other in self.files() if SHARD.match(other)] if SHARD.match(name) else [name]
            wanted = [other for other in shards if other not in self._heads]
            with ThreadPoolExecutor(max_workers=min(THREADS, len(wanted))) as pool:
                self._heads.update(zip(wanted, pool.map(self._first_bytes, wanted), strict=True))
        head = self._heads[name]
        if isinstance(head, TargetError):
            raise head
        return head

    def _first_bytes(self, name: str) -> bytes | TargetError:
        try:
            return self._fetch(name, 0, min(FIRST_BYTES, self.files()[name]))
        except TargetError as error:
            return error

    def _fetch(self, name: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        return self._client.get(self._address.file_url(name, self._listing[3]), name, start, end)


def _add_entry(entry: Any, sizes: dict[str, int], digests: dict[str, str], refused: dict[str, str]) -> None:
    name = entry.get("rfilename") if isinstance(entry, dict) else None
    if not isinstance(name, str):
        return
    size = entry.get("size")
    lfs = entry.get("lfs")
    if isinstance(lfs, dict):
        size = lfs.get("size", size)
        digest = lfs.get("sha256")
        if isinstance(digest, str) and is_sha256(digest):
            digests[name] = digest
    if not is_plain_name(name):
        refused[name[:200]] = "a name that leads out of the repository"
    elif isinstance(size, bool) or not isinstance(size, int) or size < 0:
        refused[name] = "the hub gives no size for it"
    else:
        sizes[name] = size
