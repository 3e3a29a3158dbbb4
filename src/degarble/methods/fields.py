"""What the integer methods read beyond `config_object.py`: objects within objects, and keys with several spellings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from degarble.methods.config_object import ConfigObject

MAX_BITS = 64


class Fields(ConfigObject):
    """One JSON object; objects inside it note their ill-typed keys in the same list."""

    def first_text(self, *names: str) -> str | None:
        """The first of several spellings that is set."""
        return next((value for name in names if (value := self.text(name)) is not None), None)

    def num_bits(self, *names: str) -> int | None:
        """The first of several spellings that is set, as a bit width."""
        for name in names:
            bits = self.integer(name)
            if bits is not None and bits <= MAX_BITS:
                return bits
            if bits is not None:
                self.reject(name)
        return None

    def group_size(self, *names: str) -> int | None:
        """The first of several spellings that is set: a positive size, or -1 for a whole row."""
        for name in names:
            value = self.raw.get(name)
            if type(value) is int and value == -1:
                return value
            size = self.integer(name)
            if size is not None:
                return size
        return None

    def inner(self, name: str) -> Fields | None:
        """A nested object; None if absent, null or something else."""
        value = self.raw.get(name)
        if isinstance(value, Mapping):
            return self.nested(name, value)
        self._note(name)
        return None

    def objects(self, name: str) -> list[tuple[str, Fields]]:
        """The nested objects below `name`, by their names."""
        outer, found = self.inner(name), list[tuple[str, Fields]]()
        for key, value in (outer.raw if outer is not None else {}).items():
            if isinstance(value, Mapping):
                found.append((str(key), self.nested(f"{name}.{key}", value)))
            else:
                self.reject(f"{name}.{key}")
        return found

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of strings, or a single one; others are left out and noted."""
        value = self.raw.get(name)
        return (value,) if isinstance(value, str) else next((skip.entries for skip in self.skips(name)), ())

    def reject(self, name: str) -> None:
        """Note a key whose value has the right type and cannot be used all the same."""
        self.ill_typed.append(self.path(name))

    def nested(self, name: str, value: Mapping[str, Any]) -> Fields:
        """A view of an object below this one."""
        view = Fields(value, file=self.file, key=self.path(name))
        view.ill_typed = self.ill_typed
        return view

    @property
    def faults(self) -> tuple[str, ...]:
        """Paths of all ill-typed keys, each once."""
        return tuple(dict.fromkeys(self.ill_typed))
