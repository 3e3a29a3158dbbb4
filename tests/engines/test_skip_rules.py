"""Readings of skip lists: cases from the field, slow twins of every rule, hostile entries, speed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.engines.pattern_set import MAX_ENTRY_CHARS, UnusableEntry
from degarble.engines.skip_matchers import RULES
from degarble.engines.skip_rules import (
    compile_rule,
    entry_matches,
    fused_groups,
    fused_partly_skipped,
    idle_entries,
    readings,
    skipped_names,
    unusable_entries,
)

LAYER = "model.layers.0"
GATES = [f"{LAYER}.mlp.{leaf}" for leaf in ("gate", "gate_proj", "gate_up_proj", "shared_expert_gate")]

PARTS = st.sampled_from(
    [
        "model",
        "layers",
        "0",
        "1",
        "10",
        "mlp",
        "gate",
        "gate_proj",
        "experts",
        "lm_head",
        "language_model",
        "q_a_proj",
        "x",
    ]
)
NAMES = st.lists(PARTS, min_size=1, max_size=6).map(".".join)
ENTRIES = st.one_of(
    NAMES,
    st.builds("{}.".format, NAMES),
    st.builds("{}*".format, NAMES),
    st.builds("*{}".format, NAMES),
    st.builds("re:.*{}$".format, NAMES),
    st.builds(r"re:{}\..*".format, NAMES),
    st.builds("-:.*{}".format, NAMES),
    st.builds("+:.*{}".format, NAMES),
    st.text(alphabet="ab.01_", max_size=4),
    st.sampled_from(["", ".", "model.", r"re:.*\.(gate|experts)\b", "[gm]ate*", "ga?e", r"layers.\d+", "gate|x"]),
)


def _experts_as_one(name: str, entries: Sequence[str], plain: Callable[[str], bool]) -> bool:
    parts = name.split(".")
    if "experts" not in parts:
        return plain(name)
    stack = ".".join(parts[: parts.index("experts") + 1])
    return plain(stack) or any("experts" in entry and stack in entry for entry in entries)


def _both_roots(entries: Sequence[str]) -> list[str]:
    bare = [entry.removeprefix("model.") for entry in entries]
    return [*bare, *(f"model.{entry}" for entry in bare)]


def _sglang(name: str, entries: Sequence[str], strip: bool) -> bool:
    wanted = [(entry.rstrip(".") if strip else entry).split(".") for entry in _both_roots(entries)]

    def plain(path: str) -> bool:
        parts = path.split(".")
        return any(run == parts[at : at + len(run)] for run in wanted for at in range(len(parts)))

    return _experts_as_one(name, _both_roots(entries), plain)


def _first_sign(name: str, entries: Sequence[str]) -> bool:
    for entry in entries:
        if re.match(entry.removeprefix("-:").removeprefix("+:"), name):
            return entry.startswith("-:")
    return False


def _starred(entry: str, text: str) -> bool:
    expression = "".join({".": "[.]", "*": ".*"}.get(sign, sign) for sign in entry)
    return re.fullmatch(expression, text) is not None


def _modelopt_sglang(name: str, entry: str) -> bool:
    forms = [name, name.removeprefix("language_model.")]
    leaf = entry.rpartition(".")[2]
    fused = leaf in {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"} and leaf in name.rpartition(".")[2]
    return fused or any(
        _starred(entry, form) or any(_starred(entry, part) for part in form.split(".")) for form in forms
    )


def _runs_from_start(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[: length + 1]) for length in range(len(parts))}


REFERENCE: dict[str, Callable[[str, Sequence[str]], bool]] = {
    "exact": lambda n, es: n in es,
    "exact-or-experts": lambda n, es: _experts_as_one(n, es, lambda m: m in es),
    "exact-or-regex": lambda n, es: any(re.match(e[3:], n) is not None if e.startswith("re:") else e == n for e in es),
    "substring": lambda n, es: any(e in n for e in es),
    "substring-any-root": lambda n, es: _experts_as_one(
        n, _both_roots(es), lambda m: any(e in m for e in _both_roots(es))
    ),
    "dot-boundary": lambda n, es: _sglang(n, es, True),
    "dot-boundary-strict": lambda n, es: _sglang(n, es, False),
    "prefix-or-suffix": lambda n, es: any(re.match(e, n) is not None or n.endswith(e) for e in es),
    "prefix-boundary-or-suffix": lambda n, es: any(
        re.match(rf"(?:{e})(?:(?![^.\n])|(?<=[.]))", n) is not None or n.endswith(e) for e in es
    ),
    "leaf-or-ancestor": lambda n, es: n.split(".")[-1] in es or any(f"{e}." in n or e == n for e in es),
    "component-or-prefix": lambda n, es: any(e in n.split(".") or e in _runs_from_start(n) for e in es),
    "substring-or-wildcard": lambda n, es: any(e in n or fnmatchcase(n, e) for e in es),
    "wildcard-or-component": lambda n, es: any(_modelopt_sglang(n, e) for e in es),
    "signed-regex": _first_sign,
}


def _is_regex(entry: str) -> bool:
    try:
        re.compile(entry)
    except re.error:
        return False
    return True


def test_every_rule_has_a_slow_twin() -> None:
    """A new rule cannot be added without its oracle."""
    assert REFERENCE.keys() == RULES.keys()


@pytest.mark.parametrize("rule", RULES)
@given(st.lists(ENTRIES, max_size=8), st.lists(NAMES, max_size=8))
def test_rule_equals_its_slow_twin(rule: str, entries: list[str], names: list[str]) -> None:
    """Merged patterns answer as the obvious loop over entries does."""
    unusable = [problem.entry for problem in unusable_entries(rule, entries)]
    entries = [entry for entry in entries if entry not in unusable]
    skipped = compile_rule(rule, entries)
    for name in names:
        assert skipped(name) == REFERENCE[rule](name, entries), name


def test_one_entry_four_answers() -> None:
    """The parity table of research/weights.md: `model.layers.0.mlp.gate` over a dense layer."""
    entry = [f"{LAYER}.mlp.gate"]
    assert [name for name in GATES if compile_rule("exact", entry)(name)] == GATES[:1]
    assert [name for name in GATES if compile_rule("dot-boundary", entry)(name)] == GATES[:1]
    assert [name for name in GATES if compile_rule("prefix-boundary-or-suffix", entry)(name)] == GATES[:1]
    assert [name for name in GATES if compile_rule("substring", entry)(name)] == GATES[:3]
    assert [name for name in GATES if compile_rule("prefix-or-suffix", entry)(name)] == GATES[:3]


def test_short_entries_and_numbers() -> None:
    """Short names, and the layer 1 that is also layer 10."""
    assert not entry_matches("exact", "mlp.gate", GATES)
    assert not entry_matches("exact-or-regex", "mlp.gate", GATES)
    assert entry_matches("exact-or-regex", r"re:.*mlp\.gate$", GATES)
    ten = "model.layers.10.mlp.gate_proj"
    assert compile_rule("substring", ["model.layers.1"])(ten)
    assert compile_rule("prefix-or-suffix", ["model.layers.1"])(ten)
    assert not compile_rule("dot-boundary", ["model.layers.1"])(ten)
    assert not compile_rule("prefix-boundary-or-suffix", ["model.layers.1"])(ten)
    assert compile_rule("prefix-boundary-or-suffix", ["gate"])(GATES[3]), "the suffix needs no boundary"


def test_trailing_dot() -> None:
    """sgl-project/sglang#26287: the dot that made entries match nothing."""
    assert compile_rule("dot-boundary", ["model.layers.34."])("model.layers.34.mlp.down_proj")
    assert not compile_rule("dot-boundary-strict", ["model.layers.34."])("model.layers.34.mlp.down_proj")


