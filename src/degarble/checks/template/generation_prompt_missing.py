"""TPL505: `add_generation_prompt` does not open the assistant's turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from degarble.checks.template.template_place import FETCH, place_of, title_of
from degarble.finding import Finding, Severity
from degarble.registry import check
from degarble.templates.renderings import TemplateRenderings
from degarble.templates.turns import opening_items, prompt_items

ROLE = re.compile(r"assistant|model|gpt|bot|\bai\b", re.IGNORECASE)
PLAIN_ROLES = frozenset(("response", "answer"))
"""Words of plain-text formats: `### Response:`."""
MAX_ITEMS = 8


@check("TPL505", severity=Severity.WARNING, symptom_of=("TOK413", "TPL502", "TPL503"))
def generation_prompt_missing(renderings: tuple[TemplateRenderings, ...]) -> Iterator[Finding]:
    """Asking for a generation prompt does not open the assistant's turn.

    ## What it looks for
    A question is rendered with and without `add_generation_prompt`, and once more with an answer. What stands between
    question and answer there (`<|im_start|>assistant`) is how the assistant's turn opens; the prompt has to end with
    it. Nothing is added: the condition is missing, or can never be true. Something else is added, such as the opening
    of the user's turn: the prompt is of another format.

    ## Why output turns to garbage
    The model is asked to go on after the end of the user's turn, where in training either role could follow. It may
    open a turn by itself, and often does so for the user.

    ## What you will see
    Answers that begin with `assistant` or a marker; answers that are a second question; an empty answer.

    ## How to tell it from its look-alikes
    Where the answer follows the question at once, as after `[/INST]` in Llama 2 and Mistral, there is nothing to add,
    and such templates are silent. So are templates that open the assistant's turn whether asked or not, and those that
    go further than the opening (`<think>`, gpt-oss's channels) or less far.

    ## How to confirm
    Render the same conversation with `add_generation_prompt` true and false and compare the ends.

    ## How to repair it
    Add the opening under `{% if add_generation_prompt %}` at the end of the template, or fetch the template of the
    release. Not safe unattended: engines may have been configured around the fault.

    ## References
    instructlab/training#232, stanford-crfm/helm#3698
    """
    for tried in renderings:
        if tried.template.name not in ("default", renderings[0].template.name):
            continue
        opening, prompt = opening_items(tried), prompt_items(tried)
        role = _up_to_role(opening or ())
        if prompt is None or not role or prompt[: len(role)] == role:
            continue
        wanted, found = " ".join(role), " ".join(prompt[:MAX_ITEMS])
        what = f"adds {found!r}" if found else "adds nothing to a question"
        yield Finding(
            location=place_of(tried.template),
            message=f"{title_of(tried.template)}: add_generation_prompt {what}, and answers open with {wanted!r}",
            measured={"added": found},
            bound={"added": wanted},
            fix=FETCH,
        )


def _up_to_role(opening: Sequence[str]) -> list[str]:
    """Items up to the one that names the assistant; empty where none does, and nothing can be asked of the prompt."""
    for number, item in enumerate(opening):
        if ROLE.search(item) or item.casefold() in PLAIN_ROLES:
            return list(opening[: number + 1])
    return []
