"""Plants TPL501."""

from __future__ import annotations

from typing import Any

from degarble.checks.template.chat_template_missing import role_sign
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.templates.stop_tokens import is_turn_end, read_stop_ids
from degarble.tokenizer.chat_template import ChatTemplate
from degarble.tokenizer.known_tokens import KnownTokens


@fault("TPL501")
def chat_template_missing(patient: Patient) -> Location:
    """Leave out every chat template of a model that was tuned for chat."""
    templates: tuple[ChatTemplate, ...] | None = patient.evidence.find("chat_templates")
    known: KnownTokens | None = patient.evidence.find("known_tokens")
    if not templates or known is None:
        raise NotApplicable("no chat template, or no tokenizer")
    stops = read_stop_ids(patient.evidence.get("token_claims"), known.id_of).all
    if not any(is_turn_end(known.text_of(at) or "") for at in stops) and role_sign(known.added_texts) is None:
        raise NotApplicable("stops at the end of a text, as a base model does")
    for template in templates:
        _drop(patient, template)
    if templates[0].file.endswith(".gguf"):
        return Location(file=templates[0].file, key="tokenizer.chat_template")
    return Location(file="tokenizer_config.json", key="chat_template")


def _drop(patient: Patient, template: ChatTemplate) -> None:
    if template.key is None:
        patient.workspace.delete(template.file)
    elif template.file.endswith(".gguf"):
        shard: Any = patient.workspace.shard(template.file)
        shard.drop_metadata(template.key)
    else:
        patient.workspace.json(template.file).pop("chat_template", None)
