"""What `degarble overflow` recommends, and that the command it prints does what it says."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from degarble.cli import app
from degarble.report.overflow import overflow_lines
from degarble_engine.overflow.question import OverflowQuestion, overflow
from tests.degarble_engine.overflow.test_half_reach import grown

QUESTION = OverflowQuestion(engines=("transformers",), lengths=(16,))


def advised(path: Path, question: OverflowQuestion = QUESTION) -> tuple[dict[str, object], list[str]]:
    found = overflow(str(path), question).comparison
    assert found is not None
    wanted = found["advice"]
    assert isinstance(wanted, dict)
    return wanted, list(overflow_lines(found))


def test_all_three_ways_out_are_named_and_the_command_works(tmp_path: Path) -> None:
    sick = grown(tmp_path, {"mlp.down_proj": 2.0**19})
    found, lines = advised(sick)
    assert found["dtype"] == "bf16"
    assert "model.layers.0.mlp.down_proj" in str(found["upcast"])
    words = shlex.split(str(found["rescale"]))
    assert words[:2] == ["degarble", "fix"] and words[-1] == f"{sick}-rescaled"
    assert any("serve in bf16" in line for line in lines) and any(str(found["rescale"]) in line for line in lines)
    assert app.run([*words[1:], "--quiet"]) in (0, 1)
    repaired, _ = advised(Path(words[-1]))
    assert repaired["dtype"] == "fp16" and "rescale" not in repaired and "no_rescale" not in repaired


@pytest.mark.parametrize(
    ("factors", "reason"),
    [
        ({"layers.0.self_attn.q_proj": 2.0**9, "layers.0.self_attn.k_proj": 2.0**9}, "q.k: not changed by the scale"),
        ({"layers.0.self_attn.v_proj": 2.0**19, "layers.0.self_attn.o_proj": 2.0**-19}, "by the weights alone"),
    ],
)
def test_why_there_is_no_rescale(factors: dict[str, float], reason: str, tmp_path: Path) -> None:
    found, lines = advised(grown(tmp_path, factors))
    assert reason in str(found["no_rescale"]) and "rescale" not in found
    assert any("no rescale by powers of two" in line for line in lines)


def test_engines_that_the_advised_dtype_does_not_save_are_named(tmp_path: Path) -> None:
    """fp16 sums inside linears stay fp16 sums when the model is served in bf16."""
    question = OverflowQuestion(engines=("transformers", "vllm", "llama.cpp-cublas"), lengths=(16,))
    sick = grown(tmp_path, {"mlp.down_proj": 2.0**19})
    found, lines = advised(sick, question)
    left = {str(one.measured["dtype"]): one.bound["largest"] for one in overflow(str(sick), question).findings}
    assert left == {"fp16": 65504.0, "bf16": 65504.0}
    assert (found["dtype"], found["not_in"]) == ("bf16", ["llama.cpp-cublas"])
    assert any(line.endswith("but in llama.cpp-cublas") for line in lines)


def test_no_dtype_is_recommended_that_was_not_run(tmp_path: Path) -> None:
    sick = grown(tmp_path, {"mlp.down_proj": 2.0**19})
    found, lines = advised(sick, OverflowQuestion(dtypes=("fp16",), engines=("transformers",), lengths=(16,)))
    assert found["dtype"] is None
    assert any("no dtype that was run" in line for line in lines)