def test_experts_follow_the_one_that_is_named() -> None:
    """To vLLM the experts of a layer are one module."""
    skipped = compile_rule("exact-or-experts", [f"{LAYER}.mlp.experts.3.down_proj"])
    assert skipped(f"{LAYER}.mlp.experts.7.up_proj")
    assert not skipped("model.layers.1.mlp.experts.3.down_proj")


def test_vllm_bitsandbytes_wants_whole_components() -> None:
    """vllm-project/vllm#9887: kv_proj is not part of qkv_proj."""
    assert compile_rule("component-or-prefix", ["kv_proj"])("resampler.kv_proj")
    assert not compile_rule("component-or-prefix", ["kv_proj"])("layers.0.attn.qkv_proj")


@pytest.mark.parametrize(
    "entry", [7, None, ["a"], {"a": 1}, "x" * (MAX_ENTRY_CHARS + 1), "re:(", r"re:\q", "re:*", "re:(?P<a"]
)
def test_hostile_entries_are_named(entry: object) -> None:
    """A bad entry is reported and the others still count."""
    (problem,) = unusable_entries("exact-or-regex", ["lm_head", entry])
    assert problem.entry == entry and problem.reason
    found = skipped_names("exact-or-regex", ["lm_head", entry], ["lm_head", "other"])
    assert found.skipped == {"lm_head"} and len(found.unusable) == 1


