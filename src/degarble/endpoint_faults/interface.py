"""`@endpoint_fault`: a small function that changes one thing about a healthy stand-in endpoint."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from degarble.endpoint_faults.fake_endpoint import FakeEndpoint
from degarble.registry import RULE_ID, walk

EndpointFaultFunction = Callable[[FakeEndpoint], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFault:
    """One planted fault."""

    rule: str
    name: str
    function: EndpointFaultFunction
    needs_reference: bool

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").split("\n", 1)[0]

    def planted(self, engine: str = "vllm") -> FakeEndpoint:
        """A stand-in with this fault and no other."""
        endpoint = FakeEndpoint(engine=engine)
        self.function(endpoint)
        return endpoint


def endpoint_fault(
    rule: str, *, needs_reference: bool = False
) -> Callable[[EndpointFaultFunction], EndpointFaultFunction]:
    """Mark a function as a fault of `rule`; `needs_reference`: only beside a healthy endpoint can it be seen."""
    if not RULE_ID.match(rule):
        raise ValueError(f"{rule!r} is not a rule id")

    def mark(function: EndpointFaultFunction) -> EndpointFaultFunction:
        function.__dict__["degarble_endpoint_fault"] = (rule, needs_reference)
        return function

    return mark


@cache
def endpoint_faults() -> tuple[EndpointFault, ...]:
    """Every fault there is, by rule and name."""
    import degarble.endpoint_faults as package

    found: list[EndpointFault] = []
    for module in walk(package):
        for name, member in vars(module).items():
            marked = getattr(member, "__dict__", {}).get("degarble_endpoint_fault")
            if marked is not None and member.__module__ == module.__name__:
                rule, needs = marked
                found.append(
                    EndpointFault(rule=rule, name=name.replace("_", "-"), function=member, needs_reference=needs)
                )
    return tuple(sorted(found, key=lambda fault: (fault.rule, fault.name)))
