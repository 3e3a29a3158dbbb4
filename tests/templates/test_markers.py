"""Which markers are one token, which are plain text by design, and which only look right."""

from __future__ import annotations

import pytest

from degarble.templates.folded_text import fold
from degarble.templates.markers import Fault, MarkerTable
from tests.templates.token_tables import marker_table

CHATML = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<|EOT|>")
GEMMA = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<table>", "</table>", "<s>", "</s>")
MISTRAL = ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]")
LLAMA_2 = ("<s>", "</s>", "<unk>")


def faults(table: MarkerTable, text: str) -> list[tuple[str, Fault, str | None]]:
    """Marker, fault and similar token."""
    return [(bad.text, bad.fault, bad.similar) for bad in table.bad_markers(text)]


@pytest.mark.parametrize(
    ("added", "text"),
    [
        (CHATML, "<|im_start|>user\nHi<|im_end|>\n<think>\n</think><tools><tool></tools><function=x></function>"),
        (DEEPSEEK, "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜><｜DSML｜invoke name='x'></｜DSML｜invoke>"),
        (GEMMA, "<bos><start_of_turn>user\n<h1>x</h1><b>bold</b> 1 < 2 > 0<end_of_turn>"),
        (MISTRAL, "<s>[INST] Hi [/INST][TOOL_CALLS][{'name': 1}] [A] [TODO] [IMG]"),
        (LLAMA_2, "<s>[INST] <<SYS>>\nx\n<</SYS>>\n\nHi [/INST]"),
        (LLAMA_2, "<|system|>\nx</s>\n<|user|>\nHi</s>\n<|assistant|>\n"),
        (
            ("<|turn>", "<turn|>", '<|"|>', "<|tool_call>", "<tool_call|>"),
            '<|turn>user\nHi<turn|><|tool_call>{a:<|"|>b<|"|>}',
        ),
        (("<|im_start|>",), "a | b |> c <| d\n|> <|> <||>"),
        ((), "no markers, <b>tags</b>, f(x) |> g"),
    ],
)
def test_plain_text_by_design_is_silent(added: tuple[str, ...], text: str) -> None:
    assert faults(marker_table(added), text) == []


@pytest.mark.parametrize(
    ("added", "written", "fault", "similar"),
    [
        (DEEPSEEK, "<|User|>", Fault.LOOK_ALIKE, "<｜User｜>"),
        (DEEPSEEK, "<|begin_of_sentence|>", Fault.LOOK_ALIKE, "<｜begin▁of▁sentence｜>"),
        (DEEPSEEK, "<｜begin_of_sentence｜>", Fault.LOOK_ALIKE, "<｜begin▁of▁sentence｜>"),
        (CHATML, "<｜im_start｜>", Fault.LOOK_ALIKE, "<|im_start|>"),
        (CHATML, "<|im\u200b_start|>", Fault.LOOK_ALIKE, "<|im_start|>"),
        (CHATML, "<\ufeff|im_start|>", Fault.LOOK_ALIKE, "<|im_start|>"),
        (CHATML, "<|im_start\u00a0|>", Fault.LOOK_ALIKE, "<|im_start|>"),
        (CHATML, "<|im_ѕtart|>", Fault.LOOK_ALIKE, "<|im_start|>"),
        (CHATML, "<|IM_START|>", Fault.LOOK_ALIKE, "<|im_start|>"),
        (CHATML, "<|im-start|>", Fault.LOOK_ALIKE, "<|im_start|>"),
        (CHATML, "<|im_start|", Fault.LOOK_ALIKE, "<|im_start|>"),
        (CHATML, "<|im_strat|>", Fault.UNKNOWN, "<|im_start|>"),
        (CHATML, "<|im_start>", Fault.UNKNOWN, "<|im_start|>"),
        (CHATML, "<|eot_id|>", Fault.UNKNOWN, None),
        (CHATML, "<start_of_turn>", Fault.UNKNOWN, None),
        (CHATML, "<ｔhink>", Fault.LOOK_ALIKE, "<think>"),
        (GEMMA, "<start_of_trun>", Fault.UNKNOWN, "<start_of_turn>"),
        (GEMMA, "<START_OF_TURN>", Fault.LOOK_ALIKE, "<start_of_turn>"),
        (("<|user|>", "<|end|>"), "<|assistant|>", Fault.UNKNOWN, None),
        (("<tool_call>",), "</tool_call>", Fault.WIDOWED, "<tool_call>"),
        (("[INST]",), "[/INST]", Fault.WIDOWED, "[INST]"),
    ],
)
def test_markers_that_are_no_token(added: tuple[str, ...], written: str, fault: Fault, similar: str | None) -> None:
    assert faults(marker_table(added), f"{written}user\nHi") == [(written, fault, similar)]


def test_piece_that_is_not_matched_whole() -> None:
    assert faults(marker_table((), pieces=["a", "<|im_end|>"]), "<|im_end|>") == [("<|im_end|>", Fault.SPLIT, None)]
    assert faults(marker_table((), pieces=["<|im_end|>"], model="Unigram"), "<|im_end|>") == []


def test_token_that_must_stand_alone() -> None:
    table = marker_table(("<|im_start|>",), single_word=True)
    assert faults(table, "<|im_start|>user") == [("<|im_start|>", Fault.JOINED, None)]
    assert faults(table, "<|im_start|>\nuser") == []


def test_each_marker_is_told_once_and_ids_are_known() -> None:
    table = marker_table(("<|a|>",), pieces=["x"])
    assert faults(table, "<|b|><|b|>" * 1000) == [("<|b|>", Fault.UNKNOWN, None)]
    assert (table.id_of("<|a|>"), table.id_of("x"), table.id_of("y")) == (1, 0, None)


@pytest.mark.parametrize(
    "text", ["<|" * 50_000, "<" * 100_000, "[A" * 50_000, "\u200b" * 50_000, "\ud800<|x|>", "<|x" * 30_000]
)
def test_hostile_text_is_scanned_in_one_pass(text: str) -> None:
    assert len(faults(marker_table(CHATML), text)) <= 1


def test_folded_text_leads_back() -> None:
    folded = fold("a<｜Us\u200ber｜>①b")
    assert folded.text == "a<|User|>1b"
    assert folded.slice(1, 9) == "<｜Us\u200ber｜>"
    assert fold("abc").slice(1, 2) == "b"
