"""The shipped list, what it must not match, and how a bad list is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.engines.issue_conditions import FACTS, holds, problem_of
from degarble.engines.known_issues import KnownIssues, load_known_issues

SHIPPED = load_known_issues()

HEALTHY: dict[str, dict[str, Any]] = {
    "Qwen2.5-7B GPTQ": {
        "formats": {"gptq"},
        "num_bits": 4,
        "group_size": 128,
        "symmetric": True,
        "desc_act": False,
        "checkpoint_format": "gptq",
        "model_type": "qwen2",
        "moe": False,
        "attention_bias": True,
        "dtype": "bfloat16",
        "lm_head_quantized": False,
        "in_features": {3584, 18944},
        "out_features": {512, 3584, 18944},
        "kv_cache_quantized": False,
        "tp": 1,
    },
    "Llama 3.1 8B AWQ": {
        "formats": {"awq"},
        "num_bits": 4,
        "group_size": 128,
        "symmetric": False,
        "model_type": "llama",
        "moe": False,
        "attention_bias": False,
        "dtype": "float16",
        "skip_entries": set(),
        "out_features": {1024, 4096, 14336},
        "tp": 2,
        "router_quantized": False,
        "zero_points_at_zero": False,
        "rope_type": "llama3",
    },
    "DeepSeek-V3": {
        "formats": {"fp8-block"},
        "num_bits": 8,
        "model_type": "deepseek_v3",
        "moe": True,
        "mtp": True,
        "mtp_quantized": True,
        "dtype": "bfloat16",
        "scale_dtype": "float32",
        "scales_power_of_two": False,
        "fused_on_disk": False,
        "tp": 8,
        "skip_entries": set(),
        "relative_skip_entries": False,
        "kv_cache_quantized": False,
    },
    "Qwen3-30B-A3B NVFP4": {
        "formats": {"nvfp4"},
        "num_bits": 4,
        "model_type": "qwen3_moe",
        "moe": True,
        "uneven_experts": False,
        "fused_scales_differ": False,
        "weight_only": False,
        "lm_head_quantized": False,
        "dtype": "bfloat16",
        "skip_entries": {"lm_head", "model.layers.0.mlp.gate"},
        "expert_projections": {"gate_proj", "up_proj", "down_proj"},
    },
    "Mixtral Q4_K_M": {
        "formats": {"gguf", "gguf:Q4_K", "gguf:Q6_K"},
        "model_type": "llama",
        "moe": True,
        "mixed_expert_types": False,
        "tokenizer_pre": "default-not",
        "rope_type": "none",
        "dtype": "float16",
    },
    "bitsandbytes NF4": {
        "formats": {"bitsandbytes"},
        "model_type": "llama",
        "lm_head_quantized": False,
        "mixed_precision": False,
    },
}


def test_the_list_is_long_enough_and_dated() -> None:
    """The shipped list has its date and covers the main engines."""
    assert len(SHIPPED.issue) >= 30
    assert SHIPPED.date == "2026-11-30"
    assert {"vllm", "sglang", "transformers", "llama.cpp"} <= {issue.engine for issue in SHIPPED.issue}


@pytest.mark.parametrize("model", HEALTHY)
def test_healthy_checkpoints_match_nothing(model: str) -> None:
    """The list must not cry wolf over ordinary models."""
    assert [issue.id for issue in SHIPPED.matching(HEALTHY[model])] == []


def test_nothing_known_matches_nothing() -> None:
    """An absent fact never meets a condition."""
    assert SHIPPED.matching({}) == []
    assert SHIPPED.matching(dict.fromkeys(FACTS)) == []


@pytest.mark.parametrize("issue", SHIPPED.issue, ids=lambda issue: issue.id)
def test_every_issue_can_be_met_and_needs_each_of_its_conditions(issue: Any) -> None:
    """Each row is reachable, and none of its conditions is idle."""
    facts = {fact: _fact_for(wanted) for fact, wanted in issue.when.items()}
    version = None if issue.is_specific else "0.44" if issue.engine == "modelopt" else issue.versions[2:]
    assert issue in SHIPPED.matching(facts, issue.engine, version)
    assert issue not in SHIPPED.matching(facts, "another engine", version)
    for fact in facts:
        assert issue not in SHIPPED.matching(
            {key: value for key, value in facts.items() if key != fact}, issue.engine, version
        )
    if issue.fixed_in:
        assert issue not in SHIPPED.matching(facts, issue.engine, issue.fixed_in)


def _fact_for(wanted: Any) -> Any:
    if isinstance(wanted, list):
        return {wanted[0]}
    if isinstance(wanted, dict):
        ((operator, operand),) = wanted.items()
        return (
            {f"{operand}x" if operator == "prefix" else f"x{operand}"}
            if isinstance(operand, str)
            else operand + (operator == "not_multiple_of")
        )
    return wanted


def test_versions_decide_and_the_unknown_version_stays() -> None:
    """Inside, after and before the range, and without a version."""
    facts = {"formats": {"fp8-block"}, "moe": False, "skip_entries": {"model.layers.0.mlp.gate"}}

    def ids(engine: str, version: str) -> set[str]:
        return {issue.id for issue in SHIPPED.matching(facts, engine, version)}

    assert "transformers-skip-prefix" in ids("transformers", "5.20.0")
    assert "transformers-skip-prefix" not in ids("transformers", "5.21.0")
    assert "transformers-skip-prefix" not in ids("transformers", "4.57.1")
    (issue,) = (issue for issue in SHIPPED.matching(facts, "transformers") if issue.id == "transformers-skip-prefix")
    assert issue.standing == "fixed in 5.21.0"
    assert "transformers-skip-prefix" in {issue.id for issue in SHIPPED.matching(facts, None, "5.24.0")}, (
        "a version needs its engine"
    )


def test_an_issue_without_conditions_needs_engine_and_version() -> None:
    """Such a row would otherwise match every file of its format."""
    facts = {"formats": {"nvfp4"}}
    assert "modelopt-nan-block-scale" not in {issue.id for issue in SHIPPED.matching(facts, "modelopt")}
    assert "modelopt-nan-block-scale" in {issue.id for issue in SHIPPED.matching(facts, "modelopt", "0.43.0")}
    assert "modelopt-nan-block-scale" not in {issue.id for issue in SHIPPED.matching(facts, "modelopt", "nightly")}


GOOD = """schema = 1
date = "2026-11-30"
[[issue]]
id = "a"
engine = "vllm"
when = { desc_act = true }
rule = "ENG702"
title = "t"
consequence = "c"
way_out = "w"
link = "https://github.com/a/b/issues/1"
evidence = "reporter"
"""


def _load(tmp_path: Path, text: str) -> KnownIssues:
    path = tmp_path / "issues.toml"
    path.write_text(text, encoding="utf-8")
    return load_known_issues(path)


def test_own_list(tmp_path: Path) -> None:
    """A list of the user is read like ours."""
    issues = _load(tmp_path, GOOD)
    assert [issue.id for issue in issues.matching({"desc_act": True})] == ["a"]
    assert issues.issue[0].standing == "not known to be fixed"


@pytest.mark.parametrize(
    ("old", "new", "place", "found"),
    [
        ("schema = 1", "schema = 2", "schema", "2"),
        ("2026-11-30", "yesterday", "date", "yesterday"),
        ('title = "t"', "title = 1", "$.issue[0].title", "`int`"),
        ('title = "t"', 'title = " "', "issue[0].title", "nothing"),
        ('title = "t"', 'titel = "t"', "$.issue[0]", "titel"),
        ('"reporter"', '"hearsay"', "$.issue[0].evidence", "hearsay"),
        ("issues/1", "wiki/1", "issue[0].link", "wiki"),
        ("ENG702", "eng702", "issue[0].rule", "eng702"),
        ("desc_act = true", "desc_akt = true", "issue[0].when.desc_akt", "desc_akt"),
        ("desc_act = true", 'desc_act = "yes"', "issue[0].when.desc_act", "'yes'"),
        ("desc_act = true", "desc_act = []", "issue[0].when.desc_act", ""),
        ("desc_act = true", "tp = { min = true }", "issue[0].when.tp", "True"),
        ("desc_act = true", "tp = { prefix = 'a' }", "issue[0].when.tp", "'a'"),
        ("desc_act = true", "tp = {}", "issue[0].when.tp", "{}"),
        ("desc_act = true", "in_features = { not_multiple_of = 0 }", "issue[0].when.in_features", "0"),
        ("desc_act = true", 'formats = ["gptq"]', "issue[0].when", "gptq"),
        ('id = "a"', 'id = "a"\nversions = "5"', "issue[0].versions", "'5'"),
        ('id = "a"', 'id = "a"\nfixed_in = "soon"', "issue[0].fixed_in", "soon"),
        ("[[issue]]", "[[issue", "file", "line"),
    ],
)
def test_bad_lists_are_refused_by_key(tmp_path: Path, old: str, new: str, place: str, found: str) -> None:
    """Every slip is named by file and key."""
    with pytest.raises(ValueError) as caught:
        _load(tmp_path, GOOD.replace(old, new))
    error: Any = caught.value
    assert error.file.endswith("issues.toml")
    assert error.place == place
    assert found in error.found + error.expected


def test_ids_are_used_once(tmp_path: Path) -> None:
    """Two rows with one id could not be told apart."""
    with pytest.raises(ValueError, match="an id used once"):
        _load(tmp_path, GOOD + GOOD[GOOD.index("[[issue]]") :])


def test_not_utf8_is_refused(tmp_path: Path) -> None:
    """Bytes that are no text are a bad table, not a crash."""
    path = tmp_path / "issues.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="TOML in UTF-8"):
        load_known_issues(path)


@pytest.mark.parametrize(
    ("wanted", "fact", "met"),
    [
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (4, {2, 4}, True),
        ([2, 3], 4, False),
        ({"min": 2}, 2, True),
        ({"min": 2, "max": 3}, 4, False),
        ({"min": 0}, True, False),
        ({"not_multiple_of": 128}, {256, 512}, False),
        ({"not_multiple_of": 128}, {256, 520}, True),
        ({"suffix": "gate"}, {"a", "mlp.gate"}, True),
        ({"prefix": "gate"}, "mlp.gate", False),
        ("x", None, False),
        ("x", set(), False),
    ],
)
def test_conditions(wanted: Any, fact: object, met: bool) -> None:
    """Values, choices, operators and sets, with the traps of bool and int."""
    assert holds(wanted, fact) is met


@given(
    st.sampled_from(sorted(FACTS)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["min", "suffix", "other"]), inner, max_size=2)
        ),
        max_leaves=4,
    ),
)
def test_any_condition_is_understood_or_refused(fact: str, wanted: Any) -> None:
    """No shape of a condition raises."""
    if problem_of(fact, wanted) is None:
        holds(wanted, 1)
        holds(wanted, "text")
