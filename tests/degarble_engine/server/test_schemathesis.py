"""What schemathesis makes of our OpenAPI document, sent over a socket: no 500, nothing undocumented, no block lost.

Needs the extra `slow`. That an answer of 400 may follow a body of the right form is documented, so acceptance of all
well-formed bodies is not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from degarble_engine.server.limits import Limits
from tests.conftest import NOT_HERE
from tests.degarble_engine.server.served import is_free
from tests.degarble_engine.server.test_process import listening

schemathesis = pytest.importorskip("schemathesis", reason=f"{NOT_HERE}schemathesis")

EXAMPLES = 60
"""Of each operation, of the right form and of a wrong one."""
pytestmark = pytest.mark.slow


def test_every_operation_keeps_to_the_document() -> None:
    from schemathesis import GenerationMode, openapi

    statuses: Counter[str] = Counter()
    with listening(limits=Limits(request_seconds=20.0, queued=64), num_gpu_blocks=600) as (_, address, service):
        schema = openapi.from_url(f"{address}/openapi.json")
        for operation in [result.ok() for result in schema.get_all_operations()]:
            sender(operation, GenerationMode.POSITIVE, statuses)()
            if operation.method == "post":  # nothing in the others could be wrong
                sender(operation, GenerationMode.NEGATIVE, statuses)()
        assert service.loop.failure is None and service.loop.num_failed_steps == 0
        assert is_free(service)
    print(dict(statuses))
    assert any(one.startswith("POST /v1/completions 200") for one in statuses)
    assert any(one.startswith("POST /v1/completions 4") for one in statuses)


def sender(operation: Any, mode: Any, statuses: Counter[str]) -> Callable[[], None]:
    """Sends examples of an operation and checks what comes back."""
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis import GenerationMode, checks
    from schemathesis.specs.openapi import checks as own

    wanted = [
        checks.not_a_server_error, own.status_code_conformance, own.content_type_conformance,
        own.response_schema_conformance, own.negative_data_rejection, own.unsupported_method,
    ]  # fmt: skip

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate], derandomize=True,
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        if mode is GenerationMode.POSITIVE:
            bound(case)
        response = case.call()
        statuses[f"{case.method} {case.path} {response.status_code}"] += 1
        case.validate_response(response, checks=wanted)

    return send


def bound(case: Any) -> None:
    """The model that there is, and answers of a few tokens: what is tested is the door."""
    if isinstance(case.body, dict):
        case.body.pop("model", None)
        if case.path.startswith("/v1/"):
            case.body["max_tokens"] = 2
