"""Plants TPL502."""

from __future__ import annotations

import re
from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.template_edit import rendered_of, write_template
from degarble.finding import Location

CONTENT = re.compile(r"""(?<=[.\['"])content(?=['"\]\s}|])""")


@fault("TPL502")
def template_invalid(patient: Patient) -> Location:
    """Cut the template off before its last tag, as a copy through a form with a length limit does."""
    template = rendered_of(patient).template
    cut = template.text.rfind("{%")
    if cut < 1:
        raise NotApplicable("no tag")
    return write_template(patient, template, template.text[:cut])


@fault("TPL502")
def template_filter_unknown(patient: Patient) -> Location:
    """Use a filter that jinja2 does not have."""
    template = rendered_of(patient).template
    return write_template(patient, template, template.text + "{{ '' | trim_left }}")


@fault("TPL502")
def template_reads_other_key(patient: Patient) -> Location:
    """Read the messages' texts under the name that another data format gives them."""
    template = rendered_of(patient).template
    return write_template(patient, template, CONTENT.sub("value", template.text))


@fault("TPL502")
def template_drops_question(patient: Patient) -> Location:
    """Leave the last message to the caller, as a template of another API does."""
    template = rendered_of(patient).template
    return write_template(patient, template, "{% set messages = messages[:-1] %}" + template.text)


@fault("TPL502")
def template_walks_attributes(patient: Patient) -> Location:
    """Hide an attribute walk in a branch that plain conversations do not take."""
    template = rendered_of(patient).template
    walk = "{% if tools %}{{ ''.__class__.__mro__[1].__subclasses__() }}{% endif %}"
    return write_template(patient, template, walk + template.text)


@fault("TPL502")
def template_never_ends(patient: Patient) -> Location:
    """Loop ten billion times."""
    template = rendered_of(patient).template
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    return write_template(patient, template, loops + template.text)


@fault("TPL502")
def template_grows(patient: Patient) -> Location:
    """Double a text sixty times."""
    template = rendered_of(patient).template
    bomb = "{% set ns = namespace(text='xxxxxxxx') %}{% for a in range(60) %}{% set ns.text = ns.text ~ ns.text %}{% endfor %}"
    return write_template(patient, template, bomb + template.text)


@fault("TPL502")
def template_is_number(patient: Patient) -> Location:
    """Put a number where the template should be."""
    template = rendered_of(patient).template
    if template.file.endswith(".gguf"):
        shard: Any = patient.workspace.shard(template.file)
        shard.set_metadata(template.key, 0, (4, None))
        return Location(file=template.file, key=template.key)
    if template.key is None:
        patient.workspace.delete(template.file)
    patient.workspace.json("tokenizer_config.json")["chat_template"] = 0
    return Location(file="tokenizer_config.json", key="chat_template")
