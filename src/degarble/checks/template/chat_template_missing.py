"""TPL501: a model tuned for chat has no chat template."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import Source
from degarble.checkpoint.json_file import JsonFile
from degarble.checks.template.template_place import FETCH, place_of, title_of
from degarble.finding import Confidence, Finding, Location, Severity
from degarble.registry import check
from degarble.templates.markers import MarkerTable
from degarble.templates.stop_tokens import STOP_ROLES, is_turn_end
from degarble.tokenizer.chat_template import TEMPLATE_FILE, ChatTemplate
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.look_alike import skeleton
from degarble.tokenizer.token_claims import TokenClaim

TUNED_NAME = re.compile(r"(?:^|[-_./ ])(instruct(?:ed)?|chat|it)(?:$|[-_. ])", re.IGNORECASE)
BASE_NAME = re.compile(r"(?:^|[-_./ ])(base|pt|pretrain(?:ed)?)(?:$|[-_. ])", re.IGNORECASE)
NAME_KEYS = ("general.name", "general.basename", "general.finetune")
ENGINE_FORMATS = ("｜DSML｜",)
"""A token of releases that are published without a Jinja template: engines bring an encoder for them."""


@check("TPL501", severity=Severity.WARNING, confidence=Confidence.LIKELY, symptom_of=("CFG101", "CKP105", "TPL502"))
def chat_template_missing(
    known_tokens: KnownTokens,
    markers: MarkerTable,
    token_claims: tuple[TokenClaim, ...],
    json_files: Mapping[str, JsonFile],
    files: Mapping[str, int],
    source: Source,
    gguf: GgufFile | None = None,
    chat_templates: tuple[ChatTemplate, ...] | None = None,
) -> Iterator[Finding]:
    """A model that was tuned for chat comes without a chat template.

    ## What it looks for
    No template in `chat_template.jinja`, `chat_template.json`, `tokenizer_config.json`, `additional_chat_templates/` or
    the GGUF keys `tokenizer.chat_template*`, and one of these signs of chat tuning: a stop id that is an end of turn
    (`<|im_end|>`, `<|eot_id|>`, `<end_of_turn>`, `<|return|>`, …), a name with `-Instruct`, `-chat` or `-it`, or a token
    each for the user's and the assistant's turn (a hint only, since base models of the same release have them too).

    ## Why output turns to garbage
    Engines either refuse chat requests, or fall back to a format of their own, mostly ChatML. The model then reads
    markers that it has never seen, cut into ordinary tokens, and answers as a base model would.

    ## What you will see
    An error that names the chat template; or answers that continue the question, talk to themselves in several roles,
    and do not stop.

    ## How to tell it from its look-alikes
    A base model has no template, and is silent: its stop id is the end of a text even if its vocabulary has turn markers
    for later use. One template in one of the places is enough. Engines do read different places (text-generation-
    inference does not read the .jinja file, llama.cpp reads only the GGUF key): two templates that differ are an info.
    DeepSeek V3.2 and later are published without Jinja and are an info.

    ## How to confirm
    `tokenizer.chat_template` after loading is None. Compare with the repository that the weights come from.

    ## How to repair it
    Copy the template of the release beside the tokenizer; for GGUF, write it into `tokenizer.chat_template`. Not safe
    unattended: the template has to be the one of this very release.

    ## References
    unslothai/unsloth#2744, nomic-ai/gpt4all#3287, huggingface/text-generation-inference#3247
    """
    if chat_templates is not None or _has_unreadable(json_files, files, gguf):
        return
    named = list(_names(json_files, source, gguf))
    sign = _sign(known_tokens, token_claims, named)
    is_hint = sign is None and not any(BASE_NAME.search(name) for name in named)
    sign = role_sign(markers.tokens) if is_hint else sign
    if sign is None:
        return
    is_own = any(token in markers for token in ENGINE_FORMATS)
    place = _place(files, gguf)
    yield Finding(
        location=place,
        message=f"no chat template, and {sign}"
        + ("; releases of this kind are published without one, and engines bring their own" if is_own else ""),
        severity=Severity.INFO if is_own else None,
        confidence=Confidence.HINT if is_hint else None,
        measured={"templates": 0},
        bound={"templates": 1},
        fix=FETCH,
    )


@check("TPL501", severity=Severity.INFO)
def templates_differ(chat_templates: tuple[ChatTemplate, ...]) -> Iterator[Finding]:
    """Two places hold different templates of one name, and engines read different places."""
    first: dict[str, ChatTemplate] = {}
    for template in chat_templates:
        other = first.setdefault(template.name, template)
        if other.text.strip() != template.text.strip() and other.file != template.file:
            yield Finding(
                location=place_of(template),
                places=(place_of(template), place_of(other)),
                message=f"{title_of(template)} differs from {title_of(other)}: transformers and vLLM read the second, "
                "others the first",
                measured={"characters": len(template.text)},
                bound={"characters": len(other.text)},
            )


def _has_unreadable(json_files: Mapping[str, JsonFile], files: Mapping[str, int], gguf: GgufFile | None) -> bool:
    """Something is there, and is no template: TPL502."""
    if TEMPLATE_FILE in files or (gguf is not None and "tokenizer.chat_template" in gguf.metadata):
        return True
    values = (json_files[file].value for file in ("tokenizer_config.json", "chat_template.json") if file in json_files)
    return any(isinstance(value, dict) and value.get("chat_template") is not None for value in values)


def _sign(known: KnownTokens, claims: Iterable[TokenClaim], names: Iterable[str]) -> str | None:
    """Why the model counts as tuned for chat."""
    for name in names:
        found = TUNED_NAME.search(name)
        if found is not None:
            return f"the name {name[:80]!r} says {found[1]!r}"
    for claim in claims:
        text = claim.text if claim.text is not None else known.text_of(-1 if claim.token_id is None else claim.token_id)
        if claim.role in STOP_ROLES and text is not None and is_turn_end(text):
            return f"{claim.file}: {claim.key} stops at the end of a turn, {text!r}"
    return None


def role_sign(tokens: Iterable[str]) -> str | None:
    """Turn markers of both sides, as in DeepSeek-V3 and GLM: their answers end with the token that ends a text."""
    roles: dict[str, str] = {}
    for text in tokens:
        plain = skeleton(text).strip("<|>").casefold() if len(text) < 20 and "<" in text[:1] else ""
        if plain in ("user", "assistant"):
            roles[plain] = text
    if len(roles) < 2:
        return None
    return f"the vocabulary has tokens for turns, {roles['user']!r} and {roles['assistant']!r}"


def _names(json_files: Mapping[str, JsonFile], source: Source, gguf: GgufFile | None) -> Iterator[str]:
    """What the model calls itself, and what its folder or file is called."""
    yield re.split(r"[/\\]", source.path.rstrip("/\\"))[-1]
    config: Any = json_files["config.json"].value if "config.json" in json_files else None
    named = config.get("_name_or_path") if isinstance(config, dict) else None
    stored = [named, *(gguf.metadata.get(key) for key in NAME_KEYS)] if gguf is not None else [named]
    yield from (name for name in stored if isinstance(name, str))


def _place(files: Mapping[str, int], gguf: GgufFile | None) -> Location:
    if gguf is not None:
        return Location(file=gguf.file, key="tokenizer.chat_template")
    if "tokenizer_config.json" in files:
        return Location(file="tokenizer_config.json", key="chat_template")
    return Location(file=TEMPLATE_FILE)
