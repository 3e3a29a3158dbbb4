"""What trying a decoder shows, beyond what the rules' own tests see."""

from __future__ import annotations

import pytest

from degarble.errors import EvidenceMissing
from tests.evidence.test_stored_tokenizer import evidence
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, unigram


def test_sound() -> None:
    verdict = evidence(byte_fallback()).get("decoder_verdict")
    assert verdict.is_sound and (verdict.spaces_prepended, verdict.spaces_dropped) == (0, 1)
    verdict = evidence(unigram()).get("decoder_verdict")
    assert verdict.is_sound and (verdict.spaces_prepended, verdict.spaces_dropped) == (1, 1)


def test_unknown_spelling_is_not_judged() -> None:
    document = byte_level()
    document["model"]["vocab"] = {"a": 0, "b": 1}
    document["added_tokens"] = []
    with pytest.raises(EvidenceMissing):
        evidence(document).get("decoder_verdict")


def test_mismatch_hides_lossy_steps() -> None:
    """What is spoilt further on says nothing while the spelling itself is not read."""
    strip = {"type": "Strip", "content": " ", "start": 0, "stop": 1}
    document = {**byte_level(), "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, strip]}}
    verdict = evidence(document).get("decoder_verdict")
    assert verdict.mismatch is not None and not verdict.lossy


def test_each_guilty_step_is_named() -> None:
    spaces = {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 0, "stop": 1}
    fine = {"type": "Replace", "pattern": {"String": "\u2603"}, "content": "\u2604"}
    decoders = [byte_level()["decoder"], spaces, fine, strip]
    document = {**byte_level(), "decoder": {"type": "Sequence", "decoders": decoders}}
    verdict = evidence(document).get("decoder_verdict")
    assert [step.key for step, _ in verdict.lossy] == ["decoder.decoders.1", "decoder.decoders.3"]


def test_encoder_that_the_library_refuses() -> None:
    verdict = evidence({**byte_level(), "pre_tokenizer": {"type": "Unheard"}}).get("decoder_verdict")
    assert verdict.is_sound and verdict.spaces_prepended == 0
