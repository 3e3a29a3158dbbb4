"""TOK417: how bad each difference is, and against which form of the reference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from degarble.api import check_source
from degarble.checkpoint.interface import Source
from degarble.evidence import Evidence, Settings
from degarble.finding import Finding, Severity
from degarble.registry import Level
from degarble.target import open_target
from tests.family_patients import family_patients
from tests.memory_source import MemorySource
from tests.tokenizer.small_tokenizers import added
from tests.tokenizer.trained import trained

HEADER = Settings(level=Level.HEADER)


def compare(mine: Source, theirs: Source) -> list[Finding]:
    report = check_source(mine, HEADER, Evidence(theirs, HEADER), chosen=["TOK417"])
    assert report.summary["crashed"] == 0, [result.reason for result in report.results]
    return list(report.findings)


def folder(document: Any) -> Source:
    return MemorySource({"tokenizer.json": json.dumps(document).encode()})


def changed(**parts: Any) -> Any:
    document = trained()
    for key, value in parts.items():
        part, _, name = key.partition("__")
        if name:
            document[part] = document[part] | {name: value}
        else:
            document[part] = value
    return document


def test_equal() -> None:
    assert not compare(folder(trained()), folder(trained()))


@pytest.mark.parametrize(
    ("one", "other"),
    [("qwen3-gguf", "qwen3"), ("llama-3-gguf", "llama-3"), ("llama-2-gguf", "llama-2"), ("qwen3", "qwen3-gguf")],
)
def test_forms_of_one_tokenizer(one: str, other: str) -> None:
    assert not compare(open_target(family_patients() / one), open_target(family_patients() / other))


def test_a_fine_tune_s_tokens() -> None:
    document = trained()
    document["added_tokens"].append(added(len(document["model"]["vocab"]), "<new>", special=True))
    (finding,) = compare(folder(document), folder(trained()))
    assert finding.severity is Severity.INFO and finding.measured["gained-added"] == 1
    (finding,) = compare(folder(trained()), folder(document))
    assert finding.severity is Severity.ERROR and finding.measured["lost"] == 1


def test_changed_ids() -> None:
    vocab = trained()["model"]["vocab"]
    moved = {piece: {700: 900, 900: 700}.get(at, at) for piece, at in vocab.items()}
    (finding,) = compare(folder(changed(model__vocab=moved)), folder(trained()))
    assert (finding.severity, finding.location.key) == (Severity.ERROR, "model.vocab")
    assert (finding.measured["changed"], finding.measured["first"]) == (2, 700)


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ({"normalizer": {"type": "NFC"}}, "normalizer"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}}, "pre_tokenizer"),
        ({"model__merges": trained()["model"]["merges"][::-1]}, "model.merges"),
        ({"model__dropout": 0.1}, "model.dropout"),
        ({"model__ignore_merges": True}, "model.ignore_merges"),
    ],
)
def test_pipeline(parts: Any, key: str) -> None:
    if key == "pre_tokenizer":
        parts[key]["trim_offsets"] = True
    (finding,) = compare(folder(changed(**parts)), folder(trained()))
    assert (finding.severity, finding.location.key) == (Severity.ERROR, key)


def test_another_family_s() -> None:
    found = compare(open_target(family_patients() / "qwen3"), open_target(family_patients() / "llama-3"))
    assert {finding.severity for finding in found} >= {Severity.ERROR} and len(found) < 12


def test_a_reference_without_a_tokenizer() -> None:
    report = check_source(
        folder(trained()), HEADER, Evidence(MemorySource({"config.json": b"{}"}), HEADER), chosen=["TOK417"]
    )
    assert not report.findings and report.summary["skipped"] == 1
