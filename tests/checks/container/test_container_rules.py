"""Look-alikes that stay silent, edges, and who is the cause when several container rules see one fault."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from degarble.api import check, check_source
from degarble.checkpoint.interface import Source
from degarble.checkpoint.shard_edit import GgufEdit, SafetensorsEdit
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Settings
from degarble.finding import Finding, Role, Severity
from degarble.registry import Level
from degarble.report.interface import Report
from degarble.target import open_target
from tests.checkpoint.raw_files import entry, in_memory, safetensors

INDEX = "model.safetensors.index.json"


def found(report: Report, rule: str) -> list[Finding]:
    """The findings of one rule."""
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    return [finding for finding in report.findings if finding.rule == rule]


def container_rules(source: Source) -> set[str]:
    """Ids of the container rules that found something."""
    report = check_source(source)
    assert report.summary["crashed"] == 0
    return {finding.rule for finding in report.findings if finding.rule.startswith("CKP")}


def shards(count: int, *, stamp: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """A tiny model of one tensor in each of several files, with a right index."""
    files: dict[str, bytes] = {}
    weight_map: dict[str, str] = {}
    for number in range(1, count + 1):
        file, name = f"model-{number:05d}-of-{count:05d}.safetensors", f"model.layers.{number - 1}.mlp.up_proj.weight"
        header: dict[str, Any] = {"__metadata__": stamp} if stamp is not None else {}
        files[file] = safetensors(header | {name: entry("BF16", [2], 0, 4)}, bytes(4))
        weight_map[name] = file
    files[INDEX] = json.dumps({"metadata": {"total_size": 4 * count}, "weight_map": weight_map}).encode()
    return files


def without_index(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same without its index."""
    return {name: data for name, data in files.items() if name != INDEX}


def test_healthy_layouts_are_silent(golden: Path) -> None:
    """With an index, without, numbered from zero, in sub-folders, with adapters and Mistral's file beside."""
    three = shards(3, stamp={"format": "pt"})
    assert container_rules(in_memory(three)) == set()
    assert container_rules(in_memory(without_index(three))) == set()
    zero_based = {
        f"model-0000{number}-of-00002.safetensors": data for number, data in enumerate(list(three.values())[:2])
    }
    assert container_rules(in_memory(zero_based)) == set()
    same = safetensors({"model.layers.0.mlp.up_proj.weight": entry("BF16", [2], 0, 4)}, bytes(4))
    beside = {
        "consolidated.safetensors": same,
        "adapter_model.safetensors": same,
        "onnx/model-00001-of-00009.safetensors": same,
    }
    assert container_rules(in_memory(three | beside)) == set()
    nested = {f"weights/{name}": data for name, data in without_index(three).items()}
    index = json.loads(three[INDEX])
    index["weight_map"] = {name: f"weights/{file}" for name, file in index["weight_map"].items()}
    assert container_rules(in_memory(nested | {INDEX: json.dumps(index).encode()})) == set()
    assert container_rules(in_memory({"model.safetensors": same})) == set()


def test_a_missing_shard_lists_its_modules_and_explains_them(golden: Path) -> None:
    """One cause; the file comes first, then a place for every module that it held."""
    workspace = Workspace(open_target(golden / "own-sharded-bf16"))
    workspace.delete("model-00002-of-00002.safetensors")
    report = check_source(workspace.source())
    (finding,) = found(report, "CKP102")
    assert report.causes[0].finding == finding
    assert finding.location.as_dict() == {"file": "model-00002-of-00002.safetensors"}
    modules = {place.module: place.layer for place in finding.places if place.module}
    assert modules == {
        "model.layers.0.mlp.down_proj": 0,
        "model.layers.0.mlp.gate_proj": 0,
        "model.layers.0.mlp.up_proj": 0,
        "model.norm": None,
    }
    assert finding.measured == {"missing_files": 1, "missing_tensors": 4}
    assert "layer 0" in finding.message


