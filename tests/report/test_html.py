"""The page: loads nothing, escapes everything, carries the document, and can be read by keyboard, ear and in the dark."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import jsonschema
import pytest

from degarble.report.html import MAX_DOCUMENT, policy, render, style
from degarble.report.interface import Report
from degarble.report.json import document, encoded
from degarble.report.load import load
from degarble.runner import Outcome, RuleResult
from tests.cli.test_commands import SCHEMA
from tests.report.samples import HOSTILE, broken, explained, finding, hostile, layered, many, report_of

VOID = {"meta", "br", "line", "circle", "rect", "path", "polyline", "link", "img"}


class Page(HTMLParser):
    """Elements of a page in order, with their attributes; refuses what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self._text: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open
        self.text = {name: "".join(parts) for name, parts in self._text.items()}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, given))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self._text.setdefault(tag, []).append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        """Attributes of every element of that name."""
        return [attributes for name, attributes in self.elements if name == tag]


SAMPLES = {
    "value finding": layered(),
    "healthy": report_of(),
    "symptom": explained(),
    "failure": report_of(failure="no such folder"),
    "many": many(130),
    "partial": report_of(unjudged={"--sample": "a part"}),
}


@pytest.fixture(params=SAMPLES)
def report(request: pytest.FixtureRequest) -> Report:
    """Each of the samples."""
    return SAMPLES[request.param]


def test_nothing_is_loaded(report: Report) -> None:
    page = Page(render(report))
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not {"src", "srcset", "action", "style", "background"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")
    assert "url(" not in style() and "@import" not in style()
    assert [attributes["type"] for attributes in page.all("script")] == ["application/json"]


def test_the_policy_allows_the_style_sheet_by_its_digest_and_nothing_else(report: Report) -> None:
    page = Page(render(report))
    digest = base64.b64encode(hashlib.sha256(page.text["style"].encode()).digest()).decode()
    policies = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [policy()]
    assert policy() == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_the_document_is_inside(report: Report) -> None:
    text = Page(render(report)).text["script"]
    found = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    expected = document(report)
    expected.pop("profile", None)
    assert found == json.loads(encoded(expected))
    again = load(text.encode())
    assert [f.fingerprint for f in again.findings] == [f.fingerprint for f in report.findings]


def test_structure(report: Report) -> None:
    page = Page(render(report))
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("header")) == len(page.all("footer")) == 1
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))
    assert page.all("html")[0]["lang"] == "en" and page.text["title"]
    assert any(a.get("name") == "viewport" and "initial-scale=1" in a["content"] for a in page.all("meta"))


def test_names_and_labels(report: Report) -> None:
    page = Page(render(report))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids
        if attributes.get("href"):
            assert attributes["href"].removeprefix("#") in ids
    for drawing in page.all("svg"):
        assert drawing["role"] == "img" and drawing["aria-labelledby"]
    for table in page.all("th"):
        assert table["scope"] in ("col", "row")
    assert len(page.all("summary")) == len(page.all("details"))


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_names_stay_text(case: str) -> None:
    page = Page(render(hostile(HOSTILE[case])))
    ours = Page(render(layered()))
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in ours.elements} | {
        "details",
        "summary",
        "strong",
        "br",
    }
    assert len(page.all("script")) == 1
    jsonschema.validate(json.loads(page.text["script"]), SCHEMA)
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "style")]


def test_causes_with_numbers_words_and_symptoms() -> None:
    text = Page(render(layered())).text
    assert "1 error and 1 warning, 2 causes" in text["header"]
    for words in ("ratio 31.7", "ratio_max 8", "How to repair it", "How to confirm", "What you will see"):
        assert words in text["article"]
    assert "Explains 1 finding" in Page(render(explained())).text["summary"]


def test_drawings_mark_the_layer_and_say_what_they_show() -> None:
    page = Page(render(layered()))
    captions = page.text["figcaption"]
    for title in ("Largest value by layer", "Rms of values by layer", "Median scale by layer", "Codes"):
        assert title in captions
    assert len(page.all("svg")) == 4  # with the first of two causes in one module
    first = page.text["desc"]
    assert "32 layers; layer 20 has" in first and "the median of the others is" in first
    marks = [a for a in page.all("path") if a["class"] == "mark"]
    assert len(marks) == 3  # one in each strip
    assert "median scale" in page.text["table"] and "ratio" in page.text["table"]


def test_without_a_profile_nothing_is_drawn() -> None:
    page = Page(render(explained()))
    assert not page.all("svg")


def test_a_golden_value_fault_is_drawn() -> None:
    page = Page(render(broken("gptqmodel-gptq-sym-g128", "zero-point-off-by-one", profile=True)))
    assert len(page.all("svg")) >= 4 and len(page.all("rect")) >= 10


def test_skips_and_crashes_are_shown() -> None:
    results = (
        RuleResult(rule="CKP101", outcome=Outcome.OK),
        RuleResult(rule="CKP102", outcome=Outcome.SKIPPED, reason="no index"),
        RuleResult(rule="CKP103", outcome=Outcome.CRASHED, reason="KeyError: 'x'"),
    )
    page = Page(render(report_of(results=results, unjudged={"a.bin": "a pickle"})))
    assert "no index" in page.text["table"]
    assert "KeyError: 'x'" in page.text["main"] and "a pickle" in page.text["main"]


def test_a_long_document_is_shortened_and_says_so() -> None:
    page = Page(render(many(10_000)))
    found = json.loads(page.text["script"])
    assert len(page.text["script"].encode()) <= MAX_DOCUMENT * 1.01
    assert f"Of 10,000 findings it holds the first {len(found['findings']):,}." in page.text["main"]
    ids = {item["id"] for item in found["findings"]}
    assert 1_000 < len(ids) < 10_000 and all(cause["finding"] in ids for cause in found["causes"])
    assert found["summary"]["error"] == 10_000


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("colour", "least"),
    [
        ("text", 7),
        ("muted", 4.5),
        ("error", 4.5),
        ("warning", 4.5),
        ("info", 4.5),
        ("ok", 4.5),
        ("mark", 3),
        ("bar", 3),
    ],
)
def test_contrast(scheme: str, colour: str, least: float) -> None:
    """AA: 4.5 for text, 3 for drawings; text in the colour of the page."""
    blocks = re.findall(r":root \{([^}]*)\}", style())
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", blocks[scheme == "dark"]))
    for ground in ("page", "raised"):
        one, other = sorted((luminance(colours[colour]), luminance(colours[ground])))
        assert (other + 0.05) / (one + 0.05) >= least, (colour, ground)


def test_the_style_knows_phones_darkness_and_paper() -> None:
    for words in ("prefers-color-scheme: dark", "min-width", "@media print", "focus-visible", "overflow-x: auto"):
        assert words in style()


def test_a_finding_that_is_everywhere_lists_its_places() -> None:
    places = tuple(finding(location=finding().location).location for _ in range(50))
    page = Page(render(report_of(finding(places=places))))
    assert "All 50 places" in page.text["summary"] and "… and 29 more" in page.text["article"]
