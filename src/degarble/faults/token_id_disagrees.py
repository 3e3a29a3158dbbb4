"""Plants TOK402."""

from __future__ import annotations

import msgspec

from degarble.evidence.vocabulary_beside import VOCAB_FILE
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.token_edit import (
    claims_of,
    idle_added,
    known_tokens_of,
    plain_ids,
    role_texts,
    tokenizer_document,
    write,
)
from degarble.finding import Location
from degarble.tokenizer.families import families
from degarble.tokenizer.token_claims import TokenClaim


@fault("TOK402")
def token_id_disagrees(patient: Patient) -> Location:
    """Exchange the ids of two tokens that a file lists."""
    known = known_tokens_of(patient)
    listed = claims_of(patient, lambda claim: claim.role is None and known.id_of(claim.text or "") == claim.token_id)
    file = patient.pick(sorted({claim.file for claim in listed}))
    both = [claim for claim in listed if claim.file == file]
    if len(both) < 2 or known.is_sentencepiece:
        raise NotApplicable("no two tokens are listed")
    one, other = patient.rng.sample(both, 2)
    values = patient.workspace.json(file)
    if file == "added_tokens.json":
        values[one.key], values[other.key] = values[other.key], values[one.key]
    else:
        values = values["added_tokens_decoder"]
        first, second = (claim.key.rpartition(".")[2] for claim in (one, other))
        values[first]["content"], values[second]["content"] = values[second]["content"], values[first]["content"]
    return Location(file=file, key=one.key)


@fault("TOK402")
def listed_ids_shifted(patient: Patient) -> Location:
    """Number the tokens of added_tokens.json from one higher, as after inserting another."""
    listed = claims_of(patient, lambda claim: claim.file == "added_tokens.json")
    values = patient.workspace.json("added_tokens.json")
    last = max(listed, key=lambda claim: claim.token_id or 0)
    rows = patient.evidence.find("embedding_rows") or 0
    if (last.token_id or 0) + 1 >= rows:
        raise NotApplicable("no row is left")
    for claim in listed:
        values[claim.key] += 1
    return Location(file="added_tokens.json", key=last.key)


@fault("TOK402")
def role_id_disagrees(patient: Patient) -> Location:
    """Write the id of an ordinary piece for BOS or padding into a config."""
    known = known_tokens_of(patient)
    texts = role_texts(patient.evidence.find("token_claims") or ())

    def is_told_twice(claim: TokenClaim) -> bool:
        is_idle = claim.role in ("bos_token", "pad_token") and claim.text is None
        return is_idle and not claim.file.endswith(".gguf") and known.id_of(texts.get(claim.role or "", "")) is not None

    claim = patient.pick(claims_of(patient, is_told_twice))
    taken = {at for family in families() for ids in family.role_ids.values() for at in ids}
    write(patient, claim.file, claim.key, patient.pick(at for at in plain_ids(known) if at not in taken))
    return Location(file=claim.file, key=claim.key)


@fault("TOK402")
def tokenizer_json_outvoted(patient: Patient) -> Location:
    """Exchange two tokens in tokenizer.json itself, against all other files."""
    document = tokenizer_document(patient)
    known = known_tokens_of(patient)
    listed = claims_of(patient, lambda claim: claim.role is None and claim.token_id is not None)
    used = list(role_texts(patient.evidence.find("token_claims") or ()).values())
    templates = "".join(template.text for template in patient.evidence.find("chat_templates") or ())
    vocab = document["model"]["vocab"]
    able = sorted(
        {
            claim.text
            for claim in listed
            if claim.text and claim.text not in used and claim.text not in templates and claim.text not in vocab
        }
    )
    if len(able) < 2:
        raise NotApplicable("no two tokens that nothing else depends on")
    one, other = patient.rng.sample(able, 2)
    for entry in document["added_tokens"]:
        if entry["content"] in (one, other):
            entry["content"] = other if entry["content"] == one else one
    return Location(file=known.tokenizer.file, token=one)


@fault("TOK402")
def vocab_json_disagrees(patient: Patient) -> Location:
    """Lay a vocab.json beside tokenizer.json in which two pieces have each other's id."""
    vocab = tokenizer_document(patient)["model"]["vocab"]
    known = known_tokens_of(patient)
    if VOCAB_FILE in patient.workspace.files() or not isinstance(vocab, dict):
        raise NotApplicable("a vocab.json is there already, or the model has no such form")
    one, other = patient.rng.sample(plain_ids(known, 200), 2)
    texts = [text for text in (known.text_of(one), known.text_of(other)) if text is not None]
    changed = {**vocab, texts[0]: vocab[texts[1]], texts[1]: vocab[texts[0]]}
    patient.workspace.write(VOCAB_FILE, msgspec.json.encode(changed))
    return Location(file=VOCAB_FILE)


@fault("TOK402")
def idle_ids_in_decoder(patient: Patient) -> Location:
    """List an added token in tokenizer_config.json under the next one's id."""
    known = known_tokens_of(patient)
    if known.is_gguf or known.is_sentencepiece or "tokenizer_config.json" not in patient.workspace.files():
        raise NotApplicable("no tokenizer_config.json beside a complete tokenizer")
    values = patient.workspace.json("tokenizer_config.json")
    at = patient.pick(at for at in idle_added(patient, known) if known.text_of(at + 1) is not None)
    text = known.text_of(at)
    values["added_tokens_decoder"] = {str(at + 1): {"content": text, "special": known.is_special(at)}}
    return Location(file="tokenizer_config.json", key=f"added_tokens_decoder.{at + 1}")


@fault("TOK402")
def post_processor_inserts_other_id(patient: Patient) -> Location:
    """Let the post-processor of tokenizer.json insert another id for the text of BOS."""
    document = tokenizer_document(patient)
    known = known_tokens_of(patient)
    outer = document["post_processor"] or {}
    tables = [one.get("special_tokens") for one in outer.get("processors", [outer])]
    entry = patient.pick(entry for table in tables if table for entry in table.values() if entry["ids"])
    entry["ids"] = [patient.pick(plain_ids(known)), *entry["ids"][1:]]
    return Location(file=known.tokenizer.file, token=entry["tokens"][0])
