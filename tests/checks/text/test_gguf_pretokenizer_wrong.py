"""TOK412: names that are missing, unknown, equal, or another family's."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.gguf_writer import encode_header
from degarble.checkpoint.interface import Source
from degarble.checks.text.gguf_pretokenizer_wrong import gguf_pretokenizer_wrong
from degarble.evidence import Evidence, Settings
from degarble.finding import Finding, Severity
from degarble.registry import Level
from degarble.target import open_target
from tests.checks.text.text_findings import GgufSource, findings
from tests.family_patients import family_patients
from tests.tokenizer.trained import trained

KEY = "tokenizer.ggml.pre"


@cache
def evidence(name: str) -> Evidence:
    return Evidence(open_target(family_patients() / name), Settings(level=Level.HEADER))


def family(name: str, pre: str | None) -> list[Finding]:
    """The rule's own findings for a name; severity None is the rule's."""
    healthy: GgufFile = evidence(name).get("gguf")
    metadata = {key: value for key, value in healthy.metadata.items() if key != KEY}
    gguf = replace(healthy, metadata=metadata if pre is None else metadata | {KEY: pre})
    return list(gguf_pretokenizer_wrong(gguf, evidence(name).get("tokenizer"), evidence(name).find("cut_family")))


def unknown_family(cuts: str, pre: str, model: str = "gpt2") -> Source:
    document = trained(cuts)["model"]
    metadata = {
        "tokenizer.ggml.model": model,
        KEY: pre,
        "tokenizer.ggml.tokens": list(document["vocab"]),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in document["merges"]],
    }
    kinds: dict[str, tuple[int, int | None]] = {
        key: (8, None) if isinstance(value, str) else (9, 8) for key, value in metadata.items()
    }
    return GgufSource({"model.gguf": encode_header(metadata, kinds, [], 32)})


@pytest.mark.parametrize(
    ("name", "pre"),
    [
        ("qwen3-gguf", "qwen2"),
        ("qwen3-gguf", "deepseek-r1-qwen"),
        ("llama-3-gguf", "llama-bpe"),
        ("llama-3-gguf", "llama3"),
        ("deepseek-v3-gguf", "deepseek-v3"),
        ("llama-2-gguf", "default"),
        ("llama-2-gguf", "no such name"),
        ("llama-2-gguf", None),
    ],
)
def test_silent(name: str, pre: str | None) -> None:
    assert not family(name, pre)


@pytest.mark.parametrize("name", ["qwen3-gguf", "llama-3-gguf", "deepseek-v3-gguf"])
@pytest.mark.parametrize("pre", ["default", "gpt-2", "tekken", "gpt-4o", "smollm", "falcon"])
def test_another_family_s(name: str, pre: str) -> None:
    (finding,) = family(name, pre)
    assert finding.severity is None and finding.location.key == KEY
    assert finding.measured == {"pre": pre} and finding.fix is not None and finding.fix.safe


@pytest.mark.parametrize(("pre", "severity"), [(None, Severity.WARNING), ("", Severity.WARNING), ("qwen_3", None)])
def test_missing_and_unknown(pre: str | None, severity: Severity | None) -> None:
    (finding,) = family("qwen3-gguf", pre)
    assert finding.severity is severity and "'qwen2'" in finding.message


def test_a_vocabulary_that_nobody_knows() -> None:
    assert not findings("TOK412", unknown_family("llama-bpe", "llama-bpe"))
    assert not findings("TOK412", unknown_family("llama-bpe", "tekken"))
    (finding,) = findings("TOK412", unknown_family("llama-bpe", "gpt-2"))
    assert finding.location.key == KEY and "share_cut_apart" in finding.measured
    (finding,) = findings("TOK412", unknown_family("llama-bpe", "my-fork"))
    assert finding.fix is not None and not finding.fix.safe
