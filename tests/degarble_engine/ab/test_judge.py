"""lm-eval's own task format on both sides; the task and its data lie in a folder, so nothing is fetched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from degarble.errors import UsageError
from degarble_engine.ab.judge import judged, read_judge
from degarble_engine.ab.question import ab
from tests.conftest import NOT_HERE
from tests.degarble_engine.ab.test_question import asked, damaged, healthy
from tests.degarble_engine.ab.test_question import rows as rows_of

TASK = """task: tiny_choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


def test_the_option() -> None:
    assert read_judge("lm-eval:arc_easy, gsm8k") == ["arc_easy", "gsm8k"]
    for wrong in ("arc_easy", "lm-eval:", "lm-eval: ,"):
        with pytest.raises(UsageError, match="expected lm-eval:TASK"):
            read_judge(wrong)


@pytest.mark.slow
def test_a_task_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval", reason=f"{NOT_HERE}lm-eval")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    data = tmp_path / "data.jsonl"
    rows = [
        {"question": f"{a} + {b} =", "choices": [f" {a + b}", " no"], "label": 0} for a in range(4) for b in range(3)
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "tiny.yaml").write_text(TASK.format(data=data))
    question = asked(metrics=("ppl",), judge="lm-eval:tiny_choice", judge_tasks=str(tmp_path / "tasks"))
    found = rows_of(ab(str(healthy()), str(damaged()), question))
    assert found["tiny_choice/acc"]["prompts"] == 12 and 0 <= found["tiny_choice/acc"]["a"] <= 1
    with pytest.raises(UsageError, match="no task 'nonsense'"):
        judged(["nonsense"], str(tmp_path / "tasks"), [str(healthy())] * 2, 0)
