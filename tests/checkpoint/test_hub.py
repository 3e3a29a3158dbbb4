"""The hub source against a server that behaves, and one that does not. No network."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from degarble.api import check_source
from degarble.checkpoint import hub
from degarble.checkpoint.hub import FIRST_BYTES, HubSource, open_hub
from degarble.checkpoint.hub_address import read_address
from degarble.checkpoint.hub_client import HubClient
from degarble.checkpoint.safetensors import read_header
from degarble.checkpoint.workspace import Workspace
from degarble.errors import HubError, TargetError, UsageError
from degarble.evidence import Settings
from degarble.registry import Level
from degarble.target import open_target
from tests.checkpoint.fake_hub import COMMIT, Mood, fake_hub


def files_of(folder: Path) -> dict[str, bytes]:
    """A checkpoint as a server holds it."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@contextmanager
def opened(mood: Mood, **environment: str) -> Iterator[HubSource]:
    """A source on a fake hub that waits no longer than a test may."""
    with fake_hub(mood) as endpoint:
        address = read_address("hf:org/name", {"HF_ENDPOINT": endpoint, "HF_HOME": "/nonexistent", **environment})
        yield HubSource(address, HubClient(address, attempts=3, backoff_s=0.01, max_wait_s=0.05, timeout_s=0.5))


def test_a_hub_repository_is_checked_like_its_folder(golden: Path, tmp_path: Path) -> None:
    """Same findings as on disk, one request for the list, one for each shard and each small file that a rule reads."""
    folder = golden / "own-sharded-bf16"
    mood = Mood(files_of(folder))
    settings = Settings(level=Level.HEADER)
    with opened(mood) as source:
        report = check_source(source, settings)
    local = check_source(open_target(folder), settings)
    assert report.target.kind == "hub"
    assert [(f.rule, f.location) for f in report.findings] == [(f.rule, f.location) for f in local.findings]
    assert report.summary["ran"] == local.summary["ran"]
    paths = [path for path, _ in mood.seen]
    assert len(paths) == len(set(paths)), "nothing is asked for twice"
    assert sum(path.startswith("/api/models/org/name/revision/main") for path in paths) == 1
    assert all(f"/org/name/resolve/{COMMIT}/" in path for path in paths[1:])
    shards = [headers for path, headers in mood.seen if path.endswith(".safetensors")]
    assert [headers["Range"] for headers in shards] == [f"bytes=0-{FIRST_BYTES - 1}"] * 2


def test_a_fault_is_found_at_the_hub(golden: Path) -> None:
    """A truncated shard is seen from its header and the listed size."""
    files = files_of(golden / "own-sharded-bf16")
    files["model-00001-of-00002.safetensors"] = files["model-00001-of-00002.safetensors"][:-100_000]
    with opened(Mood(files)) as source:
        report = check_source(source, Settings(level=Level.HEADER))
    assert report.causes[0].finding.rule == "CKP101"
    assert report.causes[0].finding.measured["missing_bytes"] == 100_000


