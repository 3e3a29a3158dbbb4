"""Two sides of a tiny model: the same twice, a damaged one, and what cannot be measured."""

from __future__ import annotations

import json
import math
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from degarble.errors import UsageError
from degarble.report.interface import Status
from degarble_engine.ab.metric import CannotMeasure, answered
from degarble_engine.ab.prompt import Prompt
from degarble_engine.ab.question import Question, ab
from degarble_engine.cli import ab as command
from tests.conftest import NOT_HERE, unpacked_golden

TEXTS = (
    "The quick brown fox jumps over the lazy dog near the river.", "def add(a, b):\n    return a + b",
    "Numbers: 1 2 3 4 5 6 7 8 9 10", "Paris is the capital of France, and Rome of Italy.", "日本語のテキストです。",
    "A list of things: apples, pears, plums, cherries.", "import numpy as np\nprint(np.zeros(3))", "Once upon a time",
)  # fmt: skip
PROMPTS = tuple(Prompt(number=at, text=text, references=(text[::-1],)) for at, text in enumerate(TEXTS, 1))


def healthy() -> Path:
    return unpacked_golden() / "base-bf16"


@cache
def damaged() -> Path:
    """The same model with one noisy layer."""
    import tempfile

    from safetensors.torch import load_file, save_file

    folder = Path(tempfile.mkdtemp(prefix="degarble-ab.")) / "damaged"
    shutil.copytree(healthy(), folder)
    file = next(folder.glob("*.safetensors"))
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("layers.0.mlp.down_proj.weight"))
    torch.manual_seed(0)
    tensors[name] = torch.randn_like(tensors[name].float()).to(tensors[name].dtype)
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def asked(**options: Any) -> Question:
    return Question(**{"prompts": PROMPTS, "max_tokens": 4, "max_length": 64, "draws": 400, **options})


def rows(report: Any) -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in report.comparison["metrics"]}


@cache
def against_itself() -> Any:
    return ab(str(healthy()), str(healthy()), asked(reference=str(healthy()), metrics=("kl", "ppl", "top1", "exact")))


@cache
def against_damage() -> Any:
    return ab(str(healthy()), str(damaged()), asked(reference=str(healthy()), metrics=("kl", "ppl", "top1")))


def test_a_model_is_identical_to_itself() -> None:
    report = against_itself()
    assert report.status is Status.OK and report.comparison["verdict"] == "identical"
    assert rows(report)["kl"]["a"] == pytest.approx(0, abs=1e-5) and rows(report)["top1"]["a"] == 1
    assert set(report.comparison["cost"]) == {"a", "b"}
    assert all(cost["tokens"] and cost["weight_bytes"] for cost in report.comparison["cost"].values())


def test_a_damaged_side_is_worse() -> None:
    found = rows(against_damage())
    assert against_damage().comparison["verdict"] == "worse"
    assert found["kl"]["verdict"] == "worse" and found["kl"]["b"] > 0.01 and found["kl"]["low"] > 0
    assert found["top1"]["difference"] < 0


def test_perplexity_is_that_of_transformers() -> None:
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    tokenizer = Tokenizer.from_file(str(healthy() / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(healthy(), dtype=torch.float32).eval()
    nats, tokens = 0.0, 0
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer.encode(f"{prompt.text} {prompt.references[0]}").ids[:64]])
        with torch.no_grad():
            logprobs = model(ids).logits[0].log_softmax(-1)
        nats -= float(logprobs[:-1].gather(1, ids[0, 1:, None]).sum())
        tokens += ids.shape[1] - 1
    assert rows(against_itself())["ppl"]["a"] == pytest.approx(math.exp(nats / tokens), rel=1e-4)


def test_what_cannot_be_measured_is_said() -> None:
    report = ab(str(healthy()), str(healthy()), asked(metrics=("ppl", "pass-rate")))
    table: Any = report.comparison
    assert report.status is Status.PARTIAL and "pattern" in table["left_out"]["pass-rate"]
    with pytest.raises(UsageError, match="needs --reference"):
        asked(metrics=("kl",))
    with pytest.raises(UsageError, match="kl, ppl"):
        asked(metrics=("accuracy",))


class Said:
    """Answers of one side."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts


def test_answers_are_judged() -> None:
    prompts = [
        Prompt(number=1, text="a", references=("yes",), pattern=r"\d+"),
        Prompt(number=2, text="b", references=("no", "never"), must_be_json=True),
    ]
    sides: Any = [Said("yes \n", '{"a": 1}'), Said("12", "never")]
    exact, passing = answered("exact", prompts, sides), answered("pass-rate", prompts, sides)
    assert [sums[:, 0].tolist() for sums in exact.sums] == [[1, 0], [0, 1]]
    assert [sums[:, 0].tolist() for sums in passing.sums] == [[0, 1], [1, 0]]
    with pytest.raises(CannotMeasure, match="reference"):
        answered("bleu", [Prompt(number=1, text="a")], sides)


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_corpus_scores_are_those_of_sacrebleu(name: str) -> None:
    sacrebleu = pytest.importorskip("sacrebleu", reason=f"{NOT_HERE}sacrebleu")
    prompts = [
        Prompt(number=1, text="a", references=("the cat sat on the mat today",)),
        Prompt(number=2, text="b", references=("a dog barks at night", "dogs bark at night")),
    ]
    texts = ("the cat sat on a mat", "dogs bark at the night")
    metric = answered(name, prompts, [Said(*texts), Said(*texts)])  # type: ignore[list-item]
    columns = [[prompts[0].references[0], prompts[1].references[0]], [None, prompts[1].references[1]]]
    oracle = (sacrebleu.BLEU() if name == "bleu" else sacrebleu.CHRF()).corpus_score(list(texts), columns)
    assert float(metric.statistic(metric.sums[0].sum(0)[None])[0]) == pytest.approx(oracle.score)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from degarble.cli import app

    monkeypatch.setattr(app, "joined_commands", lambda: [command])
    monkeypatch.setattr("degarble_engine.ab.question.ab", lambda *_: against_damage())
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(text.replace("\n", " ") for text in TEXTS))
    arguments = ["ab", str(healthy()), str(damaged()), "--prompts", str(file), "-q"]
    assert app.run([*arguments, "--fail-on", "worse"]) == 1
    shown = capsys.readouterr().out
    assert "B is worse" in shown and max(map(len, shown.splitlines())) <= 100 + len(str(damaged()))
    assert app.run([*arguments, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"]["verdict"] == "worse"
