"""Streaming detokenisation beside `tokenizers.DecodeStream`, and exactness beside other decoders.

Target: at least three times the throughput of DecodeStream in the same run, for one stream and for 256 interleaved ones.
Reads `.work/tokenizers` (scripts/extract_tokenizers.py). One JSON row a line.

    python benchmarks/detokenize.py [--names qwen3,gemma3] [--decoders exact,decode-stream,naive,transformers]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tokenizers.decoders import DecodeStream

from degarble.tokenizer.decoders import open_decoder
from degarble.tokenizer.detokenize import Detokenizer, StreamBatch
from degarble.tokenizer.encode import library_tokenizer
from degarble.tokenizer.id_sequences import chosen_ids, encoded_corpora
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.special_tokens import KEEP
from degarble.tokenizer.stop_strings import StopStrings
from degarble.tokenizer.verify import verify_decoder

FOLDER = Path(__file__).resolve().parent.parent / ".work" / "tokenizers"
NAMES = ("deepseek_v3", "qwen3", "llama3_1", "gptoss", "gemma3", "llama2")
CORPORA = ("english", "chinese-and-code", "emoji")
ROUNDS = 7
NUM_STREAMS = 256
STOPS = StopStrings(["<|im_end|>", "\n\nUser:", "```"])


def best_of(ways: dict[str, Callable[[], None]], tokens: int) -> dict[str, float]:
    """Microseconds per token of each way: the best round, the ways taking turns."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], (time.perf_counter() - start) / tokens * 1e6)
    return {name: round(value, 3) for name, value in best.items()}


def throughput(name: str, tokenizer: Tokenizer) -> None:
    """One stream, and 256 that advance together."""
    library: Any = library_tokenizer(tokenizer)
    corpora = encoded_corpora(tokenizer)
    detokenizer = Detokenizer(tokenizer, special=KEEP)
    for corpus in CORPORA:
        ids = [token_id for sample in corpora[corpus][:20] for token_id in sample.ids]

        def ours(detokenizer: Detokenizer = detokenizer, ids: Sequence[int] = ids) -> None:
            push = detokenizer.stream().push
            for token_id in ids:
                push(token_id)

        def cold(ids: Sequence[int] = ids) -> None:
            ours(Detokenizer(tokenizer, special=KEEP), ids)

        def with_stops(ids: Sequence[int] = ids) -> None:
            push, show = detokenizer.stream().push, STOPS.stream().push
            for token_id in ids:
                show(push(token_id))

        def theirs(ids: Sequence[int] = ids) -> None:
            step = DecodeStream(skip_special_tokens=False).step
            for token_id in ids:
                step(library, token_id)

        row = best_of({"ours": ours, "cold": cold, "stops": with_stops, "decode_stream": theirs}, len(ids))
        report("one stream", name, corpus, row)
    cycled = itertools.cycle(sample.ids for group in corpora.values() for sample in group if len(sample.ids) >= 40)
    sequences = list(itertools.islice(cycled, NUM_STREAMS))

    def batch() -> None:
        streams = StreamBatch(detokenizer)
        keys = list(range(NUM_STREAMS))
        for key in keys:
            streams.open(key)
        for at in range(40):
            streams.step(keys, [ids[at] for ids in sequences])

    def library_batch() -> None:
        streams = [DecodeStream(skip_special_tokens=False) for _ in sequences]
        for at in range(40):
            for stream, ids in zip(streams, sequences, strict=True):
                stream.step(library, ids[at])

    row = best_of({"ours": batch, "decode_stream": library_batch}, 40 * NUM_STREAMS)
    report(f"{NUM_STREAMS} streams", name, "all", row)


def report(what: str, name: str, corpus: str, row: dict[str, float]) -> None:
    """One line."""
    ratio = round(row["decode_stream"] / row["ours"], 1)
    print(json.dumps({"measure": what, "tokenizer": name, "corpus": corpus, "us_per_token": row, "ratio": ratio}))


def exactness(name: str, tokenizer: Tokenizer, decoders: Sequence[str]) -> None:
    """Every decoder over the corpora, over random ids and over noise."""
    groups = {"texts": encoded_corpora(tokenizer), **{key: {key: v} for key, v in chosen_ids(tokenizer).items()}}
    for decoder in decoders:
        decode = open_decoder(decoder, tokenizer, str(FOLDER / name))
        for group, samples in groups.items():
            row = verify_decoder(decoder, decode, tokenizer, samples)
            first = row.first.reason if row.first else None
            print(
                json.dumps(
                    {
                        "measure": "exact",
                        "tokenizer": name,
                        "decoder": decoder,
                        "group": group,
                        "exact": f"{row.num_exact}/{row.num_sequences}",
                        "raised": row.num_raised,
                        "late_chars": row.num_late_chars,
                        "first": first,
                    }
                )
            )


def main() -> None:
    """Everything that is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default=",".join(NAMES))
    parser.add_argument("--decoders", default="exact,decode-stream,naive")
    arguments = parser.parse_args()
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None}))
    for name in arguments.names.split(","):
        if not (FOLDER / name / "tokenizer.json").is_file():
            print(json.dumps({"tokenizer": name, "skipped": "python scripts/extract_tokenizers.py"}))
            continue
        start = time.perf_counter()
        tokenizer = load_tokenizer(FOLDER / name)
        _ = tokenizer.table
        print(json.dumps({"measure": "load", "tokenizer": name, "seconds": round(time.perf_counter() - start, 2)}))
        throughput(name, tokenizer)
        exactness(name, tokenizer, arguments.decoders.split(","))


if __name__ == "__main__":
    main()