def test_a_long_header_takes_a_second_request(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request brings the rest and nothing twice."""
    monkeypatch.setattr(hub, "FIRST_BYTES", 512)
    mood = Mood(files_of(golden / "base-bf16"))
    with opened(mood) as source:
        header = read_header(source, "model.safetensors")
    ranges = [headers["Range"] for path, headers in mood.seen if path.endswith(".safetensors")]
    assert ranges == ["bytes=0-511", f"bytes=512-{header.data_start - 1}"]
    assert header.tensors.keys() == read_header(open_target(golden / "base-bf16"), "model.safetensors").tensors.keys()


def test_ranges_are_the_file(golden: Path) -> None:
    """Any range equals the slice, before, across and behind the kept bytes, and at the end."""
    mood = Mood(files_of(golden / "base-bf16"))
    data = mood.files["model.safetensors"]
    with opened(mood) as source:
        for start, length in (
            (0, 8),
            (8, 300_000),
            (FIRST_BYTES - 3, 6),
            (2_000_000, 100),
            (len(data) - 5, 99),
            (len(data), 1),
        ):
            assert source.read("model.safetensors", start, length) == data[start : start + length]
        assert source.read("config.json") == mood.files["config.json"]
        assert source.digests()["model.safetensors"] == hashlib.sha256(data).hexdigest()
        with pytest.raises(TargetError, match="not a file"):
            source.read("../config.json")


def test_a_server_without_ranges_is_not_read_to_the_end() -> None:
    """A 200 to a range request stops after the bytes that were asked for."""
    mood = Mood({"model.safetensors": bytes(range(256)) * 65_536}, ignore_range=True)
    with opened(mood) as source:
        assert source.read("model.safetensors", 0, 8) == bytes(range(8))
        assert mood.sent < 12_000_000, "16 MB would be the whole file; buffers of the kernel hold some"
        assert source.read("model.safetensors", 300_000, 4) == bytes((300_000 + i) % 256 for i in range(4))


def test_another_range_than_asked_is_refused() -> None:
    """Bytes from another place must not be taken for a header."""
    mood = Mood({"model.safetensors": bytes(100)}, wrong_range=True)
    with opened(mood) as source, pytest.raises(HubError, match="another range"):
        source.read("model.safetensors", 0, 8)


def test_the_token_stays_with_the_hub() -> None:
    """A redirect to another host carries the range and not the token."""
    cdn = Mood({"model.safetensors": b"x" * 64})
    with fake_hub(cdn) as other:
        mood = Mood(dict(cdn.files), redirect_large=other)
        with opened(mood, HF_TOKEN="hf_secret") as source:
            assert source.read("model.safetensors", 0, 8) == b"x" * 8
    assert all(headers["Authorization"] == "Bearer hf_secret" for _, headers in mood.seen)
    assert cdn.seen and all("Authorization" not in headers and "Range" in headers for _, headers in cdn.seen)


def test_redirects_end() -> None:
    """A loop is an error, not a hang; so is a redirect to another scheme."""
    with opened(Mood({}, redirect_loop=True)) as source, pytest.raises(HubError, match="redirects"):
        source.files()
    mood = Mood({"a.json": b"{}"}, fail_first=[(302, {"Location": "file:///etc/passwd"})])
    with opened(mood) as source, pytest.raises(HubError, match="not followed"):
        source.files()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_passing_failures_are_tried_again(status: int) -> None:
    """Two failures, with and without Retry-After, then it works; more than the attempts is an error that says so."""
    with opened(Mood({"config.json": b"{}"}, fail_first=[(status, {"Retry-After": "0"}), (status, {})])) as source:
        assert source.files() == {"config.json": 2}
    mood = Mood({"config.json": b"{}"}, fail_first=[(status, {})] * 9)
    with opened(mood) as source, pytest.raises(HubError, match=str(status)):
        source.files()


@pytest.mark.parametrize(
    ("status", "code", "token", "says"),
    [
        (401, "GatedRepo", "", "gated: accept its terms"),
        (403, "GatedRepo", "hf_x", "gated: accept its terms"),
        (401, "RepoNotFound", "", "does not exist, or it is private or gated"),
        (401, "", "hf_x", "token in use gives no access"),
        (404, "RevisionNotFound", "", "no revision 'main'"),
        (404, "", "", "no such repository"),
        (418, "", "", "answers 418"),
    ],
)
def test_refusals_say_what_to_do(status: int, code: str, token: str, says: str) -> None:
    """Each refusal in words, after one request."""
    mood = Mood({}, status=(status, code))
    with opened(mood, HF_TOKEN=token) as source, pytest.raises(HubError, match=says) as caught:
        source.files()
    assert "hf_x" not in str(caught.value)
    assert len(mood.seen) == 1


def test_a_body_cut_short_is_an_error() -> None:
    """Half a header is never taken for a header."""
    with (
        opened(Mood({"config.json": b'{"a": 1}'}, truncate=True)) as source,
        pytest.raises(HubError, match=r"ended|connection"),
    ):
        source.read("config.json")


def test_a_silent_server_is_left() -> None:
    """Time limits hold."""
    with opened(Mood({"config.json": b"{}"}, stall_s=2.0)) as source, pytest.raises(HubError, match="in time"):
        source.files()


def test_a_dripping_server_is_left() -> None:
    """A body that comes too slowly ends at the deadline, although every single read is quick."""
    mood = Mood({"model.gguf": bytes(4_000_000)})
    with fake_hub(mood) as endpoint:
        address = read_address("hf:org/name", {"HF_ENDPOINT": endpoint, "HF_HOME": "/nonexistent"})
        source = HubSource(address, HubClient(address, attempts=1, deadline_s=0.0))
        with pytest.raises(HubError, match="slower"):
            source.read("model.gguf", 0, 4_000_000)


def test_no_server_at_all() -> None:
    """The message names the way out."""
    address = read_address("hf:org/name", {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": "/nonexistent"})
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        HubSource(address, HubClient(address, attempts=2, backoff_s=0.01)).files()


@pytest.mark.parametrize("listing", [b"", b"[]", b'{"siblings": 3}', b"\xff", b"[" * 100_000, b'{"siblings": {}}'])
def test_a_list_that_is_none(listing: bytes) -> None:
    """HubError, whatever the server says."""
    with opened(Mood({}, listing=listing)) as source, pytest.raises(HubError):
        source.files()


def test_hostile_names_and_sizes_in_the_list() -> None:
    """Names that lead out, and files without a size, are listed as refused."""
    siblings = [
        {"rfilename": "../x", "size": 1},
        {"rfilename": "/etc/passwd", "size": 1},
        {"rfilename": "config.json", "size": 2, "lfs": {"sha256": "no", "size": 2}},
        {"rfilename": "a.bin", "size": -1},
        {"rfilename": "b.bin", "size": True},
        {"rfilename": "c.bin"},
        {"rfilename": 7},
        None,
    ]
    with opened(Mood({}, listing=json.dumps({"siblings": siblings, "sha": 3}).encode())) as source:
        assert source.files() == {"config.json": 2}
        assert set(source.refused()) == {"../x", "/etc/passwd", "a.bin", "b.bin", "c.bin"}
        assert source.digests() == {}


def test_one_bad_shard_does_not_hide_the_others(golden: Path) -> None:
    """A shard that the server cannot send becomes a finding of that shard."""
    files = files_of(golden / "own-sharded-bf16")
    mood = Mood(files)
    with opened(mood) as source:
        source.files()
        del mood.files["model-00002-of-00002.safetensors"]
        report = check_source(source, Settings(level=Level.HEADER))
    first = report.causes[0].finding
    assert (first.rule, first.location.file) == ("CKP105", "model-00002-of-00002.safetensors")
    assert report.summary["crashed"] == 0


@pytest.mark.parametrize(
    "spec",
    [
        "hf:",
        "hf:/x",
        "hf:a/b/c",
        "hf:../x",
        "hf:a/..",
        "hf:a b/c",
        "hf:a/b@",
        "hf:a/b@../x",
        "hf:a/b@x y",
        "hf:a--b/c",
        "hf:a/b@/x",
    ],
)
def test_names_that_are_none(spec: str) -> None:
    """UsageError with the right spelling."""
    with pytest.raises(UsageError, match="hf:org/name"):
        open_hub(spec, {})


def test_environment(tmp_path: Path) -> None:
    """Token from the variable, else from the file that `hf auth login` writes; endpoint and cache as set."""
    (tmp_path / "token").write_text("hf_file\n")
    env = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "https://mirror.example/"}
    address = read_address("hf:org/name@v1.0", env)
    assert (address.token, address.endpoint, address.revision) == ("hf_file", "https://mirror.example", "v1.0")
    assert address.cache == tmp_path / "hub"
    assert address.text == "hf:org/name@v1.0"
    assert read_address("hf:org/name", env | {"HF_TOKEN": "hf_env"}).token == "hf_env"
    assert read_address("hf:org/name", env | {"HF_TOKEN": "two words\r\nX: y"}).token is None
    assert read_address("hf:org/name", env | {"HF_HUB_CACHE": "/c"}).cache == Path("/c")
    assert replace(address, revision="refs/pr/1").api_url().endswith("/revision/refs%2Fpr%2F1?blobs=true")
    with pytest.raises(UsageError, match="HF_ENDPOINT"):
        read_address("hf:org/name", {"HF_ENDPOINT": "ftp://x"})


def test_offline_uses_the_cache(golden: Path, tmp_path: Path) -> None:
    """Branch by its ref, commit directly; nothing there is an error that says what to do."""
    folder = tmp_path / "hub" / "models--org--name"
    Workspace(open_target(golden / "base-bf16")).save(folder / "snapshots" / COMMIT)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    env = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert "model.safetensors" in open_hub("hf:org/name", env).files()
    assert "model.safetensors" in open_hub(f"hf:org/name@{COMMIT}", env).files()
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        open_hub("hf:org/name@other", env)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        open_hub("hf:org/missing", env)
    (folder / "refs" / "main").write_text("../../../../etc")
    with pytest.raises(HubError):
        open_hub("hf:org/name", env)


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without an explicit environment the process's own counts."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", os.fspath(tmp_path))
    with pytest.raises(HubError, match="holds no snapshot"):
        open_target("hf:org/name")
