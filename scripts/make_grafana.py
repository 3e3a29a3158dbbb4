"""Make deploy/grafana/degarble.json: `python scripts/make_grafana.py [--check]`. Needs grafana-foundation-sdk from PyPI.

Panels read the series that deploy/prometheus records, so that both spellings and all engines are settled in one place; raw
names are only those of degarble's own server, which have no colon.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

BOARD = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "degarble.json"
BY = "{{model_name}} {{quantization}} {{checkpoint_digest}}"
MODEL = '{model_name=~"$model"}'
BUILD = '{model_name=~"$model", quantization=~"$quantization", checkpoint_digest=~"$digest"}'


class Plot(NamedTuple):
    """One panel: what it asks, the unit of the answer, and what a reader should know."""

    title: str
    expression: str
    legend: str
    unit: str
    description: str = ""


ROWS: dict[str, tuple[Plot, ...]] = {
    "Integrity": (
        Plot(
            "Damaged answers", f'slo:sli_error:ratio_rate1h{{slo="damaged-answers", {BUILD[1:]}', BY, "percentunit",
            "By model, quantisation and digest. Empty, not zero, where nothing counts damage: SGLang, and vLLM without NaN checks.",
        ),
        Plot("Guard trips per answer", f"model_guard:trips:per_answer_5m{BUILD}", "{{guard}} " + BY, "percentunit"),
        Plot("Canary: 1 is garbage", f"max by (instance, model_name) (degarble_canary_garbage{MODEL})", "{{instance}}", "none"),
        Plot("Canary: since its last run", f"time() - degarble_canary_last_run_timestamp_seconds{MODEL}", "{{instance}}", "s"),
        Plot("How answers end", f"model_reason:requests_finished:rate5m{BUILD}", "{{finished_reason}} " + BY, "reqps"),
        Plot("Integrity broken: no scaling out", f"model:integrity_broken:bool{MODEL}", "{{model_name}}", "none"),
        Plot(
            "Loops that are the model's own",
            f"sum by (model_name, quantization, checkpoint_digest) (rate(degarble_guard_own_total{BUILD}[$__rate_interval]))",
            BY, "reqps",
        ),
        Plot("Guards that see nothing", f"degarble_guard_silent{BUILD} == 1", "{{instance}} {{guard}}", "none"),
        Plot("Blocks in quarantine", f"degarble_quarantined_blocks{BUILD}", "{{instance}}", "none"),
        Plot(
            "Incidents", f"sum by (instance) (increase(degarble_incidents_total{BUILD}[1h]))", "{{instance}}", "none",
        ),
    ),
    "Promises": (
        Plot(
            "Errors", f'slo:sli_error:ratio_rate1h{{slo="answer-errors", {BUILD[1:]}', BY, "percentunit", "Promised: below 1 %."
        ),
        Plot(
            "First tokens after 1 s", f'slo:sli_error:ratio_rate1h{{slo="first-token", {BUILD[1:]}', BY, "percentunit",
            "Promised: below 5 %.",
        ),
        Plot(
            "Answers after 60 s", f'slo:sli_error:ratio_rate1h{{slo="whole-answer", {BUILD[1:]}', BY, "percentunit",
            "Promised: below 5 %.",
        ),
        Plot("Answers", f"model:requests_finished:rate5m{BUILD}", BY, "reqps"),
    ),
    "Latency, P95": (
        Plot("Time to the first token", f"model:time_to_first_token_seconds:p95_5m{BUILD}", BY, "s"),
        Plot("Between tokens", f"model:inter_token_latency_seconds:p95_5m{BUILD}", BY, "s"),
        Plot("To the end", f"model:e2e_request_latency_seconds:p95_5m{BUILD}", BY, "s"),
        Plot("In the queue", f"model:queue_time_seconds:p95_5m{BUILD}", BY, "s"),
    ),
    "Saturation": (
        Plot("Requests that wait", f"model:requests_waiting:sum{MODEL}", "{{model_name}}", "none"),
        Plot("Requests in batches", f"model:requests_running:sum{MODEL}", "{{model_name}}", "none"),
        Plot("KV cache in use", f"model:kv_cache_usage:avg{MODEL}", "{{model_name}}", "percentunit"),
        Plot("Preemptions", f"model:preemptions:rate5m{MODEL}", "{{model_name}}", "reqps"),
        Plot("Queue that autoscalers see", f"model:scaling_queue:sum{MODEL}", "{{model_name}}", "none"),
        Plot("Replicas", f"model:replicas:count{MODEL}", "{{model_name}}", "none"),
    ),
}  # fmt: skip


def written() -> str:
    """The board as JSON."""
    from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import DataSourceRef

    source = DataSourceRef(type_val="prometheus", uid="${datasource}")
    board = dashboard.Dashboard("LLM: are answers sound, in time, and is there room").uid("degarble-llm")
    board = board.tags(["llm", "degarble"]).refresh("30s").time("now-6h", "now").readonly()
    board = board.with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
    for name, label in (("model", "model_name"), ("quantization", "quantization"), ("digest", "checkpoint_digest")):
        asked = f"label_values(model:requests_finished:rate5m, {label})"
        variable = dashboard.QueryVariable(name).query(asked).datasource(source)
        board = board.with_variable(variable.multi(True).include_all(True).all_value(".*"))
    for title, plots in ROWS.items():
        board = board.with_row(dashboard.Row(title))
        for plot in plots:
            query = prometheus.Dataquery().expr(plot.expression).legend_format(plot.legend).datasource(source)
            panel = timeseries.Panel().title(plot.title).description(plot.description).unit(plot.unit)
            board = board.with_panel(panel.datasource(source).min(0).span(12).height(7).with_target(query))
    return (
        json.dumps(json.loads(JSONEncoder(sort_keys=True, indent=1).encode(board.build())), indent=1, sort_keys=True)
        + "\n"
    )


def main() -> int:
    """Write it, or say that it is stale."""
    if "--check" in sys.argv[1:]:
        return int(BOARD.read_text(encoding="utf-8") != written())
    BOARD.write_text(written(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
