"""TPL504: a prompt would begin with two BOS tokens, or with none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from degarble.checkpoint.json_file import JsonFile
from degarble.checks.template.template_place import place_of, title_of
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.templates.bos import Adder, adders, leading_count, needed_bos
from degarble.templates.conversations import ASK_PROMPT
from degarble.templates.markers import MarkerTable
from degarble.templates.renderings import TemplateRenderings
from degarble.tokenizer.families import Family
from degarble.tokenizer.known_tokens import KnownTokens

WRITE_ONCE = Fix(id="write-bos-once", safe=True)
CHOOSE = Fix(id="write-bos-once", safe=False)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One template's prompt, and who writes BOS into it."""

    tried: TemplateRenderings
    text: str
    bos: str
    written: int
    """BOS tokens that the template writes at the beginning."""
    adders: tuple[Adder, ...]

    @property
    def added(self) -> int:
        """BOS tokens that the tokenizer adds to a text."""
        return max((adder.count for adder in self.adders), default=0)

    @property
    def adder(self) -> Adder:
        """The place that adds most."""
        return max(self.adders, key=lambda adder: adder.count)

    @property
    def is_turn_marker(self) -> bool:
        """Whether turns open with the same token, as with SmolLM2's `<|im_start|>`."""
        return self.text.count(self.bos) > self.written


@check("TPL504", severity=Severity.WARNING, symptom_of=("TOK401", "TOK402", "TOK413", "TOK418", "TPL502", "TPL503"))
def double_bos(
    renderings: tuple[TemplateRenderings, ...],
    special_token_texts: Mapping[str, str],
    known_tokens: KnownTokens,
    markers: MarkerTable,
    token_families: tuple[Family, ...],
    json_files: Mapping[str, JsonFile],
) -> Iterator[Finding]:
    """A chat prompt begins with two BOS tokens, or with none where the model needs one.

    ## What it looks for
    How many BOS tokens the template writes in front, and how many the tokenizer adds to every text: by the
    post-processor of tokenizer.json, by `add_bos_token` and the tokenizer class, by GGUF's `add_bos_token` or
    llama.cpp's default. A warning: the template alone writes two; the post-processor adds two; the template writes none
    although the model was never trained without (Gemma, Llama 3, DeepSeek; Llama 2 and Mistral); the tokenizer adds a
    BOS that is also the marker of turns, so that every text begins with an opened turn.

    ## Why output turns to garbage
    BOS is where attention rests that has nothing to look at. Models that were trained with it depend on it: Gemma 7B
    without BOS has a perplexity of 5.9e9 where 3.46 is right. A second one is milder, and costs some quality.

    ## What you will see
    Without BOS, for Gemma, nonsense from the first word; for others, weaker answers. With two, small losses in
    benchmarks that nobody can explain, and a warning in the log of llama.cpp.

    ## How to tell it from its look-alikes
    As published, DeepSeek-V3, Llama 3.1 and Gemma 3 write BOS in the template *and* add it to texts. That is right as
    long as a rendered prompt is encoded without special tokens, as transformers, vLLM and SGLang do for chat; llama.cpp
    takes one away. It is an info, because scripts that call `tokenizer(apply_chat_template(…, tokenize=False))` get two.
    Models without BOS (Qwen) and templates that leave it to the tokenizer (Zephyr) are silent or an info.

    ## How to confirm
    Render a prompt, encode it with `add_special_tokens=False`, and count the BOS ids in front. It must be one.

    ## How to repair it
    Take out the second one, or put `{{ bos_token }}` in front. Safe unattended where the template alone writes two; not
    where it writes none, because the other places have to agree with the choice.

    ## References
    EleutherAI/lm-evaluation-harness#1465, vllm-project/vllm#27515, sgl-project/sglang#888, huggingface/open-r1#462,
    abetlen/llama-cpp-python#1439, unslothai/unsloth#10312
    """
    declared = special_token_texts.get("bos_token")
    config = json_files["tokenizer_config.json"].value if "tokenizer_config.json" in json_files else None
    for tried in renderings[:1]:
        needed = needed_bos(token_families, declared, markers.tokens, tried.template.text)
        text = tried.text(ASK_PROMPT)
        bos = declared or needed
        if text is None or not bos:
            continue
        yield from _judge(_prompt(tried, text, bos, known_tokens, config), needed, declared)


