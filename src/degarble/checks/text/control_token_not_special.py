"""TOK405: a control token is stored as ordinary text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from degarble.checks.text.claim_places import MAX_SHOWN, and_more, grouped, place_of, places_of
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.chat_template import ChatTemplate
from degarble.tokenizer.families import ROLES, Family, all_texts
from degarble.tokenizer.known_tokens import CONTROL_LOOK, KnownTokens
from degarble.tokenizer.sentencepiece_pieces import NORMAL, read_pieces
from degarble.tokenizer.token_claims import TokenClaim

FLAG = Fix(id="flag-special-token", safe=True)
CHOOSE = Fix(id="flag-special-token", safe=False)


class Use(msgspec.Struct, frozen=True):
    """Why a token counts as control."""

    reason: str
    role: str | None = None


@check("TOK405", symptom_of=("TOK404", "TOK406", "TOK413"))
def control_token_not_special(
    known_tokens: KnownTokens,
    token_claims: tuple[TokenClaim, ...],
    token_families: tuple[Family, ...],
    chat_templates: tuple[ChatTemplate, ...] | None = None,
) -> Iterator[Finding]:
    """A token that is used as control is stored as ordinary text, or is not flagged special.

    ## What it looks for
    Tokens with a role (bos, eos, end of turn, pad), markers that the chat template writes, and the control tokens of
    the vocabulary's published family, as far as the vocabulary has them. Each must be an added token (in a GGUF file of
    a type other than normal, in tokenizer.model control or user-defined), so that it is found in a prompt before text
    is cut. BOS and EOS must be flagged special as well, so that they are not shown. Flags in
    `added_tokens_decoder` are held against those of tokenizer.json.

    ## Why output turns to garbage
    A marker typed as ordinary text is cut into pieces in the prompt: `<`, `|`, `im`, … The model sees words where it was
    trained to see one token, and answers as if there were no turns. A stop token that is not special is printed, and
    engines that build their stop set from flags never stop on it.

    ## What you will see
    `<end_of_turn>` or `<|im_end|>` in answers; a model that talks about the markers, or continues the user's text
    instead of answering; a chat model that behaves like a base model in one engine only.

    ## How to tell it from its look-alikes
    Not every control token is flagged special as published: DeepSeek-V3's `<｜User｜>`, `<｜Assistant｜>`, fim and tool
    tokens, Qwen 3's `<think>` and `<tool_call>` are added and not special, on purpose, so that parsers see them. They
    are silent. A token that the vocabulary lacks is TOK401. A role given to the id of an ordinary word is TPL507 or
    TOK402: there the id is wrong, not the type. A pad token without the flag is a warning.

    ## How to confirm
    Encode the text of the token with the tokenizer file: one id, or several. In GGUF, print its entry of
    `tokenizer.ggml.token_type`: 3 is control.

    ## How to repair it
    Set the flag or the type. Safe unattended where the file itself gives the token its role; not where only the
    published family says so.

    ## References
    unslothai/unsloth#5080, ggml-org/llama.cpp#8228, ggml-org/llama.cpp#7062, deepseek-ai/DeepSeek-Coder#136
    """
    known = known_tokens
    for text, use in _used(known, token_claims, token_families, chat_templates or ()).items():
        at = known.id_of(text)
        if at is None:
            continue
        if text not in known.added_texts:
            yield _finding(known, text, at, use, f"is an ordinary piece of the vocabulary, and {use.reason}", None)
        elif _needs_flag(use, known) and not known.is_special(at) and not _is_published_plain(text, token_families):
            severity = None if use.role in ("bos", "eos") and not known.is_gguf else Severity.WARNING
            yield _finding(known, text, at, use, f"is not flagged special, and {use.reason}", severity)


@check("TOK405", symptom_of=("TOK402", "TOK404", "TOK406", "TOK413"))
def special_flags_disagree(
    known_tokens: KnownTokens,
    token_claims: tuple[TokenClaim, ...],
    chat_templates: tuple[ChatTemplate, ...] | None = None,
) -> Iterator[Finding]:
    """`added_tokens_decoder` flags a token that the vocabulary does not flag, or the other way round."""
    known = known_tokens
    if known.is_sentencepiece or known.is_gguf:
        return
    stops = {claim.text for claim in token_claims if claim.role in ROLES and claim.role != "pad_token"}
    written = "\0".join(template.text for template in chat_templates or ())
    differing = (
        ((claim.file, claim.special is True and claim.text in written), claim)
        for claim in token_claims
        if claim.special is not None and claim.text in known.added_texts
        if claim.text is not None and known.id_of(claim.text) == claim.token_id is not None
        if known.is_special(claim.token_id) is not claim.special
        if claim.text not in stops or not claim.special  # else told by the first check
    )
    for (_, is_turn), claims in grouped(differing).items():
        text, flag = (claims[0].text or "")[:MAX_SHOWN], bool(claims[0].special)
        there = Location(file=known.tokenizer.file, key="added_tokens", token=text, token_id=claims[0].token_id)
        yield Finding(
            location=place_of(claims[0]),
            places=places_of(claims, there),
            message=f"{claims[0].file}: {claims[0].key} flags {text!r} special={str(flag).lower()}, and {there.file} "
            f"special={str(not flag).lower()}: whether it is shown depends on the loader{and_more(claims)}",
            severity=None if is_turn else Severity.WARNING,
            measured={"special": flag, "tokens": len(claims)},
            bound={"special": not flag, "tokens": 0},
            fix=CHOOSE,
        )


@check("TOK405", symptom_of=("TOK404", "TOK406", "TOK413"))
def control_piece_typed_normal(known_tokens: KnownTokens, token_claims: tuple[TokenClaim, ...]) -> Iterator[Finding]:
    """A piece of tokenizer.model that has a role is of the normal type, so it is printed and cut from ordinary text."""
    if not known_tokens.is_sentencepiece:
        return
    roles = {
        claim.text: claim.role for claim in token_claims if claim.text and claim.role in ("bos_token", "eos_token")
    }
    ids = {text: at for text in roles if (at := known_tokens.tokenizer.ids_by_piece.get(text)) is not None}
    tokenizer = known_tokens.tokenizer
    pieces = read_pieces(tokenizer.raw, tokenizer.file, max(ids.values()) + 1) if ids else []
    for text, at in ids.items():
        if at < len(pieces) and pieces[at].kind == NORMAL:
            use = Use(f"{roles[text]} names it", "eos")
            yield _finding(known_tokens, text, at, use, f"is typed as a normal piece, and {use.reason}", None)


def _used(
    known: KnownTokens, claims: Sequence[TokenClaim], home: Sequence[Family], templates: Sequence[ChatTemplate]
) -> dict[str, Use]:
    """Control tokens in use, the surest reason for each."""
    used: dict[str, Use] = {}
    for claim in claims:
        role = ROLES.get(claim.role or "")
        text = claim.text
        if text is None and claim.token_id is not None:
            text = known.text_of(claim.token_id)
            text = text if text is not None and (text in all_texts() or CONTROL_LOOK.fullmatch(text)) else None
        if role is not None and text:
            reason = f"{claim.file}: {claim.key} gives it the role {claim.role}"
            if text not in used or used[text].role == "pad":
                used[text] = Use(reason, role)
    for template in templates:
        for match in CONTROL_LOOK.finditer(template.text):
            if _is_marker(match[0]):
                used.setdefault(match[0], Use("the chat template writes it as a marker"))
    for family in home:
        for text, at in family.ids.items():
            if known.text_of(at) == text:
                used.setdefault(text, Use(f"{family.name} publishes it as a control token"))
    return used


def _is_marker(text: str) -> bool:
    """Templates also hold XML of their own, such as `<tools>`, which is ordinary text."""
    return text in all_texts() or text[1] in "|｜" or (text[0] == "<" and "_" in text)


def _needs_flag(use: Use, known: KnownTokens) -> bool:
    """Loaders of sentencepiece models flag whatever has a role."""
    return use.role is not None and not known.is_sentencepiece


def _is_published_plain(text: str, home: Sequence[Family]) -> bool:
    return any(family.special.get(text) is False for family in home)


def _finding(known: KnownTokens, text: str, at: int, use: Use, what: str, severity: Severity | None) -> Finding:
    tokenizer = known.tokenizer
    key = "tokenizer.ggml.token_type" if known.is_gguf else "pieces" if known.is_sentencepiece else "added_tokens"
    return Finding(
        location=Location(file=tokenizer.file, key=key, token=text[:MAX_SHOWN], token_id=at),
        message=f"{tokenizer.file}: {text[:MAX_SHOWN]!r} (id {at}) {what}",
        severity=severity,
        measured={"added": text in known.added_texts, "special": known.is_special(at)},
        bound={"added": True, "special": use.role is not None},
        fix=FLAG if use.role is not None else CHOOSE,
        fold=f"{tokenizer.file} {key}",
    )
