"""Evidence about chat templates: what each of them writes for the probe conversations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from degarble.evidence.store import Coverage, provides
from degarble.templates.markers import MarkerTable
from degarble.templates.program import MAX_UNITS
from degarble.templates.renderings import TemplateRenderings, render_template
from degarble.tokenizer.chat_template import ChatTemplate
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TOKEN_ROLES, TokenClaim

MAX_TEMPLATES = 8
"""Of one checkpoint; three are in use: `default`, `tool_use` and `rag`."""


@provides("special_token_texts")
def special_token_texts(token_claims: tuple[TokenClaim, ...], tokenizer: Tokenizer | None = None) -> dict[str, str]:
    """Role -> text: the variables `bos_token`, `eos_token` and others that a template is given. The first file decides."""
    texts: dict[str, str] = {}
    for role, text in _told(token_claims, tokenizer):
        texts.setdefault(role, text)
    return texts


def _told(claims: Iterable[TokenClaim], tokenizer: Tokenizer | None) -> Iterable[tuple[str, str]]:
    for claim in claims:
        if claim.role in TOKEN_ROLES and claim.text is not None:
            yield claim.role, claim.text
    for declared in tokenizer.declared.values() if tokenizer is not None else ():
        yield from declared.items()


@provides("renderings")
def renderings(
    chat_templates: tuple[ChatTemplate, ...], special_token_texts: Mapping[str, str], coverage: Coverage
) -> tuple[TemplateRenderings, ...]:
    """Every template, the preferred one first. A text is run once, wherever it stands; all share one budget."""
    by_text: dict[str, TemplateRenderings] = {}
    found: dict[tuple[str, str], TemplateRenderings] = {}
    left = MAX_UNITS
    for template in chat_templates:
        if template.text not in by_text:
            if len(by_text) == MAX_TEMPLATES:
                coverage.add(f"{template.file}: further chat templates", f"more than {MAX_TEMPLATES} are not judged")
                break
            by_text[template.text] = render_template(template, special_token_texts, left)
            left = by_text[template.text].units_left
        found.setdefault((template.name, template.text), replace(by_text[template.text], template=template))
    return tuple(found.values())


@provides("markers")
def markers(known_tokens: KnownTokens) -> MarkerTable:
    """The texts that the tokenizer matches as a whole."""
    return MarkerTable(known_tokens)
