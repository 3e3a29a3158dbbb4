"""Which guards are on: the defaults, and what the user says as NAME=ACTION."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from degarble.errors import UsageError
from degarble.registry import walk
from degarble_engine import guards as package
from degarble_engine.guards.interface import Action, Guard


@cache
def guard_types() -> dict[str, type[Guard]]:
    """Name -> guard, in the order of names, found by walking the package."""
    found: dict[str, type[Guard]] = {}
    for module in walk(package):
        for member in vars(module).values():
            is_guard = isinstance(member, type) and issubclass(member, Guard) and member is not Guard
            if is_guard and member.__module__ == module.__name__:
                found[member.name] = member
    return dict(sorted(found.items()))


def chosen_actions(given: Sequence[str] = (), *, is_off: bool = False) -> dict[str, Action]:
    """Name -> action of every guard. `is_off`: all that are not given are off. Raises UsageError."""
    known = guard_types()
    found = {name: Action.OFF if is_off else guard.default for name, guard in known.items()}
    for text in given:
        name, sign, action = text.partition("=")
        if name not in known:
            raise UsageError(f"--guard {text!r}: no guard is called {name!r}: {', '.join(known)}")
        if not sign or action not in list(Action):
            raise UsageError(f"--guard {text!r}: expected NAME=ACTION with {', '.join(Action)}")
        if action == Action.RETRY and not known[name].is_in_logits:
            raise UsageError(f"--guard {text!r}: only a guard of logits can have a step decoded again")
        found[name] = Action(action)
    return found
