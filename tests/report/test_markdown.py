"""Markdown: what it shows is the text and nothing else, judged by a CommonMark renderer; it fits into a comment."""

from __future__ import annotations

import html
import re

import pytest
from markdown_it import MarkdownIt

from degarble.report.interface import Report
from degarble.report.markdown import MAX_CHARS, code, escape, prose, render
from degarble.report.visible import visible
from tests.report.samples import HOSTILE, explained, finding, hostile, layered, many, report_of

COMMENT = 65_536
TAGS = {"h3", "p", "strong", "code", "ul", "li", "details", "summary", "br"}


def html_of(markdown: str) -> str:
    """As a CommonMark renderer with tables and strikethrough shows it."""
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


def shown(markdown: str) -> str:
    """The text that a reader sees."""
    return html.unescape(re.sub(r"<[^>]*>", "", html_of(markdown).replace("<br />\n", "\n"))).strip()


@pytest.mark.parametrize(
    "text", [*HOSTILE.values(), "1. one\n2) two", "    four spaces", "a_b_c __d__ 2*3*4", "![a](b)"]
)
def test_escaped_text_shows_itself(text: str) -> None:
    lines = [visible(line).strip() for line in text.split("\n")]
    assert [line.strip() for line in shown("> " + escape("\n".join(lines))).split("\n")] == lines
    assert "<a" not in html_of(escape(text)) and "<img" not in html_of(escape(text))


@pytest.mark.parametrize("text", ["a", "`", "``a`", "a`", " a ", "<b>", "a|b", "@x #1", "\\"])
def test_a_code_span_shows_itself(text: str) -> None:
    assert html.unescape(html_of("x " + code(text))).strip() == f"<p>x <code>{text}</code></p>"


def test_mentions_and_issue_numbers_are_broken() -> None:
    """Nobody is called because a tensor is named after them."""
    assert "@everyone" not in escape("@everyone") and "#1" not in escape("see #1")
    assert shown(escape("@everyone, see org/repo#1")) == "@everyone, see org/repo#1"
    assert "www.evil" not in escape("www.evil.test") and "http://" not in escape("http://evil.test")


def test_prose_keeps_its_code() -> None:
    assert prose("the `config.json` of *it*") == r"the `config.json` of \*it\*"


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("detail", [-1, 0, 1])
def test_hostile_reports_hold_no_markup_of_others(case: str, detail: int) -> None:
    rendered = html_of(render(hostile(HOSTILE[case]), detail=detail))
    assert set(re.findall(r"<([a-z0-9]+)", rendered)) <= TAGS


def opened(report: Report) -> tuple[int, int]:
    """Parts opened and closed."""
    text = render(report)
    return text.count("<details>"), text.count("</details>")


def test_causes_symptoms_and_coverage() -> None:
    report = explained()
    text = render(report)
    assert text.startswith("### ❌ `models/tiny` (gptq-int4): 2 errors, 1 cause\n")
    assert f"Explains {len(report.causes[0].symptoms)} finding" in text
    assert f"{report.summary['ran']} rules checked" in text
    first, last = opened(report)
    assert first == last > 0


def test_a_healthy_report_says_so() -> None:
    assert render(report_of()).startswith("### ✅ `models/tiny` (gptq-int4): nothing wrong found")
    assert render(report_of(unjudged={"x": "y"})).startswith("### ⚠️ ")
    assert "no such folder" in render(report_of(failure="no such folder"))


@pytest.mark.parametrize(
    "report",
    [
        many(10_000),
        many(3),
        layered(),
        report_of(finding(message="long " * 5000), unjudged={str(n): "r" for n in range(999)}),
    ],
)
def test_it_fits_into_a_comment(report: Report) -> None:
    text = render(report, detail=1)
    assert len(text) <= MAX_CHARS < COMMENT


def test_causes_that_do_not_fit_are_counted() -> None:
    text = render(many(10_000))
    told = text.count("(proven)")
    assert f"… and {10_000 - told:,} more causes" in text and told > 10