def _prompt(tried: TemplateRenderings, text: str, bos: str, known: KnownTokens, config: object) -> Prompt:
    settings: Mapping[str, Any] = config if isinstance(config, dict) else {}
    return Prompt(
        tried=tried,
        text=text,
        bos=bos,
        written=leading_count(text, bos),
        adders=tuple(adders(known.tokenizer, settings, bos)),
    )


def _judge(prompt: Prompt, needed: str | None, declared: str | None) -> Iterator[Finding]:
    """At most one warning from the template and one from the tokenizer; an info where there is none."""
    title, bos, is_gguf = title_of(prompt.tried.template), prompt.bos, prompt.tried.template.file.endswith(".gguf")
    warned = False
    if prompt.written > 1:
        warned = True
        yield _finding(prompt, f"{title} writes {bos!r} {prompt.written} times in front of a prompt", WRITE_ONCE)
    elif prompt.written == 0 and needed is not None and not (is_gguf and prompt.added):
        warned = True
        why = "" if declared else "; no file calls it the bos_token, so `{{ bos_token }}` is empty"
        yield _finding(
            prompt, f"{title} writes no {bos!r}, and models with this token were never trained without it{why}", CHOOSE
        )
    if prompt.added > 1 or (prompt.added and prompt.written and prompt.is_turn_marker):
        warned = True
        yield _tokenizer_finding(prompt)
    if not warned and prompt.added and (prompt.written or not is_gguf):
        yield _note(prompt, title)


def _finding(prompt: Prompt, message: str, fix: Fix) -> Finding:
    return Finding(
        location=place_of(prompt.tried.template),
        message=message,
        measured={"template": prompt.written, "tokenizer": prompt.added},
        bound={"template": 1},
        fix=fix,
    )


def _tokenizer_finding(prompt: Prompt) -> Finding:
    adder = prompt.adder
    what = f"adds {prompt.bos!r} to every text"
    if adder.count > 1:
        what = f"adds {prompt.bos!r} {adder.count} times to every text"
    elif prompt.is_turn_marker:
        what += ", and turns open with the same token: every text begins with an opened turn, a chat prompt with two"
    return Finding(
        location=Location(file=adder.file, key=adder.key),
        places=(Location(file=adder.file, key=adder.key), place_of(prompt.tried.template)),
        message=f"{adder.file}: {adder.key} {what}",
        measured={"template": prompt.written, "tokenizer": adder.count},
        bound={"template": 1, "tokenizer": 1 if adder.count > 1 else 0},
        fix=CHOOSE,
    )


def _note(prompt: Prompt, title: str) -> Finding:
    """Right for those who encode as the file is meant to be used."""
    adder = prompt.adder
    if prompt.written:
        message = (
            f"{title} writes {prompt.bos!r}, and {adder.file}: {adder.key} adds it to texts: encode rendered prompts with "
            "add_special_tokens=False, or they begin with two"
        )
    else:
        message = (
            f"{title} writes no {prompt.bos!r}, and {adder.file}: {adder.key} adds it to texts: chat prompts have one only "
            "where they are encoded with special tokens"
        )
    return Finding(
        location=place_of(prompt.tried.template),
        places=(place_of(prompt.tried.template), Location(file=adder.file, key=adder.key)),
        message=message,
        severity=Severity.INFO,
        measured={"template": prompt.written, "tokenizer": prompt.added},
        bound={"sum": 1},
        fold="written and added",
    )
