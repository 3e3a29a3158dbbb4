"""A saved document is validated: what is wrong is named with its place, and nothing in it can make the tool crash."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from degarble.errors import DegarbleError, MalformedFile, UsageError
from degarble.registry import Level
from degarble.report.json import document, encoded
from degarble.report.load import MAX_PLACES, load, read_report
from degarble.report.writers import formats, writer
from tests.report.samples import GOLDEN_NAMES, broken, finding, layered, report_of

SAMPLE: dict[str, Any] = json.loads(encoded(document(layered(4))))


def edited(path: str, value: object) -> bytes:
    """The sample with one value replaced; `DROP` removes the key."""
    changed: Any = copy.deepcopy(SAMPLE)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place = changed
    for part in parents:
        place = place[part]
    if value == "DROP":
        del place[last]
    else:
        place[last] = value
    return json.dumps(changed).encode()


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_the_document_of_every_golden_case_comes_back(name: str) -> None:
    saved = document(broken(name, "module-missing", level=Level.HEADER))
    assert document(load(encoded(saved))) == json.loads(encoded(saved))


def test_a_folded_finding_keeps_its_places() -> None:
    places = tuple(finding(location=finding().location).location for _ in range(50))
    report = report_of(finding(places=places, fold="all"))
    again = load(encoded(document(report)))
    assert len(again.findings[0].all_places) == 50
    assert document(again) == document(report)
    assert (
        again.findings[0].fingerprint == report.findings[0].fingerprint != report_of(finding()).findings[0].fingerprint
    )


def test_words_of_another_version_are_kept() -> None:
    text = edited("causes/0/story", "It was told so in 2031.")
    assert "It was told so in 2031." in writer("text")(load(text))
    text = text.replace(b"WGT206", b"WGT999")
    assert "It was told so in 2031." in writer("markdown")(load(text))


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("schema_version", 2, "schema_version"),
        ("schema_version", "1", "schema_version"),
        ("schema_version", "DROP", "schema_version"),
        ("tool/version", 1, "tool.version"),
        ("target/formats", "gptq", "target.formats"),
        ("findings/0/severity", "fatal", "findings[0].severity"),
        ("findings/0/rule", "<b>", "findings[0].rule"),
        ("findings/0/id", "1", "findings[0].id"),
        ("findings/1/id", "f1", "findings[1].id"),
        ("findings/0/fingerprint", "0", "findings[0].fingerprint"),
        ("findings/0/message", None, "findings[0].message"),
        ("findings/0/measured", [], "findings[0].measured"),
        ("findings/0/measured/x", {"deep": 1}, "findings[0].measured"),
        ("findings/0/location/layer", "three", "findings[0].location.layer"),
        ("findings/0/location/count", MAX_PLACES + 1, "findings[0].location.count"),
        ("findings/0/location/also", ["x"] * 21, "findings[0].location.also"),
        ("findings/0/fix", {"id": "x"}, "findings[0].fix"),
        ("causes/0/finding", "f99", "causes"),
        ("causes/0/symptoms", ["f98"], "causes"),
        ("checks/0/outcome", "fine", "checks[0].outcome"),
        ("unjudged", [{"what": "x"}], "unjudged[0]"),
        ("profile", [1], "profile"),
        ("status", "ok", "status"),
        ("summary/error", 0, "summary.error"),
        ("summary", {}, "summary.error"),
        ("findings", "DROP", "findings"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(path: str, value: object, place: str) -> None:
    with pytest.raises(MalformedFile) as refused:
        load(edited(path, value), "old.json")
    assert place in str(refused.value) and str(refused.value).startswith("old.json: ")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"schema_version": 1}', b"\x00" * 9]
)
def test_no_document(data: bytes) -> None:
    with pytest.raises(MalformedFile):
        load(data)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none.json"), str(tmp_path), "bad\0name"):
        with pytest.raises(UsageError):
            read_report(path)


def test_a_report_whose_names_agree_with_nothing_still_renders() -> None:
    odd = edited(
        "profile", {"model.layers.20.mlp.down_proj": {"layer": 20, "codes": {"histogram": ["x", None]}}, "y": 3}
    )
    report = load(odd)
    for format in formats():
        assert writer(format)(report)


def test_mutated_documents_are_read_or_refused() -> None:
    """Never another exception, neither from the reader nor from a writer."""
    dice = random.Random(5)
    values: list[object] = [None, -1, 10**30, 1.5, "", "\ud800", "x" * 10_000, [], {}, True, [[]], {"a": {"b": []}}]
    num_read = 0
    for _ in range(200):
        changed: Any = copy.deepcopy(SAMPLE)
        place = changed
        while True:
            key = dice.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[key], dict | list) or not place[key] or dice.random() < 0.2:
                break
            place = place[key]
        place[key] = dice.choice(values)
        try:
            report = load(json.dumps(changed).encode("utf-8", "surrogatepass"))
        except DegarbleError:
            continue
        num_read += 1
        for format in formats():
            writer(format)(report)
    assert num_read > 20
