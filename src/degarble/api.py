"""The library's calls: `from degarble import check`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from degarble.checkpoint.interface import Source
from degarble.errors import DegarbleError, TargetError, UsageError
from degarble.evidence import Evidence, Settings
from degarble.executor import Progress
from degarble.policy.policy import NO_POLICY, Policy
from degarble.registry import Level, rules_on
from degarble.report.interface import Report, Target
from degarble.report.judged import judged_report
from degarble.report.profile import profile_of
from degarble.runner import run, select
from degarble.target import open_target

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


def check(
    target: str | os.PathLike[str],
    *,
    reference: str | os.PathLike[str] | None = None,
    level: str | None = None,
    engine: str | None = None,
    tensor_parallel: int | None = None,
    expert_parallel: int | None = None,
    dtype: str | None = None,
    select_rules: Sequence[str] = (),
    ignore_rules: Sequence[str] = (),
    known_issues: str | None = None,
    sample: bool = False,
    exhaustive: bool = False,
    cache: str | None = None,
    profile: bool = False,
    progress: Progress | None = None,
    policy: Policy = NO_POLICY,
) -> Report:
    """Check a checkpoint: a folder, a `.safetensors` or `.gguf` file, or `hf:org/name[@revision]`.

    `level` is `header` or `content`; None means content, and header for a hub repository, whose tensors would all have
    to be fetched. `reference` is a healthy copy to compare with. `engine` is a name with an optional version, `vllm@0.11.0`.
    `sample` reads only a part of every large tensor (the report is partial then), `exhaustive` makes statistics of all
    values instead of a sample and compares modules in pairs by more of them, `cache` is a folder that keeps profiles
    between runs, `profile` puts the numbers behind the value rules into the report. `policy` is what a team decided
    about findings: severities, waivers, a baseline.
    Never raises for what is wrong with the target: that is in the report. Raises UsageError for a call that makes no
    sense (unknown rule, unknown level or engine).
    """
    default = "header" if path_is_hub(target) else "content"
    if sample and exhaustive:
        raise UsageError("--sample and --exhaustive exclude each other")
    settings = replace(
        settings_from(level or default, engine, tensor_parallel, expert_parallel, dtype, known_issues),
        sample=sample,
        exhaustive=exhaustive,
        cache=cache,
        progress=progress,
    )
    chosen = select(select_rules, ignore_rules, rules_on())
    path = os.fspath(target)
    try:
        source = open_target(target)
        healthy = None if reference is None else Evidence(open_target(reference), settings)
    except TargetError as error:
        return Report(target=Target(path=path, kind="unknown"), failure=str(error))
    return check_source(source, settings, healthy, [rule.id for rule in chosen], profile=profile, policy=policy)


def trace(
    files: Sequence[str | os.PathLike[str]],
    *,
    select_rules: Sequence[str] = (),
    ignore_rules: Sequence[str] = (),
    form: str | None = None,
    policy: Policy = NO_POLICY,
) -> Report:
    """Verify a KV-cache trace: one file, one file for each context-parallel rank, or a scheduler's and a worker's.

    Files of other tools are recognised by their content; `form` forces a format by its name. A profile may be given
    beside the trace of the same run.
    Never raises for what is wrong with the trace. Raises UsageError for an unknown rule or format.
    """
    return traced(files, select_rules=select_rules, ignore_rules=ignore_rules, form=form, policy=policy)[0]


def traced(
    files: Sequence[str | os.PathLike[str]],
    *,
    select_rules: Sequence[str] = (),
    ignore_rules: Sequence[str] = (),
    form: str | None = None,
    policy: Policy = NO_POLICY,
) -> tuple[Report, Verdict | None]:
    """The same, with the replay's verdict for a command that goes on with it; None where nothing could be read."""
    from degarble.trace.source import TraceSource  # twenty structs that no other command needs
    from degarble.trace_readers.source import open_trace

    chosen = [rule.id for rule in select(select_rules, ignore_rules, rules_on("trace"))]
    paths = [os.fspath(file) for file in files]
    try:
        source = open_trace(paths, form)
        evidence = Evidence(source, Settings())
        verdict = source.verdict
    except TargetError as error:
        return Report(target=Target(path=", ".join(paths), kind=TraceSource.kind), failure=str(error)), None
    for what, reason in verdict.unjudged.items():
        evidence.coverage.add(what, reason)
    return check_evidence(evidence, chosen, policy=policy, own_evidence="trace"), verdict


def path_is_hub(target: str | os.PathLike[str]) -> bool:
    """Whether the target is a hub repository."""
    return os.fspath(target).startswith("hf:")


def check_source(
    source: Source,
    settings: Settings | None = None,
    reference: Evidence | None = None,
    chosen: Sequence[str] | None = None,
    *,
    profile: bool = False,
    policy: Policy = NO_POLICY,
) -> Report:
    """Check an opened source; what `check`, the tests and `fix` share."""
    evidence = Evidence(source, settings or Settings(), reference)
    return check_evidence(evidence, chosen, profile=profile, policy=policy)


def check_evidence(
    evidence: Evidence,
    chosen: Sequence[str] | None = None,
    *,
    profile: bool = False,
    policy: Policy = NO_POLICY,
    own_evidence: str | None = None,
) -> Report:
    """Check what is read already, or will be: the caller may go on to use the evidence.

    `own_evidence` names what only the calling command has; its rules are run instead of those on checkpoints.
    """
    source: Source = evidence.get("source")
    table = rules_on(own_evidence)
    selected = [table[rule] for rule in (table if chosen is None else chosen)]
    try:
        results = run(evidence, selected, policy)
    except DegarbleError as error:
        return Report(target=Target(path=source.path, kind=source.kind), failure=str(error))
    evidence.find("refused_files")
    return judged_report(
        Target(path=source.path, kind=source.kind, formats=stored_formats(evidence)),
        results,
        table,
        unjudged=evidence.coverage.unjudged,
        policy=policy,
        profile=profile_of(evidence) if profile else None,
    )


def stored_formats(evidence: Evidence) -> tuple[str, ...]:
    """Labels of the weight formats found, `gptq-int4`; plain weights only where there is nothing else."""
    modules = evidence.find("modules")
    labels: dict[str, None] = {}
    for example, _ in modules.classes() if modules is not None else ():
        form = example.form
        if form.is_quantized:
            bits = f"-{form.scheme.type or 'int'}{form.scheme.num_bits}" if form.scheme and form.scheme.num_bits else ""
            labels[form.format + bits] = None
    if not labels and modules:
        dtypes = {m.payload.dtype.removeprefix("GGUF:").lower() for m in modules.linears() if m.payload is not None}
        labels = dict.fromkeys(f"plain-{dtype}" for dtype in sorted(dtypes))
    return tuple(labels)


def settings_from(
    level: str, engine: str | None, tp: int | None, ep: int | None, dtype: str | None, known_issues: str | None
) -> Settings:
    """What a user narrowed the question to. Raises UsageError for a level or degree that does not exist."""
    if level not in ("header", "content"):
        raise UsageError(f"--level {level!r}: header or content")
    name, _, version = (engine or "").partition("@")
    for what, degree in (("--tp", tp), ("--ep", ep)):
        if degree is not None and not 1 <= degree <= 4096:
            raise UsageError(f"{what} {degree}: a number of ranks from 1 to 4096")
    return Settings(
        level=Level(level),
        engine=name.lower() or None,
        engine_version=version or None,
        tensor_parallel=tp,
        expert_parallel=ep,
        dtype=dtype,
        known_issues=known_issues,
    )