def test_gaps_in_the_numbering() -> None:
    """All gaps in one finding; an absurd total costs nothing."""
    files = without_index(shards(5))
    del files["model-00002-of-00005.safetensors"], files["model-00004-of-00005.safetensors"]
    (finding,) = found(check_source(in_memory(files)), "CKP102")
    assert [place.file for place in finding.places[:2]] == [
        "model-00002-of-00005.safetensors",
        "model-00004-of-00005.safetensors",
    ]
    one = {"model-00001-of-999999.safetensors": next(iter(files.values()))}
    (finding,) = found(check_source(in_memory(one)), "CKP102")
    assert finding.measured["missing_files"] == 999_998 and len(finding.places) == 21


def test_a_stale_index_is_the_cause_of_its_missing_files() -> None:
    """W04: the old index of 30 shards beside 15 new ones."""
    files = without_index(shards(15))
    names = [f"model.layers.{number}.mlp.up_proj.weight" for number in range(15)]
    old = {name: f"model-{2 * at + 1:05d}-of-00030.safetensors" for at, name in enumerate(names)}
    report = check_source(in_memory(files | {INDEX: json.dumps({"weight_map": old}).encode()}))
    (stale,) = found(report, "CKP104")
    assert report.causes[0].finding == stale
    assert stale.severity is Severity.ERROR and stale.location.file == INDEX
    assert stale.fix is not None and stale.fix.safe and stale.fix.id == "regenerate-index"
    (missing,) = found(report, "CKP102")
    assert missing.role is Role.SYMPTOM


def test_a_missing_shard_is_no_stale_index() -> None:
    """A file that the index does not name, beside one that it misses, does not make the index stale."""
    files = shards(4)
    del files["model-00003-of-00004.safetensors"]
    files["mtp.safetensors"] = safetensors({"mtp.fc.weight": entry("BF16", [2], 0, 4)}, bytes(4))
    report = check_source(in_memory(files))
    assert report.causes[0].finding.rule == "CKP102"
    assert [f.severity for f in found(report, "CKP104")] == [Severity.WARNING]


def test_unlisted_tensors_are_errors_only_where_the_model_needs_them(golden: Path) -> None:
    """The architecture decides."""
    workspace = Workspace(open_target(golden / "own-sharded-bf16"))
    index = workspace.json(INDEX)["weight_map"]
    file = index.pop("model.norm.weight")
    workspace.shard(file).set("model.extra.weight", "BF16", (1,), bytes(2))
    by_name = {f.location.tensor: f for f in found(check_source(workspace.source()), "CKP104")}
    assert by_name["model.norm.weight"].severity is Severity.ERROR
    assert by_name["model.extra.weight"].severity is Severity.WARNING


def test_an_index_of_another_split(golden: Path) -> None:
    """Every entry points to the wrong one of two files: one finding at the index, with a safe repair."""
    workspace = Workspace(open_target(golden / "own-sharded-bf16"))
    index = workspace.json(INDEX)["weight_map"]
    one, two = sorted(set(index.values()))
    for name, file in index.items():
        index[name] = two if file == one else one
    (finding,) = found(check_source(workspace.source()), "CKP103")
    assert finding.location.key == "weight_map" and finding.measured["wrong_entries"] == len(index)
    assert finding.fix is not None and finding.fix.safe


def test_an_unreadable_shard_is_not_counted_by_the_index_rules(golden: Path) -> None:
    """CKP105 alone, with the modules of the index as its places."""
    workspace = Workspace(open_target(golden / "own-sharded-bf16"))
    workspace.overwrite("model-00002-of-00002.safetensors", 0, bytes(8))
    report = check_source(workspace.source())
    (finding,) = found(report, "CKP105")
    assert report.causes[0].finding == finding
    assert any(place.module == "model.norm" for place in finding.places)
    assert not found(report, "CKP103") and not found(report, "CKP104")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"weight_map": 3}', b'{"weight_map": {"a": 1}}'])
def test_a_broken_index(golden: Path, text: bytes) -> None:
    """Named as such; the shards themselves are still judged, by their numbers."""
    files = shards(3) | {INDEX: text}
    assert container_rules(in_memory(files)) == {"CKP105"}
    del files["model-00002-of-00003.safetensors"]
    assert container_rules(in_memory(files)) == {"CKP102", "CKP105"}


