"""`degarble serve`: an OpenAI API on the reference engine, for a checkpoint that was checked before."""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import Annotated

import typer

from degarble.errors import UsageError
from degarble_engine.cli.library_log import only_errors

KEY_VARIABLE = "DEGARBLE_API_KEY"
log = logging.getLogger("degarble.server")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    target: Annotated[str, typer.Argument(help="The model: a folder, .safetensors or .gguf file.")],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any free one, which is said.", min=0, max=65535)] = 8000,
    name: Annotated[str | None, typer.Option("--served-model-name", help="Instead of the target's.")] = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="Of numbers: auto (as stored; sums in fp32 where the processor has no bf16 units), fp32, bf16 or fp16."
        ),
    ] = "auto",
    device: Annotated[
        str, typer.Option(help="cpu or cuda; on cuda results may depend on the batch, and no loop is compiled.")
    ] = "cpu",
    api_key: Annotated[
        list[str] | None, typer.Option(help=f"Ask clients for it; may be repeated. Better: {KEY_VARIABLE}.")
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens of a request, output included.", min=2)] = None,
    num_blocks: Annotated[int, typer.Option(help="Blocks of the KV cache.", min=2)] = 2048,
    block_size: Annotated[int, typer.Option(help="Tokens of a block.", min=1, max=256)] = 16,
    max_num_seqs: Annotated[int, typer.Option(help="Sequences computed together.", min=1)] = 64,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Tokens of one step.", min=1)] = 1024,
    max_queued: Annotated[int, typer.Option(help="Sequences that may wait; beyond: 429.", min=0)] = 256,
    ngram_drafts: Annotated[int, typer.Option(help="Draft so many tokens from what came before.", min=0, max=16)] = 0,
    batch_invariant: Annotated[
        bool, typer.Option(help="The same answer alone and in a batch; without it, a little faster.")
    ] = True,
    prefix_caching: Annotated[bool, typer.Option(help="Compute equal beginnings of prompts once.")] = True,
    max_body_bytes: Annotated[int, typer.Option(help="Longest request.", min=1024)] = 2 << 20,
    request_timeout: Annotated[float, typer.Option(help="Seconds until an answer is ended.", min=0.1)] = 600.0,
    drain_timeout: Annotated[int, typer.Option(help="Seconds that SIGTERM leaves to running answers.", min=0)] = 30,
    log_format: Annotated[str, typer.Option(help="text, or json: an object a line, requests among them.")] = "text",
    otlp_endpoint: Annotated[
        str | None, typer.Option(help="Send spans and metrics there by OTLP over HTTP; needs the extra `otel`.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Of torch; default: its own choice.", min=1)] = None,
    level: Annotated[str, typer.Option(help="How much is checked before: content or header.")] = "content",
    allow_broken: Annotated[bool, typer.Option("--allow-broken", help="Serve what the check calls broken.")] = False,
    guard: Annotated[
        list[str] | None, typer.Option("--guard", metavar="NAME=ACTION", help="off, log, annotate, stop or retry.")
    ] = None,
    guards: Annotated[bool, typer.Option(help="Watch answers while they are made.")] = True,
    incident_dir: Annotated[str | None, typer.Option(help="Keep what a damaged answer leaves behind there.")] = None,
    incident_limit: Annotated[int, typer.Option(help="Most incidents that are kept.", min=1)] = 16,
    redact_content: Annotated[bool, typer.Option("--redact-content", help="Keep incidents without text.")] = False,
    inject: Annotated[
        list[str] | None, typer.Option("--inject", metavar="FAULT", help="Plant a fault on purpose; `list` names them.")
    ] = None,
    inject_seed: Annotated[int, typer.Option(help="Where and when the fault comes.")] = 0,
) -> int:
    """Check a model and serve it over OpenAI's API. Needs the extras `engine` and `serve`."""
    from degarble.errors import MissingExtra

    try:
        import torch

        from degarble_engine.engine.llm_engine import EngineOptions
        from degarble_engine.planted.plant import listed
        from degarble_engine.server import guarding, process
        from degarble_engine.server.admission import admit
        from degarble_engine.server.app import application
        from degarble_engine.server.limits import Limits
        from degarble_engine.server.prompter import GUESS
        from degarble_engine.server.served_model import DTYPES, open_served
        from degarble_engine.server.service import Service
        from degarble_engine.telemetry.outlets import open_collector, set_up_log
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    from degarble.api import settings_from
    from degarble.evidence import Evidence
    from degarble.target import open_target

    if inject == ["list"]:
        sys.stdout.write(listed())
        return 0
    asked = guarding.Guarding.asked(
        guard or (), is_on=guards, faults=inject or (), seed=inject_seed, incident_dir=incident_dir,
        incident_limit=incident_limit, is_redacted=redact_content,
    )  # fmt: skip
    if dtype not in ("auto", *DTYPES):
        raise UsageError(f"--dtype {dtype!r}: auto, {', '.join(DTYPES)}")
    if not re.fullmatch(r"cpu|cuda(:\d{1,2})?", device):
        raise UsageError(f"--device {device[:40]!r}: cpu, cuda or cuda:NUMBER")
    keys = _keys(api_key)
    sinks = set_up_log(log_format)
    only_errors()
    if threads is not None:
        torch.set_num_threads(threads)
    evidence = Evidence(open_target(target), settings_from(level, None, None, None, None, None))
    admit(evidence, log.warning, allow_broken=allow_broken)
    options = EngineOptions(
        block_size=block_size,
        num_gpu_blocks=num_blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        enable_prefix_caching=prefix_caching,
        is_batch_invariant=batch_invariant,
    )
    faulty, planted = guarding.planted_evidence(evidence, asked, log.warning)
    model = open_served(
        faulty, name or _name_of(target), dtype=dtype, options=options, num_drafts=ngram_drafts, device=device
    )
    kept = ", ".join(f"{kind} {size >> 20} MiB" for kind, size in model.num_bytes.items())
    log.warning(f"{model.name}: weights {kept}; at most {model.engine.max_model_len} tokens a request")
    log.warning(f"{model.arithmetic}; rows {'do not ' if batch_invariant else ''}depend on their batch")
    if model.prompter.method == GUESS:
        log.warning(
            "warning: prompts are encoded by longest match: they spell the text, with other tokens than in training"
        )
    opened = {"target": os.path.abspath(target), "name": model.name, "dtype": dtype}
    planted = guarding.guard(model, asked, evidence, log.warning, opened=opened, planted=planted)
    collectors, close_collectors = open_collector(otlp_endpoint, model.name)
    limits = Limits(body_bytes=max_body_bytes, request_seconds=request_timeout, queued=max_queued)
    service = Service(model, limits, [*sinks, *collectors], planted=planted)
    process.run(
        process.server(
            application(service, keys),
            service.loop,
            host=host,
            port=port,
            header_seconds=service.limits.header_seconds,
            drain_seconds=drain_timeout,
        )
    )
    close_collectors()
    return int(service.loop.failure is not None)


def _keys(given: list[str] | None) -> list[str]:
    """Raises UsageError for an empty one, which would be no key."""
    own = os.environ.get(KEY_VARIABLE)
    keys = [*(given or []), *([own] if own is not None else [])]
    if any(not key.strip() for key in keys):
        raise UsageError(f"an empty key opens the door to everybody: --api-key or {KEY_VARIABLE}")
    return keys


def _name_of(target: str) -> str:
    """The last part of a path; a repository's full name."""
    return target.removeprefix("hf:") if target.startswith("hf:") else os.path.basename(os.path.normpath(target))