def test_backtracking_without_end_is_stopped() -> None:
    """The entry that would hang is found by name; the rest of the list is applied."""
    begin = time.monotonic()
    found = skipped_names(
        "exact-or-regex", ["lm_head", r"re:(a|aa)+[xy]", r"re:x\d+y"], ["a" * 300 + "b", "x12y", "lm_head"]
    )
    assert time.monotonic() - begin < 30
    assert found.skipped == {"lm_head", "x12y"}
    assert [problem.entry for problem in found.unusable] == [r"re:(a|aa)+[xy]"]


@pytest.mark.parametrize("rule", RULES)
def test_nested_entries_do_not_exhaust_the_stack(rule: str) -> None:
    """Entries that contain each other would nest 400 groups deep."""
    entries = ["a" * length for length in range(1, MAX_ENTRY_CHARS)]
    assert compile_rule(rule, entries)("b" * 50) is False


@pytest.mark.parametrize("rule", RULES)
def test_large_checkpoint_is_fast(rule: str) -> None:
    """46,000 names and 200 entries; the target is 0.3 s, the bound leaves room for a loaded machine."""
    leaves = ("gate_proj", "up_proj", "down_proj")
    names = [f"model.layers.{n}.mlp.experts.{e}.{leaf}" for n in range(60) for e in range(256) for leaf in leaves]
    entries = [f"model.layers.{n}.{leaf}" for n in range(50) for leaf in ("mlp.gate", "self_attn.q_proj", "norm", "x")]
    begin = time.process_time()
    assert not any(map(compile_rule(rule, entries), names))
    assert time.process_time() - begin < 2.0


def test_idle_entries() -> None:
    """Entries that match no module, under three kinds of rule."""
    entries = ["lm_head", "mlp.gate", "vision.blocks.0.linear", f"{LAYER}.mlp.gate"]
    assert idle_entries("dot-boundary", entries, [*GATES, "lm_head"]) == ("vision.blocks.0.linear",)
    assert idle_entries("exact", entries, []) == tuple(entries)
    assert idle_entries("signed-regex", ["+:.*gate$", "-:.*nothing"], GATES) == ("-:.*nothing",)


@given(st.lists(ENTRIES, max_size=6), st.lists(NAMES, max_size=6))
def test_idle_is_the_opposite_of_matching(entries: list[str], names: list[str]) -> None:
    """The short cut over all entries equals asking for each."""
    idle = idle_entries("dot-boundary", entries, names)
    assert idle == tuple(e for e in dict.fromkeys(entries) if not entry_matches("dot-boundary", e, names))


def test_fused_groups_partly_skipped() -> None:
    """Only the group with a skipped and an unskipped part is reported."""
    attention = tuple(f"{LAYER}.self_attn.{leaf}" for leaf in ("q_proj", "k_proj", "v_proj"))
    mlp = tuple(f"{LAYER}.mlp.{leaf}" for leaf in ("gate_proj", "up_proj"))
    groups = fused_groups([*attention, *mlp, f"{LAYER}.mlp.down_proj", "lm_head"])
    assert set(groups) == {attention, mlp}
    assert fused_partly_skipped("exact", [*attention[:2], *mlp], groups) == ((attention, attention[:2]),)
    assert fused_partly_skipped("exact", attention, groups) == ()


def test_readings_by_engine_and_version() -> None:
    """The version picks the reading where releases differ."""
    assert {row.rule for row in readings("fp8", "transformers", "5.20.0")} == {"prefix-or-suffix"}
    assert {row.rule for row in readings("fp8", "transformers", "5.24.0")} == {"prefix-boundary-or-suffix"}
    assert {row.rule for row in readings("fp8", "sglang", "0.5.12.post1")} == {"dot-boundary-strict"}
    assert {row.engine for row in readings("fp8")} == {"vllm", "sglang", "transformers"}
    assert len(readings("fp8", "sglang", "nightly")) == 3, "an unreadable version rules nothing out"
    assert readings("no such method") == ()


def test_every_reading_is_complete_and_its_defaults_work() -> None:
    """Each row has a source and keys, and its defaults compile."""
    for method in (
        "compressed-tensors",
        "fp8",
        "awq",
        "gptq",
        "modelopt",
        "bitsandbytes",
        "mxfp4",
        "torchao",
        "quanto",
    ):
        rows = readings(method)
        assert rows
        for row in rows:
            assert row.source and row.keys
            compile_rule(row.rule, [*row.default_entries, *row.default_when_absent])


def test_unusable_entry_says_what_and_why() -> None:
    """The message can be shown as it is."""
    with pytest.raises(UnusableEntry, match="skip list entry 're:\\(': not a regular expression"):
        compile_rule("exact-or-regex", ["re:("])