def test_gguf_look_alikes(golden: Path) -> None:
    """Generous regions are legal; bytes behind the last tensor are a warning."""
    base = open_target(golden / "gguf-py-q8_0")
    (file,) = (name for name in base.files() if name.endswith(".gguf"))
    workspace = Workspace(base)
    edit = workspace.shard(file)
    for slot in edit.tensors.values():
        slot.segments = (*slot.segments, *slot.segments[:1])
    edit.changed = True
    assert not container_rules(workspace.source()) & {"CKP101", "CKP106"}
    workspace = Workspace(base)
    workspace.append(file, bytes(100))
    (finding,) = found(check_source(workspace.source()), "CKP105")
    assert finding.severity is Severity.WARNING


def test_a_split_gguf(golden: Path) -> None:
    """Parts by number, and by split.count where the names carry none."""
    base = open_target(golden / "llama.cpp-q4_0")
    (file,) = (name for name in base.files() if name.endswith(".gguf"))
    for count, names, expected in (
        (1, ("m.gguf",), set()),
        (2, ("m-00001-of-00002.gguf",), {"CKP102"}),
        (3, ("a.gguf",), {"CKP102"}),
        ("3", ("a.gguf",), set()),
    ):
        workspace = Workspace(base)
        edit = workspace.shard(file)
        assert isinstance(edit, GgufEdit)
        edit.set_metadata("split.count", count, (2, None) if isinstance(count, int) else (8, None))
        workspace.rename_file(file, names[0])
        assert container_rules(workspace.source()) == expected, (count, names)


def test_names_in_two_files(golden: Path) -> None:
    """An error if both files count, a warning if the index leaves one out."""
    files = shards(2)
    first = files["model-00001-of-00002.safetensors"]
    (finding,) = found(check_source(in_memory(files | {"model.safetensors": first})), "CKP107")
    assert finding.severity is Severity.WARNING and finding.location.file == "model.safetensors"
    bare = without_index(files) | {"extra.safetensors": first}
    (finding,) = found(check_source(in_memory(bare)), "CKP107")
    assert finding.severity is Severity.ERROR
    assert {place.file for place in finding.places} == {"model-00001-of-00002.safetensors", "extra.safetensors"}


def digest_report(folder: Path, level: Level = Level.CONTENT) -> Report:
    """The report of a folder on disk."""
    return check_source(open_target(folder), Settings(level=level))


def test_digests_at_hand(golden: Path, tmp_path: Path) -> None:
    """Hub cache, download note and list: silent if equal, one finding if not, hashed only where the level allows."""
    data = (golden / "own-untied-bf16" / "model.safetensors").read_bytes()
    config = (golden / "own-untied-bf16" / "config.json").read_bytes()
    right, wrong = hashlib.sha256(data).hexdigest(), "0" * 64
    for digest, expected in ((right, 0), (wrong, 1)):
        cache = tmp_path / f"models--a--{expected}"
        snapshot = cache / "snapshots" / "rev"
        snapshot.mkdir(parents=True)
        (cache / "blobs").mkdir()
        (cache / "blobs" / digest).write_bytes(data)
        (snapshot / "model.safetensors").symlink_to(f"../../blobs/{digest}")
        listed, noted = tmp_path / f"listed{expected}", tmp_path / f"noted{expected}"
        (noted / ".cache" / "huggingface" / "download").mkdir(parents=True)
        listed.mkdir()
        (listed / "SHA256SUMS").write_text(f"{digest.upper()} *model.safetensors\n{wrong}  absent.safetensors\n")
        note = noted / ".cache" / "huggingface" / "download" / "model.safetensors.metadata"
        note.write_text(f"{'c' * 40}\n{digest}\n1700000000.0\n")
        for folder in (listed, noted):
            (folder / "model.safetensors").write_bytes(data)
        for folder in (snapshot, listed, noted):
            (folder / "config.json").write_bytes(config)
            findings = found(digest_report(folder), "CKP108")
            assert len(findings) == expected, folder
            assert all(f.location.file == "model.safetensors" and f.bound["sha256"] == wrong for f in findings)
            skipped = next(r for r in digest_report(folder, Level.HEADER).results if r.rule == "CKP108")
            assert skipped.outcome == "skipped"
    reason = next(r for r in check(golden / "base-bf16").results if r.rule == "CKP108").reason
    assert reason is not None and "no digest at hand" in reason


