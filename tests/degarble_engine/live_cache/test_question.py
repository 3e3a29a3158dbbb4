"""What is wrong with a live cache is named: each mismatch is planted in a healthy request's pages, in two kinds of cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from degarble.report.interface import Report
from degarble_engine.live_cache.question import judge_opened
from degarble_engine.live_cache.recomputed import recomputed
from degarble_engine.live_cache.request_file import read_request
from tests.degarble_engine.live_cache.live_requests import BLOCK_SIZE, live_file, walked

Pages = dict[str, Tensor]
Plant = Callable[[Pages], None]
FAMILIES = ("llama", "qwen3-moe", "deepseek-v3")


def planted(family: str, plant: Plant, tmp_path: Path, length: int = 43) -> Report:
    with safe_open(live_file(family, length), "pt") as file:
        metadata = file.metadata()
        pages = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    plant(pages)
    path = tmp_path / "planted.safetensors"
    save_file({name: values.contiguous() for name, values in pages.items()}, path, metadata)
    return judge_opened(read_request(str(path)), walked(family))


def causes(report: Report) -> list[tuple[str, object]]:
    return [(cause.finding.rule, cause.finding.measured["pattern"]) for cause in report.causes]


def named(pages: Pages, part: str) -> list[str]:
    return [name for name in pages if name.startswith("layers.") and name.endswith(part)]


def parts_of(pages: Pages) -> list[str]:
    return named(pages, ".k") + named(pages, ".v") + named(pages, ".latent")


@pytest.mark.parametrize("family", ["llama", "deepseek-v3", pytest.param("qwen3-moe", marks=pytest.mark.slow)])
def test_a_healthy_request_is_silent(family: str, tmp_path: Path) -> None:
    report = planted(family, lambda pages: None, tmp_path)
    assert report.status == "ok" and not report.findings
    layers = report.comparison["layers"] if report.comparison is not None else None
    assert isinstance(layers, list) and layers
    assert all(one["max_relative_l2"] <= one["bound"] / 2 for one in layers)


@pytest.mark.parametrize("family", ["llama"])
def test_a_cache_in_half_precision_is_silent(family: str, tmp_path: Path) -> None:
    def round_it(pages: Pages) -> None:
        for name in parts_of(pages):
            pages[name] = pages[name].bfloat16()

    assert planted(family, round_it, tmp_path).status == "ok"


def token_rows(pages: Pages, name: str) -> Tensor:
    """[tokens, …] in order, a copy: block_ids is sorted, block_table is not."""
    place = {int(block): page for page, block in enumerate(pages["block_ids"])}
    order = [place[int(block)] for block in pages["block_table"]]
    return pages[name][order].flatten(0, 1)


def put(pages: Pages, name: str, rows: Tensor) -> None:
    place = {int(block): page for page, block in enumerate(pages["block_ids"])}
    order = [place[int(block)] for block in pages["block_table"]]
    pages[name][order] = rows.unflatten(0, (-1, BLOCK_SIZE))


def shift(pages: Pages) -> None:
    for name in parts_of(pages):
        rows = token_rows(pages, name)
        put(pages, name, torch.cat([rows[:1], rows[:-1]]))


def zero_behind(pages: Pages) -> None:
    for name in parts_of(pages):
        rows = token_rows(pages, name)
        rows[2 * BLOCK_SIZE :] = 0
        put(pages, name, rows)


def one_not_finite(pages: Pages) -> None:
    name = parts_of(pages)[0]
    rows = token_rows(pages, name)
    rows[5] = torch.nan
    put(pages, name, rows)


def exchange_blocks(pages: Pages) -> None:
    table = pages["block_table"].tolist()
    table[1], table[3] = table[3], table[1]
    pages["block_table"] = torch.tensor(table)


def scale(pages: Pages) -> None:
    for name in parts_of(pages)[:2]:
        pages[name] *= 0.25


def exchange_layers(pages: Pages) -> None:
    for part in (".k", ".v", ".latent"):
        names = named(pages, part)
        if names:
            pages[names[0]], pages[names[1]] = pages[names[1]], pages[names[0]]


ANY_CACHE = [
    (shift, "KVC602", "tokens-moved"),
    (zero_behind, "KVC606", "zeros"),
    (one_not_finite, "KVC606", "not-finite"),
    (exchange_blocks, "KVC602", "tokens-moved"),
    (scale, "KVC628", "scaled"),
    (exchange_layers, "KVC618", "another-layer"),
]


@pytest.mark.parametrize("family", ["llama", *(pytest.param(one, marks=pytest.mark.slow) for one in FAMILIES[1:])])
@pytest.mark.parametrize(("plant", "rule", "pattern"), ANY_CACHE, ids=lambda one: getattr(one, "__name__", str(one)))
def test_a_planted_mismatch_is_named(family: str, plant: Plant, rule: str, pattern: str, tmp_path: Path) -> None:
    found = causes(planted(family, plant, tmp_path))
    assert set(found) == {(rule, pattern)}


def exchange_k_and_v(pages: Pages) -> None:
    for key in named(pages, ".k"):
        value = key.replace(".k", ".v")
        pages[key], pages[value] = pages[value], pages[key]


def exchange_axes(pages: Pages) -> None:
    """Tokens and heads: what a kernel writes that takes [heads, tokens] for [tokens, heads]."""
    for name in parts_of(pages):
        pages[name] = pages[name].transpose(1, 2).contiguous().reshape(pages[name].shape)


def exchange_heads(pages: Pages) -> None:
    for name in named(pages, ".v"):
        pages[name] = pages[name].flip(2)


PLAIN_CACHE = [
    (exchange_k_and_v, "KVC601", "k-and-v-exchanged"),
    (exchange_axes, "KVC601", "laid-out-as-HND"),
    (exchange_heads, "KVC614", "heads-permuted"),
]


@pytest.mark.parametrize(("plant", "rule", "pattern"), PLAIN_CACHE, ids=lambda one: getattr(one, "__name__", str(one)))
def test_a_mismatch_of_keys_and_values_is_named(plant: Plant, rule: str, pattern: str, tmp_path: Path) -> None:
    assert set(causes(planted("llama", plant, tmp_path))) == {(rule, pattern)}


@pytest.mark.parametrize("family", ["deepseek-v3", pytest.param("llama", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["one further", "none", "neighbours"])
def test_only_rotary_lanes(family: str, kind: str, tmp_path: Path) -> None:
    request = read_request(str(live_file(family)))
    layers = list(recomputed(walked(family), request.token_ids, request.dtype))

    def turn(pages: Pages) -> None:
        for one in layers:
            rotary, part = one.rotary, "latent" if "latent" in one.exact else "k"
            assert rotary is not None
            exact = one.exact[part]
            at = torch.arange(exact.shape[0])
            wrong = {"one further": rotary.turned(exact, torch.ones_like(at)),
                     "none": rotary.turned(exact, -at),
                     "neighbours": rotary.wrongly_paired(exact, at)}[kind]  # fmt: skip
            name = f"layers.{one.layer}.{part}"
            rows = token_rows(pages, name)
            rows[: len(exact)] = wrong.reshape(len(exact), *rows.shape[1:])
            put(pages, name, rows)

    wanted = {"one further": "rotated-by-other-position", "none": "unrotated",
              "neighbours": "rotary-lanes-paired-otherwise"}[kind]  # fmt: skip
    assert set(causes(planted(family, turn, tmp_path))) == {("KVC607", wanted)}


@pytest.mark.parametrize("family", ["deepseek-v3", pytest.param("llama", marks=pytest.mark.slow)])
def test_foreign_tokens_are_read_back(family: str, tmp_path: Path) -> None:
    """Blocks of another request under this one's table: the ids that were computed there are named."""
    other = read_request(str(live_file(family, 50, 6)))

    def take_theirs(pages: Pages) -> None:
        for name in parts_of(pages):
            rows = token_rows(pages, name)
            layer, part = name.split(".")[1:]
            theirs = other.rows(int(layer))[part]
            rows[BLOCK_SIZE : 2 * BLOCK_SIZE] = theirs[BLOCK_SIZE : 2 * BLOCK_SIZE].reshape(BLOCK_SIZE, *rows.shape[1:])
            put(pages, name, rows)

    report = planted(family, take_theirs, tmp_path)
    assert set(causes(report)) == {("KVC604", "foreign-tokens")}
    finding = report.causes[0].finding
    assert finding.measured["foreign_token_ids"] == str(list(other.token_ids[BLOCK_SIZE : 2 * BLOCK_SIZE]))
    assert finding.location.position == BLOCK_SIZE


