"""Steps of a stored pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.tokenizer.stages import MAX_DEPTH, sequence_of, stages


def test_nested_sequences_have_dotted_keys() -> None:
    fuse, strip = {"type": "Fuse"}, {"type": "Strip", "start": 1}
    part = {"type": "Sequence", "decoders": [fuse, {"type": "Sequence", "decoders": [strip]}]}
    assert [step.key for step in stages(part, "decoder")] == ["decoder.decoders.0", "decoder.decoders.1.decoders.0"]
    assert stages(fuse, "decoder")[0].key == "decoder"
    assert sequence_of("decoder", stages(part, "decoder")) == {"type": "Sequence", "decoders": [fuse, strip]}
    assert sequence_of("normalizer", []) is None


@pytest.mark.parametrize("part", [None, 5, "x", [], {}, {"type": 5}, {"type": "Sequence", "decoders": 5}])
def test_other_values_have_no_steps(part: Any) -> None:
    assert stages(part, "decoder") == []


def test_depth_is_bounded() -> None:
    part: Any = {"type": "Fuse"}
    for _ in range(MAX_DEPTH + 5):
        part = {"type": "Sequence", "decoders": [part]}
    assert stages(part, "decoder") == []
