"""What the user typed and what the environment says about the hub: repository, revision, endpoint, token, cache."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from degarble.errors import HubError, UsageError

DEFAULT_ENDPOINT = "https://huggingface.co"
NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
SPEC = re.compile(rf"hf:(?P<repo>(?:{NAME}/)?{NAME})(?:@(?P<revision>[A-Za-z0-9._/-]{{1,200}}))?\Z")
COMMIT = re.compile(r"[0-9a-f]{40}\Z")
MAX_TOKEN_BYTES = 1024
TRUE = frozenset({"1", "ON", "YES", "TRUE"})
"""Values that huggingface_hub takes for true (`constants.py`)."""


class HubAddress(msgspec.Struct, frozen=True, kw_only=True):
    """One repository at one revision, and how to reach it."""

    repo: str
    revision: str
    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = None
    offline: bool = False
    cache: Path = Path()

    @property
    def text(self) -> str:
        """As the user would type it."""
        return f"hf:{self.repo}" + ("" if self.revision == "main" else f"@{self.revision}")

    @property
    def host(self) -> str:
        """The only host that gets the token."""
        return urlsplit(self.endpoint).netloc

    def api_url(self) -> str:
        """The list of files with sizes and digests."""
        return f"{self.endpoint}/api/models/{self.repo}/revision/{quote(self.revision, safe='')}?blobs=true"

    def file_url(self, name: str, commit: str) -> str:
        """One file at one commit."""
        return f"{self.endpoint}/{self.repo}/resolve/{quote(commit, safe='')}/{quote(name)}"

    def snapshot(self) -> Path:
        """The folder in the local cache. Raises HubError if it is not there."""
        folder = self.cache / ("models--" + self.repo.replace("/", "--"))
        commit = self.revision
        if not COMMIT.match(commit):
            try:
                commit = (folder / "refs" / self.revision).read_text(encoding="ascii")[:100].strip()
            except (OSError, ValueError):
                commit = ""
        snapshot = folder / "snapshots" / commit
        if not COMMIT.match(commit) or not snapshot.is_dir():
            raise HubError(
                f"{self.text}: HF_HUB_OFFLINE is set, and {folder} holds no snapshot of {self.revision}: "
                f"download it first (hf download {self.repo}) or unset HF_HUB_OFFLINE"
            )
        return snapshot


def read_address(spec: str, environment: Mapping[str, str] | None = None) -> HubAddress:
    """Parse `hf:org/name[@revision]`. Raises UsageError for anything that is no such name."""
    env = os.environ if environment is None else environment
    match = SPEC.match(spec)
    revision = (match["revision"] if match else None) or "main"
    if match is None or ".." in spec or "--" in match["repo"] or revision.startswith("/"):
        raise UsageError(f"{spec[:200]!r}: a hub repository is written hf:org/name or hf:org/name@revision")
    endpoint = (env.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc:
        raise UsageError(f"HF_ENDPOINT is {endpoint!r}: an http or https address is needed")
    home = Path(env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface")
    return HubAddress(
        repo=match["repo"],
        revision=revision,
        endpoint=endpoint,
        token=_token(env, home),
        offline=any(env.get(name, "").upper() in TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")),
        cache=Path(env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or home / "hub"),
    )


def _token(env: Mapping[str, str], home: Path) -> str | None:
    """HF_TOKEN, else the file that `hf auth login` writes."""
    text = env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN")
    if not text:
        try:
            with open(env.get("HF_TOKEN_PATH") or home / "token", encoding="ascii") as stream:
                text = stream.read(MAX_TOKEN_BYTES)
        except (OSError, ValueError):
            return None
    token = text.strip()
    return token if token and token.isascii() and token.isprintable() and " " not in token else None