def test_a_truncated_file_explains_its_digest(golden: Path) -> None:
    """CKP101 is the cause, CKP108 its symptom."""
    workspace = Workspace(open_target(golden / "own-untied-bf16"))
    digest = hashlib.sha256(workspace.source().read("model.safetensors")).hexdigest()
    workspace.write("SHA256SUMS", f"{digest}  model.safetensors\n".encode())
    workspace.truncate("model.safetensors", 1_700_000)
    report = check_source(workspace.source())
    assert report.causes[0].finding.rule == "CKP101"
    assert [f.role for f in found(report, "CKP108")] == [Role.SYMPTOM]


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("pytorch_model.bin", Severity.WARNING),
        ("pytorch_model-00002-of-00007.bin", Severity.WARNING),
        ("adapter_model.bin", Severity.WARNING),
        ("consolidated.00.pth", Severity.WARNING),
        ("gptq_model-4bit-128g.bin", Severity.WARNING),
        ("MODEL.PT", Severity.WARNING),
        ("training_args.bin", Severity.INFO),
        ("optimizer.pt", Severity.INFO),
        ("rng_state_0.pth", Severity.INFO),
        ("scheduler.pt", Severity.INFO),
        ("openvino_model.bin", None),
        ("ggml-model-q4_0.bin", None),
        ("model.onnx", None),
        ("tokenizer.model", None),
        ("robin.txt", None),
    ],
)
def test_pickles(golden: Path, name: str, severity: Severity | None) -> None:
    """Weights warn, by-products inform, raw weights of other runtimes are left alone."""
    workspace = Workspace(open_target(golden / "own-untied-bf16"))
    workspace.write(name, b"")
    assert [f.severity for f in found(check_source(workspace.source()), "CKP109")] == ([severity] if severity else [])


def test_only_pickles_is_not_clean(golden: Path) -> None:
    """What was not opened is not called checked."""
    config = (golden / "own-untied-bf16" / "config.json").read_bytes()
    report = check_source(in_memory({"config.json": config, "pytorch_model.bin": b"PK"}))
    assert "pytorch_model.bin" in report.unjudged and found(report, "CKP109")


def test_shards_of_two_exports() -> None:
    """Stamp, spelling; the shard in the minority is named."""
    files = shards(3, stamp={"format": "pt"})
    other = "model-00002-of-00003.safetensors"
    files[other] = shards(3, stamp={"format": "mlx"})[other]
    (finding,) = found(check_source(in_memory(files)), "CKP110")
    assert finding.location.file == other and finding.severity is Severity.WARNING
    files = without_index(shards(3))
    files[other] = safetensors({"language_model.model.layers.1.mlp.up_proj.weight": entry("BF16", [2], 0, 4)}, bytes(4))
    (finding,) = found(check_source(in_memory(files)), "CKP110")
    assert finding.location.file == other and finding.severity is Severity.ERROR


def test_mixed_precision_is_one_export() -> None:
    """Layers in another precision within a shard, FP32 routers and norms, a tower of its own: silent."""
    files = shards(2)
    files["model-00002-of-00002.safetensors"] = safetensors(
        {
            "model.layers.1.mlp.up_proj.weight": entry("BF16", [2], 0, 4),
            "model.layers.1.mlp.gate.weight": entry("F32", [1], 4, 8),
            "model.layers.1.input_layernorm.weight": entry("F32", [1], 8, 12),
            "vision_tower.encoder.layers.0.fc1.weight": entry("F16", [2], 12, 16),
            "mtp.layers.0.norm.weight": entry("F32", [1], 16, 20),
        },
        bytes(20),
    )
    assert "CKP110" not in container_rules(in_memory(without_index(files)))


def test_dtype_of_another_export(golden: Path) -> None:
    """All plain tensors of one shard in the other half precision."""
    workspace = Workspace(open_target(golden / "own-sharded-bf16"))
    edit = workspace.shard("model-00002-of-00002.safetensors")
    assert isinstance(edit, SafetensorsEdit)
    for name in list(edit.tensors):
        edit.relabel(name, dtype="F16")
    (finding,) = found(check_source(workspace.source()), "CKP110")
    assert finding.location.file == "model-00002-of-00002.safetensors"
