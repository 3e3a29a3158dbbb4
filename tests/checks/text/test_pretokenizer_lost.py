"""TOK419: cuts of known families, of unknown vocabularies, and pairs that cannot be told apart."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.checks.text.pretokenizer_lost import pretokenizer_lost
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.finding import Confidence, Finding, Severity
from degarble.target import open_target
from degarble.tokenizer.cut_families import Recognised, recognise
from degarble.tokenizer.cuts import byte_level, gguf_pretokenizers
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.merges import Merges
from tests.checks.text.text_findings import findings, in_folder
from tests.family_patients import family_patients
from tests.tokenizer.small_tokenizers import byte_fallback, unigram
from tests.tokenizer.trained import trained

OWN = {"deepseek-v3": "deepseek-v3", "qwen3": "qwen2", "llama-3": "llama-bpe", "gpt-oss": "gpt-4o"}
FOLDERS = {"deepseek_v3": "deepseek-v3", "qwen3": "qwen2", "llama3_1": "llama-bpe", "gptoss": "gpt-4o"}
GPT_2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def cut_as(name: str | None) -> dict[str, Any]:
    return byte_level((gguf_pretokenizers()[name].regexes or ()) if name else ())


def wrong_cuts(own: str) -> dict[str, dict[str, Any]]:
    """Everything that converters put in the place of a family's cuts."""
    names = ("default", "qwen2", "llama-bpe", "gpt-4o", "deepseek-v3", "smollm")
    spaced = cut_as(own)
    spaced["pretokenizers"][-1]["add_prefix_space"] = True
    return {"gpt2": GPT_2, "none": cut_as(None), "space": spaced} | {
        name: cut_as(name) for name in names if name != own
    }


@cache
def loaded(folder: Path) -> tuple[Tokenizer, Recognised]:
    tokenizer = load_tokenizer(folder)
    found = recognise(tokenizer)
    assert found is not None
    return tokenizer, found


def judged(folder: Path, **parts: Any) -> list[Finding]:
    """The rule's own findings for a tokenizer with other parts; severity None is the rule's."""
    tokenizer, found = loaded(folder)
    stored = StoredTokenizer(
        file="tokenizer.json", parts={**tokenizer.pipeline, **parts}, pieces=tokenizer.pieces, added=frozenset()
    )
    return list(pretokenizer_lost(tokenizer, stored, found))


@pytest.mark.parametrize("patient", OWN)
def test_families(patient: str) -> None:
    folder = family_patients() / patient
    assert not judged(folder)
    for name, cuts in wrong_cuts(OWN[patient]).items():
        (finding,) = judged(folder, pre_tokenizer=cuts)
        assert finding.location.key == "pre_tokenizer" and finding.confidence is Confidence.LIKELY, name


@pytest.mark.parametrize("patient", ["llama-2", "gemma-3"])
def test_sentencepiece_families(patient: str) -> None:
    folder = family_patients() / patient
    words = {"type": "Split", "pattern": {"String": "▁"}, "behavior": "MergedWithNext", "invert": False}
    assert not judged(folder) and not judged(folder, pre_tokenizer=words)
    (finding,) = judged(folder, pre_tokenizer={"type": "Digits", "individual_digits": True})
    assert finding.severity is None


def test_ignore_merges() -> None:
    (finding,) = judged(family_patients() / "llama-3", model={"ignore_merges": False})
    assert finding.severity is Severity.WARNING and finding.fix is not None and finding.fix.safe
    assert not judged(family_patients() / "gpt-oss", model={"ignore_merges": False})


@pytest.mark.parametrize("cuts", ["llama-bpe", "gpt-2", "deepseek-v3", "smollm", None])
def test_unknown_vocabularies(cuts: str | None) -> None:
    assert not in_folder("TOK419", trained(cuts))


def test_unknown_vocabularies_under_other_cuts() -> None:
    (finding,) = in_folder("TOK419", trained("llama-bpe") | {"pre_tokenizer": cut_as(None)})
    assert finding.measured == {"pieces_across_words": 0}
    (finding,) = in_folder("TOK419", trained("llama-bpe") | {"pre_tokenizer": GPT_2})
    assert finding.severity is Severity.ERROR and finding.measured["share_cut_apart"]
    letters = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    document = trained("llama-bpe")
    document["pre_tokenizer"]["pretokenizers"].insert(0, letters)
    assert in_folder("TOK419", document)


@pytest.mark.parametrize("document", [byte_fallback(), unigram()])
def test_other_kinds_are_silent(document: Any) -> None:
    assert not in_folder("TOK419", document)


@pytest.mark.parametrize("name", ["base-bf16", "autoawq-gemm-g128"])
def test_a_vocabulary_cut_down_to_another_size(golden: Path, name: str) -> None:
    """SmolLM2's first 512 pieces under GPT-2's regex, which is as good as SmolLM2's own."""
    workspace = Workspace(open_target(golden / name))
    assert workspace.json("tokenizer.json")["pre_tokenizer"]["use_regex"] is True
    assert not findings("TOK419", workspace.source())
    workspace.json("tokenizer.json")["pre_tokenizer"] = cut_as("smollm")
    assert not findings("TOK419", workspace.source())
    for other in ("qwen2", "default", None):
        workspace.json("tokenizer.json")["pre_tokenizer"] = cut_as(other)
        (finding,) = findings("TOK419", workspace.source())
        assert finding.confidence is Confidence.LIKELY


@pytest.mark.real
@pytest.mark.parametrize("name", FOLDERS)
def test_published_vocabularies_under_every_wrong_cut(name: str) -> None:
    """Of all pairs only Qwen's vocabulary under Llama 3's regex is silent: its ids are the same."""
    folder = Path(__file__).parents[3] / ".work" / "tokenizers" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not there: python scripts/extract_tokenizers.py")
    assert not judged(folder)
    for wrong, cuts in wrong_cuts(FOLDERS[name]).items():
        found = judged(folder, pre_tokenizer=cuts)
        if (name, wrong) == ("qwen3", "llama-bpe"):
            assert not found
        else:
            assert [one.confidence for one in found] == [Confidence.PROVEN], wrong


@pytest.mark.real
def test_merges_of_a_published_vocabulary_count() -> None:
    folder = Path(__file__).parents[3] / ".work" / "tokenizers" / "deepseek_v3"
    if not folder.is_dir():
        pytest.skip("deepseek_v3 is not there: python scripts/extract_tokenizers.py")
    tokenizer, found = loaded(folder)
    changed = replace(tokenizer, merges=Merges(listed=list(tokenizer.merges.stored)[:60_000]))
    stored = StoredTokenizer(file="tokenizer.json", parts=tokenizer.pipeline, pieces=[], added=frozenset())
    (finding,) = pretokenizer_lost(changed, stored, found)
    assert finding.location.key == "model.merges" and finding.measured["ids"] != finding.bound["ids"]
