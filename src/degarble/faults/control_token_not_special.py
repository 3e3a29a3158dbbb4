"""Plants TOK405."""

from __future__ import annotations

from typing import Any

import numpy as np

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.token_edit import known_tokens_of, role_texts, tokenizer_document
from degarble.finding import Location
from degarble.tokenizer.gguf_vocabulary import NORMAL
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.sentencepiece_pieces import read_pieces, with_kind


def _ends(patient: Patient) -> list[str]:
    """Texts of BOS and EOS."""
    texts = role_texts(patient.evidence.find("token_claims") or ())
    return sorted({texts[role] for role in ("bos_token", "eos_token") if role in texts})


@fault("TOK405")
def control_token_not_special(patient: Patient) -> Location:
    """Take the special flag from BOS or EOS in tokenizer.json."""
    document = tokenizer_document(patient)
    ends = _ends(patient)
    entry = patient.pick(e for e in document["added_tokens"] if e["content"] in ends and e["special"])
    entry["special"] = False
    return Location(file=known_tokens_of(patient).tokenizer.file, key="added_tokens", token=entry["content"])


@fault("TOK405")
def control_token_not_added(patient: Patient) -> Location:
    """Take BOS or EOS out of the added tokens and leave it in the vocabulary, as a converter does."""
    document = tokenizer_document(patient)
    ends = _ends(patient)
    vocab = document["model"]["vocab"]
    entry = patient.pick(e for e in document["added_tokens"] if e["content"] in ends and e["content"] in vocab)
    document["added_tokens"].remove(entry)
    return Location(file=known_tokens_of(patient).tokenizer.file, key="added_tokens", token=entry["content"])


@fault("TOK405")
def gguf_control_typed_normal(patient: Patient) -> Location:
    """Type a turn marker, BOS or EOS as an ordinary token."""
    known = known_tokens_of(patient)
    if not known.is_gguf:
        raise NotApplicable("not a GGUF file")
    shard: Any = patient.workspace.shard(known.tokenizer.file)
    if "tokenizer.ggml.token_type" not in shard.metadata:
        raise NotApplicable("no token types")
    at = patient.pick(_in_use(patient, known))
    types = np.array(shard.metadata["tokenizer.ggml.token_type"], np.int32)
    types[at] = NORMAL
    shard.set_metadata("tokenizer.ggml.token_type", types)
    return Location(file=known.tokenizer.file, key="tokenizer.ggml.token_type", token_id=at)


def _in_use(patient: Patient, known: KnownTokens) -> list[int]:
    """Control tokens with the role of BOS or EOS, or written by the template."""
    named = {c.token_id for c in patient.evidence.find("token_claims") or () if c.role in ("bos_token", "eos_token")}
    templates = [template.text for template in patient.evidence.find("chat_templates") or ()]
    return [
        token.token_id
        for token in known.tokenizer.added_tokens.values()
        if token.token_id in named or any(token.content in text for text in templates)
    ]


@fault("TOK405")
def sentencepiece_control_typed_normal(patient: Patient) -> Location:
    """Type BOS or EOS of tokenizer.model as an ordinary piece."""
    known = known_tokens_of(patient)
    if not known.is_sentencepiece:
        raise NotApplicable("not a sentencepiece model")
    tokenizer = known.tokenizer
    ids = [at for text in _ends(patient) if (at := tokenizer.ids_by_piece.get(text)) is not None]
    at = patient.pick(ids)
    piece = read_pieces(tokenizer.raw, tokenizer.file, at + 1)[at]
    patient.workspace.write(tokenizer.file, with_kind(tokenizer.raw, piece, NORMAL))
    return Location(file=tokenizer.file, token_id=at)
