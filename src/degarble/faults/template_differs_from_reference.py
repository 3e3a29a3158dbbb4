"""Plants TPL508."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.template_edit import rendered_of, write_template
from degarble.finding import Location


@fault("TPL508", needs_reference=True)
def template_differs_from_reference(patient: Patient) -> Location:
    """Write one more line break at the end of every prompt."""
    template = rendered_of(patient).template
    return write_template(patient, template, template.text + "{{ '\\n' }}")


@fault("TPL508", needs_reference=True)
def template_writes_other_system_prompt(patient: Patient) -> Location:
    """Put a sentence in front of what the user says."""
    template = rendered_of(patient).template
    loop = template.text.find("{%")
    if loop < 0:
        raise NotApplicable("no tag")
    extra = (
        "{% set said = messages[0].content %}{% if said is string %}"
        "{% set messages = [{'role': messages[0].role, 'content': 'Answer in one word. ' ~ said}] + messages[1:] %}{% endif %}"
    )
    return write_template(patient, template, extra + template.text)
