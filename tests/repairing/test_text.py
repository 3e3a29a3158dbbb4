"""What `degarble fix` tells a person: what is wrong, why it stays, and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.registry import Level
from degarble.repairing.fix import fix
from degarble.repairing.text import render
from degarble.target import open_target
from tests.conftest import unpacked_golden

HEADER = Settings(level=Level.HEADER)
SHARD = "model.safetensors"
DOWN = "model.layers.0.mlp.down_proj"


@pytest.fixture
def shown(tmp_path: Path) -> Callable[..., str]:
    """The text of a plan for a golden checkpoint with a change."""

    def show(golden: str, change: Callable[[Workspace], None], **options: object) -> str:
        workspace = Workspace(open_target(unpacked_golden() / golden))
        change(workspace)
        workspace.save(tmp_path / "sick")
        return render(fix(tmp_path / "sick", settings=HEADER, **options))  # type: ignore[arg-type]

    return show


def test_a_lost_scale_is_named_and_not_the_codes_beside_it(shown: Callable[..., str]) -> None:
    text = shown("gptqmodel-gptq-sym-g128", lambda work: work.drop(f"{DOWN}.scales"))
    assert f"{DOWN}.scales" in text.partition("not repaired")[0]
    assert f"fetch tensor {DOWN}.scales of" in text and f"fetch tensor {DOWN}.qweight" not in text
    assert "next: a healthy copy" in text and "no step is possible" in text


def test_a_reference_of_another_export_is_told_from_the_right_one(shown: Callable[..., str]) -> None:
    other = unpacked_golden() / "gptqmodel-awq-gemm-g128"
    text = shown("gptqmodel-gptq-sym-g128", lambda work: work.drop(f"{DOWN}.scales"), reference=other)
    assert "the reference is not the same export" in text
    assert f"fetch tensor {DOWN}.scales of" in text and "next: a healthy copy of the same export" in text


def test_lost_codes_are_named_and_not_the_scales_beside_them(shown: Callable[..., str]) -> None:
    text = shown("gptqmodel-gptq-sym-g128", lambda work: work.drop(f"{DOWN}.qweight"))
    assert f"fetch tensor {DOWN}.qweight of" in text and f"fetch tensor {DOWN}.scales" not in text


def test_a_lost_key_is_fetched_with_its_file(shown: Callable[..., str]) -> None:
    def lose(work: Workspace) -> None:
        (work.json("config.json").get("rope_parameters") or work.json("config.json")).pop("rope_theta")

    text = shown("base-bf16", lose)
    assert "fetch config.json (for rope_parameters.rope_theta) of" in text


def test_a_cut_file_is_fetched_whole(shown: Callable[..., str]) -> None:
    text = shown("base-bf16", lambda work: work.truncate(SHARD, work.base.files()[SHARD] - 100))
    assert f"fetch {SHARD} of" in text and "fetch tensor" not in text


def _misnamed(work: Workspace) -> None:
    work.rename(f"{DOWN}.weight", f"{DOWN}ection.weight")


def test_a_judgement_is_offered(shown: Callable[..., str]) -> None:
    text = shown("base-bf16", _misnamed)
    assert "no step is safe" in text and "needs --unsafe" in text and "next: --plan --unsafe" in text
    assert f"{DOWN}ection.weight, and" in text  # the finding itself


def test_a_plan_says_how_to_carry_it_out(shown: Callable[..., str]) -> None:
    text = shown("base-bf16", _misnamed, unsafe=True)
    assert f"{SHARD}: {DOWN}ection.weight: renamed to {DOWN}.weight" in text
    assert "next: the same command with --out DIR in place of --plan" in text and "stays" not in text


def test_names_cannot_move_the_cursor(shown: Callable[..., str]) -> None:
    name = "model.layers.0.mlp.x\x1b[2Jy\u202e.weight"

    def change(work: Workspace) -> None:
        info = Evidence(work.base, HEADER).get("tensors")["model.norm.weight"]
        work.add(SHARD, name, Evidence(work.base, HEADER).get("reader").read(info))

    text = shown("base-bf16", change)
    assert "\\x1b[2Jy\\u202e" in text
    assert all(char.isprintable() or char == "\n" for char in text)
