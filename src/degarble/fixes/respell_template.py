"""Chat templates: markers that only look like a token, and a BOS too many."""

from __future__ import annotations

import re

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.templates.markers import Fault, MarkerTable
from degarble.templates.renderings import TemplateRenderings
from degarble.tokenizer.chat_template import ChatTemplate

BOS_OUTPUT = re.compile(r"\{\{-?\s*bos_token\s*-?\}\}")


@repair("spell-marker-as-token")
def spell_marker_as_token(job: Job) -> None:
    """Write markers of the chat template as the tokenizer has them.

    ## What it changes
    The text of the template, wherever it writes a marker that looks like exactly one token and is another text.

    ## Why there is one answer
    Only one token looks like the marker, and a marker that is no token means nothing to the model.

    ## What it cannot do
    Repair a template that puts its markers together from parts, or one of another family: that has to be fetched.
    """
    markers: MarkerTable = job.need("markers")
    for tried in _named(job):
        texts = [tried.template.text, *(one.text for one in tried.results.values() if one.text), *tried.source.written]
        meant = {
            bad.text: bad.similar
            for text in texts
            for bad in markers.bad_markers(text)
            if bad.fault is Fault.LOOK_ALIKE and bad.similar is not None
        }
        changed = tried.template.text
        for wrong in sorted(meant, key=len, reverse=True):
            changed = changed.replace(wrong, meant[wrong])
        _write(job, tried.template, changed, "with the tokenizer's markers")


@repair("write-bos-once")
def write_bos_once(job: Job) -> None:
    """Take the second BOS out of the chat template.

    ## What it changes
    The first of the places at which the template itself writes `bos_token`, or the second of two equal texts in a row.

    ## Why there is one answer
    The template writes BOS twice in front of one prompt, whatever the tokenizer adds.

    ## What it cannot do
    Choose who is to write BOS where template and tokenizer both do, or neither does.
    """
    if job.finding.fix is None or not job.finding.fix.safe:
        raise job.cannot("which place is to write BOS is not in the files", files=[job.finding.location.file or ""])
    for tried in _named(job):
        text = tried.template.text
        if BOS_OUTPUT.search(text):
            text = BOS_OUTPUT.sub("", text, count=1)
        else:
            bos = job.need("special_token_texts").get("bos_token") or ""
            text = text.replace(bos + bos, bos, 1) if bos else text
        _write(job, tried.template, text, "with one BOS")


def _named(job: Job) -> list[TemplateRenderings]:
    """The templates at the finding's places."""
    found: tuple[TemplateRenderings, ...] = job.need("renderings")
    places = {(place.file, place.key) for place in job.places}
    return [tried for tried in found if (tried.template.file, tried.template.key) in places]


def _write(job: Job, template: ChatTemplate, text: str, what: str) -> None:
    if text == template.text:
        raise CannotRepair(f"{template.file} puts it together from parts")
    if template.key is None:
        job.write_file(template.file, text.encode("utf-8", "surrogatepass"), what)
    elif template.file.endswith(".gguf"):
        job.set_metadata(template.file, template.key, text, None, what)
    else:
        number = template.key.partition(".")[2]
        job.set_key(template.file, f"{template.key}.template" if number else template.key, text, what)
