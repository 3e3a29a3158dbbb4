"""WGT226: tokens without an embedding of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from degarble.architectures.interface import Architecture
from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.ordinary_tokens import OrdinaryTokens
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.repeated_rows import repeated_rows
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

MAX_REPEATED = 8
MAX_REPEATED_SHARE = 0.001
SPECIAL_KEYS = ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id", "decoder_start_token_id")
RESTORE = Fix(id="restore-module", safe=False)


@check("WGT226", level=Level.CONTENT, symptom_of=("WGT201", "WGT202", "WGT204", *DAMAGED_FILE, *WRONG_READING))
def embedding_rows_dead(
    modules: Modules,
    profiles: Mapping[str, TensorProfile],
    ordinary_tokens: OrdinaryTokens,
    architecture: Architecture | None = None,
    model_config: ModelConfig | None = None,
) -> Iterator[Finding]:
    """Rows of the embedding (or the head) of ordinary tokens are zero, or many of them are copies of each other.

    ## What it looks for
    Rows of zeros at ids that the tokenizer can produce: any is an error. Bit-identical rows at such ids: more than 8
    and more than 0.1 % of the vocabulary are an error. Ids that are added, special, reserved, unused or bytes, that
    the config names as padding, beginning or end, or that are beyond the tokenizer's are left out. Without a
    tokenizer, zero rows before the padding at the end are a hint. All rows are read. Healthy: 0 zero rows; SmolLM2
    repeats 15 rows of 49,152, four of them ordinary; MiniLM none.

    ## Why output turns to garbage
    A token with a zero or foreign row enters the model as nothing or as another token; in a tied head it can never be
    chosen, or always. Rows get lost when a vocabulary is resized, sharded over ranks, or written in pieces.

    ## What you will see
    Certain words, numbers or a whole script are ignored or never written; the rest is fine. It is easily taken for a
    tokenizer fault.

    ## How to tell it from its look-alikes
    Padding rows, reserved tokens and a zero row for padding are healthy, and a few tokens that training never saw
    share their first values. If the whole matrix is constant, it is WGT204.

    ## How to confirm
    Decode the token ids of the finding and look at their rows in the source model.

    ## How to repair it
    Copy the rows from the source model. Not safe unattended: only the source has them.

    ## References
    Measured here: SmolLM2 ids 36743, 36744, 45175 and 48047 are healthy copies. No published case is known to us.
    """
    special = _special_ids(model_config)
    for module in modules.values():
        info = module.payload
        profile = profiles.get(info.name) if info is not None else None
        is_tied_head = module.kind == "head" and architecture is not None and architecture.tied
        if module.kind not in ("embedding", "head") or profile is None or is_tied_head or len(profile.shape) != 2:
            continue
        if module.form.format in ("plain", "gguf") and not profile.is_zero:
            yield from _zero_rows(module, profile, ordinary_tokens, special)
            if module.kind == "embedding":
                yield from _copies(module, profile, ordinary_tokens, special)


def _special_ids(config: ModelConfig | None) -> frozenset[int]:
    found: set[int] = set()
    for values in (config.values, config.text) if config is not None else ():
        for key in SPECIAL_KEYS:
            value = values.get(key)
            found |= {item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int)}
    return frozenset(found)


def _zero_rows(
    module: StoredModule, profile: TensorProfile, tokens: OrdinaryTokens, special: frozenset[int]
) -> Iterator[Finding]:
    rows = profile.zero_rows.first
    if not rows:
        return
    if tokens.is_known:
        dead: Sequence[int] = [row for row in rows if tokens.is_ordinary(row) and row not in special]
    else:
        padding = _padding(rows, profile.num_rows)
        dead = [row for row in rows if row < padding and row not in special]
    if not dead:
        return
    content = tokens.content(dead[0])
    yield Finding(
        location=replace(module.place(), row=dead[0], token_id=dead[0], token=content),
        message=f"{profile.name}: the rows of {len(dead)} ordinary tokens are zero, the first is id {dead[0]}"
        + (f" ({content!r})" if content is not None else ""),
        severity=None if tokens.is_known else Severity.WARNING,
        confidence=None if tokens.is_known else Confidence.HINT,
        measured={"zero_rows": len(dead), "first": dead[0]},
        bound={"zero_rows_max": 0},
        fold=None,
        fix=RESTORE,
    )


def _padding(rows: Sequence[int], total: int) -> int:
    """Where the run of zero rows at the end begins."""
    start = total
    for row in reversed(rows):
        if row != start - 1:
            break
        start = row
    return start


def _copies(
    module: StoredModule, profile: TensorProfile, tokens: OrdinaryTokens, special: frozenset[int]
) -> Iterator[Finding]:
    """Rows that repeat an earlier one."""
    if not tokens.is_known or module.payload is None:
        return
    groups = repeated_rows(module.reader.raw(module.payload), profile.num_rows)
    ordinary = [[row for row in group if tokens.is_ordinary(row) and row not in special] for group in groups]
    copies = sum(len(group) - 1 for group in ordinary if len(group) > 1)
    if copies <= max(MAX_REPEATED, MAX_REPEATED_SHARE * profile.num_rows):
        return
    largest = max(ordinary, key=len)
    yield Finding(
        location=replace(module.place(), row=largest[1], token_id=largest[1], token=tokens.content(largest[1])),
        message=f"{profile.name}: {copies} ordinary tokens have the row of another one; {len(largest)} share that of "
        f"id {largest[0]} ({tokens.content(largest[0])!r})",
        confidence=Confidence.LIKELY,
        measured={"repeated_rows": copies, "largest_group": len(largest)},
        bound={"repeated_max": max(MAX_REPEATED, int(MAX_REPEATED_SHARE * profile.num_rows))},
        fix=RESTORE,
    )