def test_noise_that_nothing_explains_is_said_to_be_that(tmp_path: Path) -> None:
    def disturb(pages: Pages) -> None:
        torch.manual_seed(0)
        pages["layers.1.v"] = torch.randn_like(pages["layers.1.v"])

    report = planted("llama", disturb, tmp_path)
    assert causes(report) == [("KVC606", "unexplained")] and report.causes[0].finding.confidence == "likely"


def test_positions_that_the_engine_states_are_judged(tmp_path: Path) -> None:
    def late(pages: Pages) -> None:
        pages["position_ids"][7:] += 1

    report = planted("llama", late, tmp_path)
    assert [cause.finding.rule for cause in report.causes] == ["KVC607"]
    assert report.causes[0].finding.location.position == 7


def test_layers_that_were_not_dumped_leave_the_report_partial(tmp_path: Path) -> None:
    def drop(pages: Pages) -> None:
        for name in [one for one in pages if one.startswith("layers.0.")]:
            del pages[name]

    assert planted("llama", drop, tmp_path).status == "partial"


def test_scales_are_applied_before_rows_are_compared() -> None:
    request = read_request(str(live_file("llama")))
    doubled = replace(request, scales={(0, "k"): torch.tensor([2.0])})
    assert torch.equal(doubled.rows(0)["k"], 2 * request.rows(0)["k"])
