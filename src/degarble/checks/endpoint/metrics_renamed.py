"""RUN813: metrics that boards ask for in vain."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.errors import EvidenceMissing
from degarble.finding import Confidence, Finding, Location, Severity
from degarble.probe.engine import UNKNOWN
from degarble.probe.exposition import has_family
from degarble.probe.metric_names import metric_names
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check


@check("RUN813", severity=Severity.WARNING, confidence=Confidence.LIKELY, level=Level.LIVE)
def metrics_renamed(probe_run: ProbeRun) -> Iterator[Finding]:
    """A metric that boards and alerts of this engine ask for is not there under its name.

    ## What it looks for
    The working set of names of each engine in `data/engines/metric_names.toml` against /metrics, once as text and
    once as a Prometheus 2.x asks for it, which is when some exporters turn colons into underscores. Exact; severity
    warning.

    ## Why output turns to garbage
    A query for a stale name succeeds with no data: the board stays flat and the alert never fires while the model
    talks garbage.

    ## What you will see
    Empty panels, or panels at zero, in a system under load.

    ## How to tell it from its look-alikes
    Metrics that an option switches on are not asked for. An endpoint without /metrics is skipped: SGLang needs
    `--enable-metrics`.

    ## How to confirm
    `curl -H 'Accept: application/openmetrics-text; version=1.0.0' URL/metrics | grep num_`.

    ## How to repair it
    Query both spellings, `{__name__=~"sglang[:_]num_running_reqs"}`, or update board and engine together. Safe:
    queries only.

    ## References
    prometheus/client_python#1177, kubernetes-sigs/inference-perf#600, kubernetes-sigs/inference-perf#698
    """
    contact = probe_run.contact
    if contact.exposition is None:
        raise EvidenceMissing(contact.no_exposition)
    wanted = metric_names().get(contact.engine.name)
    if wanted is None:
        who = "of an unknown engine" if contact.engine.name == UNKNOWN else f"of {contact.engine.name}"
        raise EvidenceMissing(f"the names {who} are not known")
    for metric in wanted:
        for names, how in ((contact.exposition.plain, "as text"), (contact.exposition.negotiated, "to Prometheus 2.x")):
            if has_family(names, metric.name):
                continue
            others = [one for one in (*metric.was, metric.name.replace(":", "_")) if has_family(names, one)]
            instead = f"; {others[0]} is there instead" if others else ""
            yield Finding(
                location=Location(key=metric.name),
                message=f"/metrics does not show {metric.name} {how}{instead}",
                measured={"instead": others[0] if others else None},
                fold=how,
            )
            break
