"""What faults around chat templates have in common: the template that loaders prefer, and writing it back."""

from __future__ import annotations

from typing import Any

from degarble.faults.interface import NotApplicable, Patient
from degarble.finding import Location
from degarble.templates.renderings import TemplateRenderings
from degarble.tokenizer.chat_template import ChatTemplate


def rendered_of(patient: Patient) -> TemplateRenderings:
    """The healthy template with what it writes. Raises NotApplicable where there is none."""
    found: tuple[TemplateRenderings, ...] | None = patient.evidence.find("renderings")
    if not found:
        raise NotApplicable("no chat template")
    return found[0]


def write_template(patient: Patient, template: ChatTemplate, text: Any) -> Location:
    """Replace a template where it stands; the place of the fault. Raises NotApplicable if nothing changes."""
    if text == template.text:
        raise NotApplicable("the template has nothing to change")
    if template.key is None:
        patient.workspace.write(template.file, text.encode("utf-8", "surrogatepass"))
    elif template.file.endswith(".gguf"):
        shard: Any = patient.workspace.shard(template.file)
        shard.set_metadata(template.key, text)
    else:
        name, _, number = template.key.partition(".")
        config = patient.workspace.json(template.file)
        if number:
            config[name][int(number)]["template"] = text
        else:
            config[name] = text
    return Location(file=template.file, key=template.key)
