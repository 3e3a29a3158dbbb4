"""What the endpoints share: the model, the engine's loop, limits, metrics, and the way from a prompt to an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from degarble_engine.server.api_error import CLIENT_CLOSED, GONE, ApiError, ClientGone, invalid
from degarble_engine.server.engine_loop import EngineLoop, Job
from degarble_engine.server.event_stream import EventStream, unless_gone
from degarble_engine.server.generation import RETRY_SECONDS, Generation
from degarble_engine.server.limits import Limits
from degarble_engine.server.request_fields import GenerationFields, seeded
from degarble_engine.server.served_model import ServedModel
from degarble_engine.telemetry.account import REQUEST_ID, Account
from degarble_engine.telemetry.gen_ai_names import REQUEST_PARAMS
from degarble_engine.telemetry.request_record import GenerationRecord, Sink
from degarble_engine.telemetry.server_metrics import ServerMetrics

if TYPE_CHECKING:
    from degarble_engine.server.answer import Answer

Result = TypeVar("Result")


class Service:
    """One model behind one API."""

    def __init__(
        self, model: ServedModel, limits: Limits, sinks: Sequence[Sink] = (), *, planted: Sequence[str] = ()
    ) -> None:
        """`sinks` are told of every request when it has ended; `planted`: faults put in on purpose, which /health says."""
        self.model, self.limits, self.sinks, self.planted = model, limits, sinks, tuple(planted)
        self.loop = EngineLoop(model.engine, max_queued=limits.queued)
        self.metrics = ServerMetrics(self.loop, model.name)
        self.created = int(time.time())
        self._prompts = ThreadPoolExecutor(1, "degarble-prompts")
        self._num_preparing = 0

    async def close(self) -> None:
        """End what runs."""
        await self.loop.close()
        self._prompts.shutdown(wait=False)

    def require_model(self, name: str | None) -> None:
        """Raise ApiError unless it is the one that is served; none named means this one."""
        if name is not None and name != self.model.name:
            raise ApiError(
                404, f"the model {name!r} is not served here, {self.model.name!r} is", param="model",
                code="model_not_found",
            )  # fmt: skip

    async def in_background(self, work: Callable[[], Result]) -> Result:
        """Templates, encoders and grammars run beside the loop, one at a time. Raises ApiError where too many wait."""
        if self._num_preparing > self.limits.queued:
            raise ApiError(
                429, f"{self._num_preparing} prompts wait to be encoded", code="queue_full",
                headers={"retry-after": str(RETRY_SECONDS)},
            )  # fmt: skip
        self._num_preparing += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._prompts, work)
        finally:
            self._num_preparing -= 1

    def require_prompt(self, prompt_ids: Sequence[int], param: str) -> None:
        """Raise ApiError for ids that do not exist, or too many of them."""
        engine = self.model.engine
        vocab_size, most = engine.model.vocab_size, engine.max_model_len
        if not prompt_ids:
            raise invalid("the prompt has no tokens", param)
        if len(prompt_ids) >= most:
            raise invalid(
                f"the prompt has {len(prompt_ids)} tokens, the model takes {most} in all, output included",
                param,
                "context_length_exceeded",
            )
        if not all(0 <= one < vocab_size for one in prompt_ids):
            raise invalid(f"token ids are from 0 to {vocab_size - 1}", param)

    def jobs(
        self,
        fields: GenerationFields,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int | None,
        logprobs: int | None,
        param: str,
    ) -> list[Job]:
        """`n` for each prompt. `max_tokens` None: as many as there is room for."""
        fields.require_sound(self.model.engine.model.vocab_size)
        answers = fields.n or 1
        if len(prompts) * answers > self.limits.sequences:
            message = f"{len(prompts)} prompts with n = {answers}: more than {self.limits.sequences} sequences"
            raise invalid(message, "n")
        found: list[Job] = []
        for prompt_ids in prompts:
            self.require_prompt(prompt_ids, param)
            room = self.model.engine.max_model_len - len(prompt_ids)
            wanted = room if max_tokens is None else min(max_tokens, room)
            params = fields.sampling(self.model.defaults, max_tokens=wanted, logprobs=logprobs)
            found += [Job(prompt_ids, seeded(params, number), fields.namespace) for number in range(answers)]
        return found

    async def _guided(self, fields: GenerationFields, jobs: Sequence[Job]) -> Sequence[Job]:
        """Each with a guide of its own, where the answers must have a form. Raises ApiError."""
        form = fields.form
        if form is None:
            return jobs
        self.metrics.count("structured")
        guide = await self.in_background(partial(self.model.grammars.guide, form))
        return [msgspec.structs.replace(job, guide=guide.copy()) for job in jobs]

    async def answer(self, request: Request, fields: GenerationFields, jobs: Sequence[Job], answer: Answer) -> Response:
        """Generate and send, in one piece or in many."""
        jobs = await self._guided(fields, jobs)
        self.metrics.observe("asked_answers", fields.n or 1)
        self.metrics.observe("asked_length", jobs[0].params.max_tokens)
        detokenizer = self.model.hiding if fields.skip_special_tokens else self.model.showing
        generation = Generation(
            self.loop, jobs, detokenizer, self.metrics,
            num_prompts=len(jobs) // (fields.n or 1), seconds=self.limits.request_seconds,
        )  # fmt: skip
        account: Account = request.state.account

        def end(is_gone: bool, error: ApiError | None = None) -> None:
            generation.close()
            self.metrics.count("disconnected", int(is_gone))
            account.generation = _recorded(answer, fields, generation)
            if fields.stream:
                code = error.kind if error is not None else None
                account.close(CLIENT_CLOSED if is_gone else 200, GONE if is_gone else code)

        if fields.stream:
            return EventStream(answer.chunks(generation, fields), {REQUEST_ID: account.request_id}, end)
        is_gone = False
        try:
            body = await unless_gone(request.receive, answer.whole(generation))
        except ClientGone:
            is_gone = True
            raise
        finally:
            end(is_gone)
        return Response(msgspec.json.encode(body), media_type="application/json")


def _recorded(answer: Answer, fields: GenerationFields, generation: Generation) -> GenerationRecord:
    return GenerationRecord(
        operation=answer.operation,
        response_id=answer.id,
        params={name: getattr(fields, name) for name in REQUEST_PARAMS},
        usage=generation.usage,
        choices=tuple(generation.times),
        engine_ids=generation.engine_ids,
    )
