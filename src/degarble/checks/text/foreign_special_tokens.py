"""TOK413: files of two tokenizer families lie side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from degarble.checkpoint.json_file import JsonFile
from degarble.checks.text.misfit_story import listed, told
from degarble.evidence.vocabulary_beside import VocabularyBeside
from degarble.finding import Confidence, Finding, Fix, Location
from degarble.registry import check
from degarble.tokenizer.chat_template import ChatTemplate
from degarble.tokenizer.families import Family, identify, names_of
from degarble.tokenizer.foreign_tokens import ForeignFile, Misfit, foreign_files, votes
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim

FETCH = Fix(id="fetch-tokenizer-files", safe=False)
REGENERATE = Fix(id="regenerate-tokenizer-config", safe=False)
REGENERATED = ("tokenizer_config.json", "special_tokens_map.json")
"""Files that repeat what tokenizer.json and the ids in the configs say."""
MAX_SHOWN = 3


@check("TOK413")
def foreign_special_tokens(
    known_tokens: KnownTokens,
    token_families: tuple[Family, ...],
    token_claims: tuple[TokenClaim, ...],
    json_files: Mapping[str, JsonFile],
    chat_templates: tuple[ChatTemplate, ...] | None = None,
    embedding_rows: int | None = None,
) -> Iterator[Finding]:
    """The files around a tokenizer mix the special tokens of two published families.

    ## What it looks for
    The vocabulary itself (tokenizer.json, tokenizer.model, or the token list of a GGUF file) is held against a table of
    published families: which special tokens belong together, and with which ids. Then every other file is held against
    the vocabulary: special_tokens_map.json, tokenizer_config.json, added_tokens.json, the ids of config.json and
    generation_config.json, a second vocabulary, the markers of the chat template, the ids of GGUF metadata. Where what
    does not fit is what another family publishes, both families and the misplaced file are named. If most files agree
    against the vocabulary, the vocabulary is the misplaced one. The architecture counts for nothing.

    ## Why output turns to garbage
    Loaders do not compare these files. A text that the vocabulary lacks is appended as a new id, silently: the model
    has never seen a new BOS, and never emits a new EOS, so no answer ends. An id past the embedding crashes the engine,
    or reads other memory. An id of another family is an ordinary word here: it is printed, and generation goes on.
    A marker of a foreign template is cut into several ordinary tokens, and the prompt is not the one trained on.

    ## What you will see
    Answers that run to the token limit, often with a second turn made up by the model; an odd word where the answer
    should have ended; blank boxes; out-of-range errors from the embedding. Perplexity over plain text stays good.

    ## How to tell it from its look-alikes
    Fine-tunes that add tokens of another family to tokenizer.json itself (ChatML on Llama 3, DeepSeek's markers in an
    R1 distill of Qwen) are consistent and silent: only what the vocabulary contradicts counts. A single generic text
    such as `</s>` names no family; it is TOK401. A vocabulary that is in no table is judged by TOK401 and TOK402 alone.
    Two releases of one maker share their texts, and a map that only has texts fits both.

    One story needs setting right. It tells of a DeepSeek deployment whose `<|EOT|>` should have been 100001 and was
    98309, decoding to the private-use character U+E005. No DeepSeek generation has `<|EOT|>` at 100001: that id is the
    end of sentence of V2 and of the first LLMs, and in V3 the ordinary word 普洱茶; `<|EOT|>` is 32021 in Coder and
    128805 in V3, and the first LLMs and VL have no such token at all. No id of V3 decodes to a private-use character.
    What does happen is V2's eos id 100001 in a generation_config.json beside V3's tokenizer: the word is printed, and
    the answer never ends. That is this finding, at that file.

    ## How to confirm
    Encode the end-of-turn text with the tokenizer file alone: it must be one id, and that id must be in the
    `eos_token_id` of generation_config.json. Compare the length of the loaded tokenizer with that of the file.

    ## How to repair it
    Fetch the named file again from the release that the weights come from. Not safe unattended: the files show that
    they differ, not which of two releases the weights were trained with; the height of the embedding often tells.
    tokenizer_config.json and special_tokens_map.json can be written again from tokenizer.json and the ids in the
    configs, less the roles and settings that only they held.

    ## References
    oobabooga/textgen#931, vllm-project/vllm#43336, keras-team/keras-hub#2607, deepseek-ai/DeepSeek-Coder#136
    """
    if not token_families:
        return
    found = foreign_files(known_tokens, token_families, token_claims, chat_templates or ())
    tokenizer_file = known_tokens.tokenizer.file
    rows = list(_rows(json_files, embedding_rows))
    outvoting = [file for file in found if _is_outvoted(file, found, token_families, token_claims, rows)]
    if outvoting:
        yield _tokenizer_foreign(outvoting, tokenizer_file, known_tokens, token_families, embedding_rows)
        found = [file for file in found if file not in outvoting]
    for file in found:
        yield _file_foreign(file, tokenizer_file, known_tokens, token_families, embedding_rows)


@check("TOK413")
def foreign_vocabulary(
    known_tokens: KnownTokens,
    token_families: tuple[Family, ...],
    vocabularies_beside: tuple[VocabularyBeside, ...],
) -> Iterator[Finding]:
    """A second vocabulary in the folder, read by another loader, is of another family."""
    home = {family.name for family in token_families}
    for other in vocabularies_beside if home else ():
        theirs = identify(other.pieces())
        if theirs and home.isdisjoint(family.name for family in theirs):
            yield Finding(
                location=Location(file=other.file),
                places=(Location(file=other.file), Location(file=known_tokens.tokenizer.file)),
                message=f"{other.file} is the vocabulary of {names_of(theirs)}, and {known_tokens.tokenizer.file} that of "
                f"{names_of(token_families)}: which one is read depends on the loader, and only one fits the weights",
                measured={"family": names_of(theirs), "tokens": len(other.ids)},
                bound={"family": names_of(token_families), "tokens": known_tokens.tokenizer.num_ids},
                fix=FETCH,
            )


def _rows(json_files: Mapping[str, JsonFile], embedding_rows: int | None) -> Iterator[tuple[str, int]]:
    """Heights that tell a release: of the embedding, else of the config."""
    config = json_files["config.json"].value if "config.json" in json_files else None
    stated = config.get("vocab_size") if isinstance(config, dict) else None
    height = stated if embedding_rows is None else embedding_rows
    if type(height) is int:
        yield "config.json", height


def _is_outvoted(
    file: ForeignFile,
    found: Sequence[ForeignFile],
    home: Sequence[Family],
    claims: Sequence[TokenClaim],
    rows: Sequence[tuple[str, int]],
) -> bool:
    """Whether two files or more, and more than speak for the vocabulary's own family, agree on the foreign one."""
    names = {family.name for family in file.families}
    agreeing = {other.file for other in found if not names.isdisjoint(family.name for family in other.families)}
    spoken = votes(file, home, claims, rows)
    against = len(agreeing | {name for name, is_foreign in spoken.items() if is_foreign})
    own = len({name for name, is_foreign in spoken.items() if not is_foreign} - agreeing)
    return len(agreeing) > 1 and against > own


