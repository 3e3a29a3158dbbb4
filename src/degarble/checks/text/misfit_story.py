"""What a token that does not fit the vocabulary does to a deployment, in one clause each."""

from __future__ import annotations

from collections.abc import Sequence

from degarble.tokenizer.foreign_tokens import Contradiction, Misfit
from degarble.tokenizer.known_tokens import KnownTokens

MAX_TOLD = 3
ORDER = ("eos_token", "eot_token", "eom_token", "bos_token", "pad_token")
"""Which misfits a reader should hear of first."""
OF_NEW = {
    "eos_token": "which the model never emits: no answer ends",
    "eot_token": "which the model never emits: no turn ends",
    "bos_token": "which the model has never seen at the start of a text",
}


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def told(contradictions: Sequence[Contradiction], known: KnownTokens, rows: int | None) -> str:
    """The first few, each with what comes of it."""
    once: dict[tuple[str | None, int | None], Contradiction] = {}
    for item in sorted(contradictions, key=lambda item: ORDER.index(item.role) if item.role in ORDER else len(ORDER)):
        once.setdefault((item.text, item.token_id if item.text is None else None), item)
    ranked = list(once.values())
    more = f"; and {len(ranked) - MAX_TOLD} more" if len(ranked) > MAX_TOLD else ""
    return "; ".join(_clause(item, known, rows) for item in ranked[:MAX_TOLD]) + more


def _clause(item: Contradiction, known: KnownTokens, rows: int | None) -> str:
    if item.text is not None:
        return _of_text(item, item.text, known, rows)
    return _of_id(item, item.token_id or 0, known, rows)


def _of_text(item: Contradiction, text: str, known: KnownTokens, rows: int | None) -> str:
    what = f"{item.role or 'the token'} {text!r}"
    if item.role is None and item.token_id is None:
        return f"the template writes {text!r}, which is no token here and is cut into several ordinary ones"
    if item.kind is Misfit.MOVED:
        return f"{what} is {item.token_id} there and {known.id_of(text)} here"
    if item.kind is Misfit.PLAIN_TEXT:
        return f"{what} is ordinary text here, not a control token"
    past = f", past the {rows} rows of the embedding" if rows is not None and known.num_ids >= rows else ""
    effect = OF_NEW.get(item.role or "", "which the model never learnt")
    return f"{what} has no id here: loaders append a new one, {known.num_ids} or above{past}, {effect}"


def _of_id(item: Contradiction, token_id: int, known: KnownTokens, rows: int | None) -> str:
    what = f"{item.role} id {token_id}"
    if item.kind is Misfit.NO_ID:
        is_past = rows is not None and token_id >= rows
        return f"{what} is past the {rows} rows of the embedding" if is_past else f"{what} has no text here"
    shown = known.shown(token_id)
    if item.kind is Misfit.OTHER_ROLE:
        return f"{what} is {shown} here, which has another role"
    kind = "the placeholder" if item.kind is Misfit.RESERVED_ID else "the ordinary piece"
    is_stop = item.role in ("eos_token", "eot_token", "eom_token")
    return f"{what} is {kind} {shown} here{': it is printed, and the answer goes on' if is_stop else ''}"
