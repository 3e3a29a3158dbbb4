"""`degarble kv compare-dump FILE --model MODEL`: a live cache judged by what the model's own weights give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from degarble.errors import TargetError
from degarble.finding import Confidence, Finding, Location, Severity
from degarble.registry import rules
from degarble.report.interface import Report, Target
from degarble.report.judged import judged_report
from degarble.runner import RuleResult
from degarble_engine.live_cache.laid import Laid
from degarble_engine.live_cache.pattern import Pattern, consequences, patterns
from degarble_engine.live_cache.recomputed import recomputed
from degarble_engine.live_cache.request_file import LiveRequest, read_request
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel

JUDGED = ("KVC601", "KVC602", "KVC604", "KVC606", "KVC607", "KVC608", "KVC614", "KVC618", "KVC628")
"""Rules that rows can break. That what is written is right is all that is judged, not how it is read."""


def judge_request(path: str, model: str, progress: Watch | None = None) -> Report:
    """Judge one file. Raises TargetError, MalformedFile or UsageError where nothing can be laid beside anything."""
    request = read_request(path)
    walked = WalkedModel.open(model)
    if request.num_layers > walked.num_layers:
        raise TargetError(f"{path}: holds layer {request.num_layers - 1}, the model has {walked.num_layers} layers")
    return judge_opened(request, walked, progress)


def judge_opened(request: LiveRequest, model: WalkedModel, progress: Watch | None = None) -> Report:
    """The same for what is open already."""
    laid = Laid(request)
    for rows in recomputed(model, request.token_ids, request.dtype, progress):
        if rows.layer in request.pages:
            laid.add(rows)
    wrong = {key: int(mask.sum()) for key, mask in laid.wrong.items()}
    found = list(patterns(laid, model))
    behind = consequences(laid, found)
    findings = [_finding(request, one) for one in found]
    left = {key: mask for key, mask in laid.wrong.items() if mask.any()}
    if left:
        told = "differ from what the weights give for these tokens, and nothing that was tried explains them"
        findings.append(_finding(request, Pattern(rule="KVC606", name="unexplained", told=told, rows=left)))
    findings += _positions(request)
    results = [RuleResult.of(rule, [one for one in findings if one.rule == rule]) for rule in JUDGED]
    return judged_report(
        Target(path=request.path, kind="kv-request"),
        results,
        rules(),
        unjudged=_unjudged(request, model),
        comparison={
            "kind": "kv-request",
            "model": model.evidence.get("source").path,
            "tokens": len(request.token_ids),
            "layers": _measured(laid, wrong),
            "consequences": behind,
        },
    )


def _finding(request: LiveRequest, pattern: Pattern) -> Finding:
    layer, part, token = pattern.first
    column = token // request.block_size
    layers = sorted({at for at, _ in pattern.rows})
    parts = sorted({one for _, one in pattern.rows})
    tokens = sorted({int(one) for mask in pattern.rows.values() for one in mask.nonzero()})
    is_named = pattern.name != "unexplained"
    return Finding(
        location=Location(
            file=Path(request.path).name,
            key=f"layers.{layer}.{part}",
            layer=layer,
            block=request.block_table[column],
            position=token,
        ),
        message=f"{' and '.join(parts)} of tokens {_span(tokens)} in {_layers(layers)} {pattern.told}"
        f"{'; the first lies at the start of block column ' + str(column) if token % request.block_size == 0 else ''}",
        severity=Severity.ERROR,
        confidence=Confidence.PROVEN if is_named else Confidence.LIKELY,
        measured={"pattern": pattern.name, "rows": pattern.num_rows, "tokens": len(tokens), **pattern.measured},
        bound={"rows": 0},
        rule=pattern.rule,
        name=rules()[pattern.rule].name,
    )


def _span(tokens: list[int]) -> str:
    is_run = tokens[-1] - tokens[0] == len(tokens) - 1
    shown = ", ".join(map(str, tokens[:6])) + (" …" if len(tokens) > 6 else "")
    return f"{tokens[0]} to {tokens[-1]}" if is_run and len(tokens) > 1 else shown


def _layers(layers: list[int]) -> str:
    if len(layers) == 1:
        return f"layer {layers[0]}"
    return f"{len(layers)} layers from {layers[0]} on"


def _positions(request: LiveRequest) -> list[Finding]:
    """The engine's own word for where its tokens stand."""
    given = request.position_ids or ()
    wrong = [at for at, position in enumerate(given) if position != at]
    if not wrong:
        return []
    at = wrong[0]
    return [
        Finding(
            location=Location(file=Path(request.path).name, key="position_ids", position=at),
            message=f"token {at} was given the position {given[at]}, and {len(wrong)} tokens in all another than their own",
            severity=Severity.ERROR,
            confidence=Confidence.PROVEN,
            measured={"position_id": given[at], "tokens": len(wrong)},
            bound={"position_id": at},
            rule="KVC607",
            name=rules()["KVC607"].name,
        )
    ]


def _unjudged(request: LiveRequest, model: WalkedModel) -> dict[str, str]:
    found = {}
    missing = [layer for layer in range(model.num_layers) if layer not in request.pages]
    if missing:
        found["layers"] = f"{len(missing)} of {model.num_layers} layers are not in the file, layer {missing[0]} first"
    held = request.held()
    if not held.all():
        found["tokens"] = (
            f"{int((~held).sum())} of {len(held)} tokens have no block any more: a window was slid past them"
        )
    return found


def _measured(laid: Laid, wrong: dict[tuple[int, str], int]) -> list[dict[str, Any]]:
    return [
        {
            "layer": layer,
            "part": part,
            "max_relative_l2": float(f"{laid.worst[layer, part]:.4g}"),
            "bound": float(f"{bound:.4g}"),
            "wrong_rows": wrong[layer, part],
        }
        for (layer, part), bound in laid.bounds.items()
    ]