def _tokenizer_foreign(
    found: Sequence[ForeignFile], file: str, known: KnownTokens, home: Sequence[Family], rows: int | None
) -> Finding:
    key = "tokenizer.ggml.tokens" if known.is_gguf else None
    others = [name for other in found for name in [other.file] if name != file]
    example = found[0].contradictions[0]
    return Finding(
        location=Location(file=file, key=key, token=example.text, token_id=example.token_id),
        places=(Location(file=file, key=key), *_places(found)),
        message=f"{file} is the vocabulary of {names_of(home)}, and {listed(others)} {'are' if others[1:] else 'is'} of "
        f"{names_of(found[0].families)}: {told(found[0].contradictions, known, rows)}",
        measured={"family": names_of(home), "misfits": sum(len(other.contradictions) for other in found)},
        bound={"family": names_of(found[0].families), "misfits": 0},
        fix=FETCH,
    )


def _file_foreign(
    found: ForeignFile, tokenizer_file: str, known: KnownTokens, home: Sequence[Family], rows: int | None
) -> Finding:
    example = found.contradictions[0]
    where = "the token list" if found.file == tokenizer_file else tokenizer_file
    named = found.file if found.file != tokenizer_file or example.key is None else f"{found.file}: {example.key}"
    return Finding(
        location=Location(file=found.file, key=example.key, token=example.text, token_id=example.token_id),
        places=(*_places([found]), Location(file=tokenizer_file)),
        message=f"{named} is of {names_of(found.families)}, and {where} is of {names_of(home)}: "
        f"{told(found.contradictions, known, rows)}",
        confidence=Confidence.PROVEN if _is_sure(found) else Confidence.LIKELY,
        measured={"family": names_of(found.families), "misfits": len(found.contradictions)},
        bound={"family": names_of(home), "misfits": 0},
        fix=REGENERATE if found.file in REGENERATED and tokenizer_file == "tokenizer.json" else FETCH,
    )


def _is_sure(found: ForeignFile) -> bool:
    """A role that another special token has may be a choice of the fine-tune; everything else cannot be right."""
    return any(item.kind is not Misfit.OTHER_ROLE for item in found.contradictions)


def _places(found: Sequence[ForeignFile]) -> Iterator[Location]:
    for file in found:
        for item in file.contradictions:
            yield Location(file=item.file, key=item.key, token=item.text, token_id=item.token_id)
