"""Plants TPL505."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.template_edit import rendered_of, write_template
from degarble.finding import Location
from degarble.templates.turns import opening_items, prompt_items

OTHER_ROLE = {"assistant": "user", "Assistant": "User", "model": "user"}


@fault("TPL505")
def generation_prompt_missing(patient: Patient) -> Location:
    """Ignore the request for a generation prompt."""
    tried = rendered_of(patient)
    if not opening_items(tried) or not prompt_items(tried):
        raise NotApplicable("answers follow questions at once")
    return write_template(patient, tried.template, "{% set add_generation_prompt = false %}" + tried.template.text)


@fault("TPL505")
def generation_prompt_for_user(patient: Patient) -> Location:
    """Open the user's turn in the generation prompt."""
    tried = rendered_of(patient)
    text = tried.template.text
    at = text.rfind("if add_generation_prompt")
    prompt = prompt_items(tried) or []
    role = next((word for word in OTHER_ROLE if any(word in item for item in prompt)), None)
    if at < 0 or role is None or role not in text[at:]:
        raise NotApplicable("no generation prompt that names a role")
    return write_template(patient, tried.template, text[:at] + text[at:].replace(role, OTHER_ROLE[role]))
