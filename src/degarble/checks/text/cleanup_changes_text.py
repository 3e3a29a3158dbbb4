"""TOK415: a clean-up of spaces alters what the model wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checkpoint.json_file import JsonFile
from degarble.engines.version_range import in_range
from degarble.evidence.store import Settings
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check

SWITCH_OFF = Fix(id="switch-cleanup-off", safe=True)

FILE = "tokenizer_config.json"
FLAG = "clean_up_tokenization_spaces"
FORCE = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
IGNORED_SINCE = "5.13"
"""transformers 4.57.1 and 5.0.0 clean BPE text, 5.13.0, 5.15.1 and 5.24.0 do not (measured with Llama 3.1's files)."""
REPLACED = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    *((f" {short}", short) for short in ("n't", "'m", "'s", "'ve", "'re")),
)
"""What transformers replaces, in this order."""
PROBES = (
    "x != y",
    "ls . ..",
    "f(a , b)",
    "a ? b : c",
    "print ( 'a' , ' ' )",
    "cd .git",
    "wait ...",
    "I 'm",
    "plain text",
)


@check("TOK415", severity=Severity.WARNING)
def cleanup_changes_text(
    json_files: Mapping[str, JsonFile], settings: Settings, stored_tokenizer: StoredTokenizer | None = None
) -> Iterator[Finding]:
    """A clean-up made for BERT takes real spaces out of the text that the model wrote.

    ## What it looks for
    `clean_up_tokenization_spaces` in tokenizer_config.json (any value that Python takes for true), the switch that
    forces it on BPE, and `cleanup` of a WordPiece decoder in tokenizer.json. The replacements run on probe texts, and
    those that change are listed.

    ## Why output turns to garbage
    ` !=` becomes `!=`, ` .git` becomes `.git`, ` 's` becomes `'s`: harmless in prose, wrong in code, shell commands and
    tables. A stream does not do it, so streamed and whole answers differ.

    ## What you will see
    Spaces before `.`, `?`, `!`, `,` and quotes are missing in whole answers; code that does not run; `decode(encode(x))`
    is not `x`.

    ## How to tell it from its look-alikes
    All published Llama 3 files have the flag, and transformers since 5.13 ignores it for BPE (4.57.1 and 5.0.0 obey):
    an info, and a warning only where `--engine transformers@VERSION` names an older one. Other models than BPE are
    cleaned by every version. Spaces lost at the start of a text or in every token are TOK414.

    ## How to confirm
    `tokenizer.decode(tokenizer.encode("x != y"))` with the version of transformers that serves.

    ## How to repair it
    Set the flag to false. Safe unattended: no other file depends on it, and no token changes.

    ## References
    huggingface/transformers#44915, huggingface/transformers#44914, ml-explore/mlx-lm#1347,
    huggingface/swift-transformers#391
    """
    config = json_files[FILE].value if FILE in json_files else None
    if not isinstance(config, dict) or not config.get(FLAG):
        return
    kind = stored_tokenizer.model.get("type") if stored_tokenizer is not None else None
    forced = bool(config.get(FORCE))
    obeyed = forced or (kind is not None and kind != "BPE") or _is_older_transformers(settings)
    altered = [probe for probe in PROBES if cleaned(probe) != probe]
    yield Finding(
        location=Location(file=FILE, key=FLAG),
        places=tuple(Location(file=FILE, key=key) for key in ([FLAG, FORCE] if forced else [FLAG])),
        message=f"{FILE}: {FLAG} is {config[FLAG]!r}: {altered[0]!r} is read back as {cleaned(altered[0])!r} "
        + _where(str(kind or "unknown"), forced=forced, obeyed=obeyed),
        severity=None if obeyed else Severity.INFO,
        measured={"altered": len(altered), "probes": len(PROBES)},
        bound={"altered": 0},
        fix=SWITCH_OFF,
        fold="obeyed" if obeyed else "ignored",
    )


def cleaned(text: str) -> str:
    """What the clean-up makes of a text."""
    for old, new in REPLACED:
        text = text.replace(old, new)
    return text


def _is_older_transformers(settings: Settings) -> bool:
    if settings.engine is None or settings.engine.lower() != "transformers" or settings.engine_version is None:
        return False
    return in_range(settings.engine_version, f"<{IGNORED_SINCE}") is True


def _where(kind: str, *, forced: bool, obeyed: bool) -> str:
    if forced:
        return f"by every transformers, since {FORCE} is set too"
    if kind not in ("BPE", "unknown"):
        return f"by every transformers, since the model is {kind}"
    if obeyed:
        return f"by this transformers; {IGNORED_SINCE} and later ignore the flag for BPE"
    return f"by transformers before {IGNORED_SINCE}; later ones ignore the flag for BPE"


@check("TOK415", severity=Severity.WARNING)
def decoder_cleans_up(stored_tokenizer: StoredTokenizer) -> Iterator[Finding]:
    """The WordPiece decoder of the tokenizers library has a clean-up of its own, on unless it is switched off."""
    for step in stored_tokenizer.stages("decoder"):
        if step.kind == "WordPiece" and step.settings.get("cleanup") is not False:
            yield Finding(
                location=Location(file=stored_tokenizer.file, key=f"{step.key}.cleanup"),
                message=f"{stored_tokenizer.file}: {step.key}: the WordPiece decoder cleans up spaces: "
                f"{PROBES[0]!r} is read back as {cleaned(PROBES[0])!r}",
                measured={"cleanup": True},
                bound={"cleanup": False},
                fix=SWITCH_OFF,
            )
