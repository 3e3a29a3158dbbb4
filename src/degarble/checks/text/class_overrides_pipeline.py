"""TOK418: the tokenizer class that a config names would put its own pipeline in the place of tokenizer.json's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from degarble.checkpoint.json_file import JsonFile
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.cut_families import Recognised
from degarble.tokenizer.spelling import Spelling

METASPACE_CLASSES = ("Llama", "CodeLlama", "Gemma")
"""Their pipelines write U+2581 for a space."""
QWEN = "Qwen2"
QWEN_CUTS = "qwen2"
KEY = "tokenizer_class"
FILES = ("tokenizer_config.json", "config.json")
"""The second one is asked where the first one names no class."""
NAME_CLASS = Fix(id="name-neutral-tokenizer-class", safe=False)
MEASURED = (
    "transformers 5.13 and 5.15 do so without a word (DeepSeek-V3: 0 of 240 texts came back), 4.57, 5.0 and 5.24 "
    "read tokenizer.json"
)


@check("TOK418", severity=Severity.WARNING, symptom_of=("TOK413",))
def class_overrides_pipeline(
    stored_tokenizer: StoredTokenizer,
    spelling: Spelling,
    json_files: Mapping[str, JsonFile],
    cut_family: Recognised | None = None,
) -> Iterator[Finding]:
    """The config names a tokenizer class that would replace the pipeline stored in tokenizer.json.

    ## What it looks for
    `tokenizer_class` in tokenizer_config.json (in config.json, where the first has none) against the pieces: a Llama,
    CodeLlama or Gemma class, whose pipeline writes U+2581 for a space, over a byte-level vocabulary, which writes `Ġ`;
    and the Qwen2 class, which brings Qwen's regex and NFC along, over the vocabulary of another known family.

    ## Why output turns to garbage
    Some versions of transformers build the pipeline of the named class around the stored vocabulary. Under a Llama
    class spaces and all non-ASCII characters find no piece at encode time and are dropped, or `Ġ` and `Ċ` are shown at
    decode time. With Qwen2's cuts over other merges the ids of plain text change.

    ## What you will see
    Prompts without spaces, so answers beside the point; `Ġ` between words; or nothing, with a version that reads
    tokenizer.json. Measured with DeepSeek-V3's published files: transformers 5.13.0 and 5.15.1 returned 0 of 240 texts,
    4.57.1, 5.0.0 and 5.24.0 all of them.

    ## How to tell it from its look-alikes
    DeepSeek-V3, R1 and their distilled models are published in this way, and the finding is true of them: it depends on
    the version whether anything happens, hence a warning. A neutral class (`PreTrainedTokenizerFast`), a byte-level
    class, and a Llama class over Llama 2's vocabulary are silent. A decoder that is wrong in tokenizer.json is TOK407.

    ## How to confirm
    `AutoTokenizer.from_pretrained(DIR)`, then decode the ids of `x != y`: `x!=y` is the fault.

    ## How to repair it
    Name `PreTrainedTokenizerFast`, or use a version that reads tokenizer.json. Not safe unattended: the Llama class
    also writes BOS where `add_bos_token` says so, and the neutral one does only what the post-processor says.

    ## References
    huggingface/transformers#45488, huggingface/transformers#48206, huggingface/transformers#46489,
    vllm-project/vllm#43336, raullenchai/Rapid-MLX#793
    """
    named = _named(json_files)
    if named is None:
        return
    place, name = named
    base = name.removesuffix("Fast").removesuffix("Tokenizer")
    if base in METASPACE_CLASSES and spelling.is_byte_level:
        yield _finding(place, name, f"the pieces of {stored_tokenizer.file} are written in {spelling.name}", "U+2581")
    elif base == QWEN and cut_family is not None and cut_family.family.name != QWEN_CUTS:
        yield _finding(place, name, f"the vocabulary is {cut_family.family.name}'s", "Qwen's regex and NFC")


def _named(json_files: Mapping[str, JsonFile]) -> tuple[Location, str] | None:
    for file in FILES:
        value: Any = json_files[file].value if file in json_files else None
        name = value.get(KEY) if isinstance(value, dict) else None
        if isinstance(name, str):
            return Location(file=file, key=KEY), name
    return None


def _finding(place: Location, name: str, stored: str, brought: str) -> Finding:
    return Finding(
        location=place,
        message=f"{place.file}: {KEY} is {name!r:.80}, whose pipeline brings {brought} along; {stored}. Some versions put "
        f"the class's pipeline in its place: {MEASURED}",
        measured={"tokenizer_class": name[:80]},
        bound={"tokenizer_class": "PreTrainedTokenizerFast, or a class of the same pipeline"},
        fix=NAME_CLASS,
        predicts="spaces and non-ASCII text vanish from prompts",
    )
