"""TPL508: the chat template writes other prompts than the reference's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from degarble.checks.template.template_place import FETCH, place_of, title_of
from degarble.evidence.store import Evidence
from degarble.finding import Finding, Location
from degarble.registry import Level, check
from degarble.templates.renderings import Rendering, TemplateRenderings

MAX_SHOWN = 40
SYMPTOM_OF = ("TOK413", "TPL501", "TPL502", "TPL503", "TPL504", "TPL505")


@check("TPL508", level=Level.REFERENCE, symptom_of=SYMPTOM_OF)
def template_differs_from_reference(
    reference: Evidence, renderings: tuple[TemplateRenderings, ...] | None = None
) -> Iterator[Finding]:
    """The chat template writes another prompt than the reference's does.

    ## What it looks for
    Templates of one name, this checkpoint's and the reference's, are rendered for the same conversations: a question,
    an answer, two turns, a system prompt, special characters, tools. The texts must be equal to the last character. The
    templates themselves may differ: comments, spaces inside tags, another way to say the same.

    ## Why output turns to garbage
    Quantisation has no reason to touch the template, and calibration was done with the one of the reference. Every
    difference moves each prompt away from what the model was trained on, by a space or by a whole format.

    ## What you will see
    From nothing at all up to answers in a wrong format; a system prompt that is obeyed in one deployment and ignored in
    the other.

    ## How to tell it from its look-alikes
    A later release of the same model often repairs its template; then the reference is the old one. A template that is
    meant to differ (another default system prompt) is reported all the same: the reference is what was asked for.

    ## How to confirm
    Render one conversation with both tokenizers and compare the texts.

    ## How to repair it
    Copy the reference's template. Not safe unattended: the difference may be a repair.

    ## References
    unslothai/unsloth#188, unslothai/unsloth#2744
    """
    theirs: tuple[TemplateRenderings, ...] | None = reference.find("renderings")
    mine = {tried.template.name: tried for tried in reversed(renderings or ())}
    for other in theirs or ():
        tried = mine.get(other.template.name)
        if tried is None:
            yield _missing(other)
            continue
        found = next(_differing(tried, other), None)
        if found is not None:
            yield found


def _missing(other: TemplateRenderings) -> Finding:
    place = place_of(other.template)
    return Finding(
        location=Location(file=place.file, key=place.key),
        message=f"the reference has a chat template, {title_of(other.template)}, and this checkpoint has none of that name",
        measured={"templates": 0},
        bound={"templates": 1},
        fix=FETCH,
    )


def _differing(tried: TemplateRenderings, other: TemplateRenderings) -> Iterator[Finding]:
    """The first conversation that is written differently."""
    for name, right in other.results.items():
        result = tried.results.get(name)
        if right.text is None or (result is not None and result.text == right.text):
            continue
        yield Finding(
            location=place_of(tried.template),
            message=f"{title_of(tried.template)}: {name}: {_difference(tried, result, right.text)}",
            measured={"characters": len(result.text) if result is not None and result.text is not None else 0},
            bound={"characters": len(right.text)},
            fix=FETCH,
        )


def _difference(tried: TemplateRenderings, result: Rendering | None, right: str) -> str:
    text = result.text if result is not None else None
    if text is None:
        problem = tried.problem or (result.problem if result is not None else None)
        return f"{problem or 'gives nothing'}; the reference renders it"
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, right, strict=False)))
    start = max(0, same - MAX_SHOWN // 2)
    return (
        f"differs from character {same} on: {text[start : same + MAX_SHOWN]!r}, "
        f"and the reference has {right[start : same + MAX_SHOWN]!r}"
    )
