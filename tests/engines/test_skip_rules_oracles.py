"""Our readings against the real functions of transformers and compressed-tensors, where they are installed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from degarble.engines.skip_rules import compile_rule, unusable_entries

PARTS = st.sampled_from(
    ["model", "layers", "1", "10", "mlp", "gate", "gate_proj", "experts", "lm_head", "self_attn", "fc1"]
)
NAMES = st.lists(PARTS, min_size=1, max_size=6).map(".".join)
ENTRIES = st.one_of(
    NAMES,
    st.builds("{}.".format, NAMES),
    st.builds("{}.*".format, NAMES),
    st.builds("{}$".format, NAMES),
    st.builds("re:{}".format, NAMES),
    st.builds("re:.*{}$".format, NAMES),
    st.builds(r"re:.*\.({}|x)\b".format, NAMES),
    st.sampled_from(["", "layers.*.mlp", r"model.layers.\d+.mlp", "gate|fc1", r"(?!model)layers", "[lm]", r"fc\d"]),
)
RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(scope="module")
def should_convert_module() -> Callable[[str, list[str]], bool]:
    """The function of transformers, from the release that reads with a boundary."""
    module: Any = pytest.importorskip("transformers.quantizers.quantizers_utils")
    version = importlib.import_module("transformers").__version__
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < (5, 21):
        pytest.skip(f"transformers {version} reads lists in the older way")
    function: Callable[[str, list[str]], bool] = module.should_convert_module
    return function


@pytest.fixture(scope="module")
def match_name() -> Callable[[str, str], bool]:
    """The function of compressed-tensors."""
    module: Any = pytest.importorskip("compressed_tensors.utils.match")
    function: Callable[[str, str], bool] = module.match_name
    return function


@pytest.mark.engine
@RELAXED
@given(entries=st.lists(ENTRIES, max_size=6), names=st.lists(NAMES, max_size=6))
def test_transformers_reads_as_we_say(
    should_convert_module: Callable[[str, list[str]], bool], entries: list[str], names: list[str]
) -> None:
    """prefix-boundary-or-suffix against the installed transformers."""
    assert not unusable_entries("prefix-boundary-or-suffix", entries)
    skipped = compile_rule("prefix-boundary-or-suffix", entries)
    for name in names:
        assert skipped(name) == (not should_convert_module(name, entries)), (name, entries)


@pytest.mark.engine
@RELAXED
@given(entries=st.lists(ENTRIES, max_size=6), names=st.lists(NAMES, max_size=6))
def test_compressed_tensors_reads_as_we_say(
    match_name: Callable[[str, str], bool], entries: list[str], names: list[str]
) -> None:
    """exact-or-regex against the installed compressed-tensors."""
    skipped = compile_rule("exact-or-regex", entries)
    for name in names:
        assert skipped(name) == any(match_name(name, entry) for entry in entries), (name, entries)
