"""The table: what is shown is what stands in it, and it moves."""

from __future__ import annotations

import re

from degarble_engine.engine.request import FinishReason
from degarble_engine.telemetry.metric_table import COMMON_LABELS, FINISH_REASONS, TABLE, page
from tests.degarble_engine.server.served import run, serving

FAMILY = re.compile(r"# TYPE (\S+) (\S+)")
SAMPLE = re.compile(r'([a-z0-9_:]+)\{model_name="tiny",engine="0"(?:,([a-z_]+)="([^"]*)")?\} (\S+)')
SUFFIXES = ("_bucket", "_sum", "_count")


def test_every_row_is_shown_and_nothing_else() -> None:
    async def asked() -> str:
        async with serving() as (client, _):
            body = {"prompt": "abc", "max_tokens": 5, "ignore_eos": True, "n": 2}
            assert (await client.post("/v1/completions", json=body)).status_code == 200
            return (await client.get("/metrics")).text

    lines = run(asked).splitlines()
    assert FAMILY.findall("\n".join(lines)) == [(row.name, row.kind) for row in TABLE.values()]
    by_name = {row.name: row for row in TABLE.values()}
    values: dict[str, float] = {}
    for line in lines:
        if not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found, line
            name = found[1] if found[1] in by_name else found[1].rpartition("_")[0]
            assert found[2] in (by_name[name].label, "le", None) and name in by_name, line
            values[found[1] + (found[3] or "")] = float(found[4])
    assert values["vllm:request_success_totallength"] == 2 and values["vllm:generation_tokens_total"] == 10
    assert values["vllm:request_params_n_sum"] == 2 and values["vllm:request_params_max_tokens_sum"] == 5
    for key in ("queue", "prefill", "decode", "inference", "tpot", "e2e"):
        assert values[f"{TABLE[key].name}_count"] == 2, key
    whole = values[f"{TABLE['e2e'].name}_sum"]
    parts = [values[f"{TABLE[key].name}_sum"] for key in ("queue", "prefill", "decode")]
    assert abs(sum(parts) - whole) < 1e-6, "queue, prefill and decode are the whole"
    assert values["process_resident_memory_bytes"] > 1e6
    assert values["degarble_kv_blocks"] == values["degarble_kv_blocks_free"]


def test_names_keep_the_rules() -> None:
    assert set(FinishReason) <= set(FINISH_REASONS)
    for row in TABLE.values():
        assert row.name.startswith(("vllm:", "degarble_", "process_"))
        assert (":" in row.name) == row.name.startswith("vllm:")
        if row.kind == "counter":
            assert row.name.endswith("_total"), "as the usual library writes them"
        assert f"| `{row.name}` |" in page()
    assert len({row.name for row in TABLE.values()}) == len(TABLE) and COMMON_LABELS == ("model_name", "engine")
