"""Names of dumps: what each tool writes, and what a hostile one might."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from degarble.errors import DegarbleError, MalformedFile, TargetError
from degarble_engine.dumps import interface
from degarble_engine.dumps.interface import Dump, named
from degarble_engine.dumps.laid_out import dumped_batch, names_of
from degarble_engine.dumps.open import open_dump


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("model.layers.0.mlp.output", ("model.layers.0.mlp", "output", "0")),
        ("model.layers.0.output.1", ("model.layers.0", "output", "1")),
        ("model.layers.0.self_attn.inputs.hidden_states", ("model.layers.0.self_attn", "input", "hidden_states")),
        ("inputs.input_ids", ("", "input", "input_ids")),
        ("model.layers.0.input_layernorm.output.0", ("model.layers.0.input_layernorm", "output", "0")),
        ("model.layers.0.mlp", None),
    ],
)
def test_names_say_module_and_role(name: str, wanted: tuple[str, str, str] | None) -> None:
    assert named(name) == wanted


def sglang(folder: Path, *names: str) -> Dump:
    for name in names:
        torch.save({"value": torch.arange(3), "meta": {}}, folder / f"{name}.pt")
    return open_dump(folder)


def test_sglang_of_two_generations(tmp_path: Path) -> None:
    dump = sglang(
        tmp_path,
        "step=0___rank=1___dump_index=2___name=non_intrusive__model.layers.3.mlp.inputs.0___layer_id=3",
        "forward_pass_id=4___rank=0___name=layer_start__hidden_states___dump_index=1___layer_id=7",
        "step=0___rank=0___dump_index=3___name=my_own_word",
        "step=0___rank=0___dump_index=9___name=input_ids",
        "step=0___rank=0___dump_index=10___name=positions",
    )
    assert dump.kind == "sglang" and len(dump.ignored) == 1
    places = [(one.module, one.role, one.which, one.step, one.rank) for one in dump.activations]
    assert places == [
        ("model.layers.7", "input", "hidden_states", 4, 0), ("model.layers.3.mlp", "input", "0", 0, 1),
        ("", "input", "input_ids", 0, 0), ("", "input", "positions", 0, 0),
    ]  # fmt: skip
    batch = dumped_batch(dump)
    assert batch is not None and batch.ids.tolist() == [[0, 1, 2]]
    assert all(place[0] != "model.layers.7" for place in dump.of_first_step())  # of a later step


def test_sequences_begin_where_positions_do(tmp_path: Path) -> None:
    for index, (name, values) in enumerate({"input_ids": [5, 6, 7, 8, 9], "positions": [0, 1, 2, 0, 1]}.items()):
        torch.save({"value": torch.tensor(values)}, tmp_path / f"step=0___rank=0___dump_index={index}___name={name}.pt")
    batch = dumped_batch(open_dump(tmp_path))
    assert batch is not None and batch.ids.tolist() == [[5, 6, 7], [8, 9, 0]]
    assert batch.num_tokens == 5


def msprobe(folder: Path, document: Any) -> Dump:
    (folder / "rank0").mkdir()
    (folder / "rank0" / "dump.json").write_text(document if isinstance(document, str) else json.dumps(document))
    return open_dump(folder)


ENTRY = "Module.0.model.layers.1.mlp.down_proj.RowParallelLinear.forward.0"


def test_msprobe_modules(tmp_path: Path) -> None:
    one = {"data_name": "x.pt"}
    dump = msprobe(tmp_path, {"task": "tensor", "data": {
        ENTRY: {"input_args": [one, None, 3], "input_kwargs": {"mask": one}, "output": [one]},
        ENTRY.replace("forward.0", "forward.1"): {"output": [one]},
        "Functional.linear.5.forward": {"output": [one]},
        "Module.x.Y.backward.0": {"output": [one]},
    }})  # fmt: skip
    assert [(one.module, one.role, one.which) for one in dump.activations] == [
        ("model.layers.1.mlp.down_proj", "input", "0"), ("model.layers.1.mlp.down_proj", "input", "mask"),
        ("model.layers.1.mlp.down_proj", "output", "0"),
    ]  # fmt: skip
    assert len(dump.ignored) == 3
    assert dump.activations[0].file == tmp_path / "rank0" / "dump_tensor_data" / "x.pt"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "JSON"), ("[1]", "an object, found list"), ({"task": "tensor", "data": 5}, "an object of modules, found int"),
        ({"task": "statistics", "data": {}}, "which keeps no tensors"),
        ({"data": {ENTRY: {"output": [{"data_name": "../../../etc/passwd"}]}}}, "a plain file name"),
        ({"data": {ENTRY: {"output": [{"data_name": "/etc/passwd"}]}}}, "a plain file name"),
        ("[" * 100_000, "JSON"),
    ],
)  # fmt: skip
def test_bad_documents_say_so(document: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DegarbleError, match=message):
        msprobe(tmp_path, document)


def test_links_are_not_followed_and_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "model.layers.0.mlp.output.npy").symlink_to("/etc/passwd")
    with pytest.raises(TargetError, match="found none"):
        open_dump(tmp_path).of_first_step()
    monkeypatch.setattr(interface, "MAX_FILES", 1)
    with pytest.raises(TargetError, match="more than 1 files"):
        open_dump(tmp_path)


def test_paths_that_are_no_dumps(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(TargetError, match="expected a folder"):
            open_dump(path)
    (tmp_path / "x.safetensors").write_bytes(b"\x00" * 7)
    with pytest.raises(MalformedFile):
        open_dump(tmp_path)


def test_fused_projections_are_known_by_their_parts() -> None:
    modules = dict.fromkeys(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_up_proj"))
    assert names_of("self_attn.qkv_proj", modules) == ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
    assert names_of("mlp.gate_up_proj", modules) == ["mlp.gate_up_proj"]
    assert names_of("mlp.strange", modules) == []
