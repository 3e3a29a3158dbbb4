"""What the model's own tokenizer and template make of the probes' prompts: the numbers an endpoint has to report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from degarble.probe.exchange import Kind
from degarble.probe.probe_run import Expected
from degarble.probe.prompts import prompts
from degarble.templates.bos import adders
from degarble.templates.program import Program
from degarble.tokenizer.bpe_encoder import BpeEncoder
from degarble.tokenizer.chat_template import ChatTemplate
from degarble.tokenizer.encode import Encoder
from degarble.tokenizer.interface import Tokenizer


def expected_of(
    tokenizer: Tokenizer,
    templates: Sequence[ChatTemplate],
    special_texts: Mapping[str, str],
    tokenizer_config: Mapping[str, Any],
) -> Expected:
    """Counts of every counted text; those of chats only where a template renders them."""
    encoder = Encoder(tokenizer) if tokenizer.raw else BpeEncoder(tokenizer)
    bos = special_texts.get("bos_token", "")
    adder = next(adders(tokenizer, tokenizer_config, bos), None)
    leading = adder.count if adder is not None else 0
    counts = {f"{Kind.TEXT} {text}": leading + len(encoder.encode(text)) for text in prompts().counted}
    for text, rendered in _rendered(templates, special_texts):
        counts[f"{Kind.CHAT} {text}"] = len(encoder.encode(rendered))
    return Expected(
        counts=counts,
        special_texts=tuple(token.content for token in tokenizer.added_tokens.values() if token.special),
        num_ids=tokenizer.num_ids,
    )


def _rendered(templates: Sequence[ChatTemplate], special_texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each text as the only message of a chat."""
    if not templates:
        return
    template = next((one for one in templates if one.name == "default"), templates[0])
    program = Program(template.text)
    for text in prompts().counted:
        program.refill()
        messages = [{"role": "user", "content": text}]
        shown = program.run({**special_texts, "messages": messages, "add_generation_prompt": True, "tools": None})
        if isinstance(shown, str):
            yield text, shown
