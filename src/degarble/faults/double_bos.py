"""Plants TPL504."""

from __future__ import annotations

from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.template_edit import rendered_of, write_template
from degarble.finding import Location
from degarble.templates.bos import OWN_TEXTS, leading_count
from degarble.templates.conversations import ASK_PROMPT
from degarble.tokenizer.known_tokens import KnownTokens


def _bos(patient: Patient) -> tuple[str, str]:
    """BOS, and a prompt that begins with it once. Raises NotApplicable."""
    bos = (
        patient.evidence.get("special_token_texts").get("bos_token") if patient.evidence.find("token_claims") else None
    )
    text = rendered_of(patient).text(ASK_PROMPT)
    if not bos or text is None or leading_count(text, bos) != 1 or patient.evidence.find("known_tokens") is None:
        raise NotApplicable("no template that writes one BOS")
    return bos, text


@fault("TPL504")
def double_bos(patient: Patient) -> Location:
    """Write BOS once more in front."""
    _bos(patient)
    template = rendered_of(patient).template
    return write_template(patient, template, "{{ bos_token }}" + template.text)


@fault("TPL504")
def template_without_bos(patient: Patient) -> Location:
    """Leave BOS out of the template of a model that needs it."""
    bos, _ = _bos(patient)
    template = rendered_of(patient).template
    if template.file.endswith(".gguf") or (bos not in OWN_TEXTS and "[INST]" not in template.text):
        raise NotApplicable("llama.cpp adds it, or the model can do without")
    return write_template(patient, template, "{% set bos_token = '' %}" + template.text)


@fault("TPL504")
def turn_marker_added_as_bos(patient: Patient) -> Location:
    """Let the tokenizer add a BOS that is the marker of turns."""
    bos, text = _bos(patient)
    known: KnownTokens = patient.evidence.get("known_tokens")
    if text.count(bos) < 2:
        raise NotApplicable("BOS is not the marker of turns")
    if known.is_gguf:
        shard: Any = patient.workspace.shard(known.tokenizer.file)
        shard.set_metadata("tokenizer.ggml.add_bos_token", True, (7, None))
        return Location(file=known.tokenizer.file, key="tokenizer.ggml.add_bos_token")
    patient.workspace.json("tokenizer_config.json")["add_bos_token"] = True
    return Location(file="tokenizer_config.json", key="add_bos_token")


@fault("TPL504")
def post_processor_adds_two(patient: Patient) -> Location:
    """Let the post-processor write BOS twice."""
    bos, _ = _bos(patient)
    known: KnownTokens = patient.evidence.get("known_tokens")
    if known.tokenizer.file != "tokenizer.json":
        raise NotApplicable("no tokenizer.json")
    first = {"SpecialToken": {"id": bos, "type_id": 0}}
    text: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    document = patient.workspace.json("tokenizer.json")
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, first, text],
        "pair": [first, first, text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {bos: {"id": bos, "ids": [known.id_of(bos)], "tokens": [bos]}},
    }
    return Location(file="tokenizer.json", key="post_processor")
