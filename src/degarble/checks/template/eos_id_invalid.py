"""TPL507: a stop id is no id, has no row or text, or is the id of an ordinary word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from degarble.checkpoint.json_file import JsonFile
from degarble.finding import Finding, Fix, Location
from degarble.registry import check
from degarble.templates.stop_tokens import STOP_ROLES
from degarble.tokenizer.foreign_tokens import NO_TOKEN
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import ID_FILES, NESTED, TokenClaim

CORRECT = Fix(id="correct-stop-id", safe=False)
MAX_SHOWN = 60
MAX_DIGITS = 20


@check("TPL507", symptom_of=("CFG101", "CKP105", "TOK403", "TOK404", "TOK405", "TOK406", "TOK411", "TOK413"))
def eos_id_invalid(
    known_tokens: KnownTokens, token_claims: tuple[TokenClaim, ...], embedding_rows: int | None = None
) -> Iterator[Finding]:
    """A stop id lies outside the vocabulary or is the id of an ordinary word.

    ## What it looks for
    Every `eos_token_id` of config.json (nested language configs included) and generation_config.json, one or a list, and
    the eos, eot and eom ids of GGUF: a whole number, below the rows of the embedding, with a text in the tokenizer, and
    that text a control token (special, or added under a name that looks like a marker).

    ## Why output turns to garbage
    An id that the model cannot produce never stops anything, and answers run to the limit. An id of an ordinary word
    stops every answer in which the word occurs, and the real end is not seen. The classic is DeepSeek V2's 100001 in a
    V3 checkpoint, where it is the word 普洱茶 (pu-erh tea).

    ## What you will see
    Answers that never end, or that break off in the middle of a sentence, always before the same word. Some servers
    crash while they load.

    ## How to tell it from its look-alikes
    -1 (GGUF: 4294967295) stands for "no such token". Several stop ids, and different ones in different files, are
    normal (TPL506 looks at the union). DeepSeek's `<｜User｜>` and others are added and not special: as stop ids they are
    fine. A token that lost its flag is TOK405, an id that another family uses is TOK413, an id past the embedding is
    TOK403 as well.

    ## How to confirm
    Decode the id alone with the tokenizer file.

    ## How to repair it
    Write the id of the tokenizer's end-of-turn or end-of-text token. Not safe unattended: which of them the model was
    trained to write, the release tells.

    ## References
    salesforce/CodeGen#32, QwenLM/Qwen3#927, ggml-org/llama.cpp#3635
    """
    for claim in token_claims:
        at = claim.token_id
        if claim.role not in STOP_ROLES or claim.text is not None or at is None or at in NO_TOKEN:
            continue
        fault = _fault(at, known_tokens, embedding_rows)
        if fault is not None:
            yield Finding(
                location=Location(file=claim.file, key=claim.key, token_id=at),
                places=(
                    Location(file=claim.file, key=claim.key, token_id=at),
                    Location(file=claim.file, key=claim.key),
                ),
                message=f"{claim.file}: {claim.key} is {_shown(at)}, {fault}",
                measured={"id": at if abs(at) < 10**MAX_DIGITS else _shown(at)},
                bound={"ids": known_tokens.num_ids, "rows": embedding_rows},
                fix=CORRECT,
                fold=f"{claim.file} {claim.key}",
            )


@check("TPL507", symptom_of=("CFG101", "CKP105"))
def eos_id_is_no_number(json_files: Mapping[str, JsonFile]) -> Iterator[Finding]:
    """A stop id is written as something that no engine reads as an id."""
    for file in ID_FILES:
        value = json_files[file].value if file in json_files else None
        config: Mapping[str, Any] = value if isinstance(value, dict) else {}
        inner = ((f"{outer}.", config[outer]) for outer in NESTED if isinstance(config.get(outer), dict))
        for path, level in (("", config), *inner):
            stored = level.get("eos_token_id")
            wrong = [one for one in (stored if isinstance(stored, list) else [stored]) if not _is_id(one)]
            if wrong and stored is not None:
                yield Finding(
                    location=Location(file=file, key=f"{path}eos_token_id"),
                    message=f"{file}: {path}eos_token_id holds {str(wrong[0])[:MAX_SHOWN]!r} of type "
                    f"{type(wrong[0]).__name__}: expected a whole number, or a list of them",
                    measured={"type": type(wrong[0]).__name__},
                    bound={"type": "int"},
                    fix=CORRECT,
                )


def _is_id(value: object) -> bool:
    return type(value) is int


def _fault(at: int, known: KnownTokens, rows: int | None) -> str | None:
    """What is wrong with an id."""
    if at < 0:
        return "which is below zero"
    if rows is not None and at >= rows:
        return f"and the embedding has {rows} rows, 0 to {rows - 1}"
    if known.text_of(at) is None:
        return f"which has no text in {known.tokenizer.file}"
    if not known.is_control(at):
        return f"which is the ordinary {known.shown(at)}"
    return None


def _shown(at: int) -> str:
    return str(at) if at.bit_length() < 64 else f"a number of {at.bit_length()} bits"
