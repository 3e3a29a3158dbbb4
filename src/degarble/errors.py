"""Every exception that leaves degarble, as one tree.

DegarbleError                      anything a caller may want to catch
├── UsageError                     the command or call cannot be understood: wrong path, unknown rule id
├── TargetError                    the target cannot be read at all, so nothing can be judged
│   └── HubError                   a hub file could not be fetched
├── MalformedFile                  one file breaks its own format; carries file, place, expected and found
├── CacheError                     a contract of the KV cache is broken
│   ├── LayoutMismatch             a tensor's strides, shape, dtype or reach contradict the declared layout
│   ├── OutOfBlocks                the pool has too few free blocks; nothing was changed
│   ├── BlockMisuse                double free, unknown request, a write to a shared block, a broken invariant
│   ├── BoundCrossed               bytes were written past what was requested
│   └── GraphHoldsMemory           memory that a captured graph can still touch was freed, reused or moved
└── EvidenceMissing                an input that a check asks for was not given or does not apply
    └── EvidenceUnjudged           it was given, and cannot be judged: the report becomes *partial*
        └── MissingExtra           … because an optional package is not installed
"""

from __future__ import annotations


class DegarbleError(Exception):
    """Base of all errors that degarble raises on purpose."""


class UsageError(DegarbleError):
    """The caller asked for something that does not exist or cannot be combined."""


class TargetError(DegarbleError):
    """Nothing of the target can be read."""


class HubError(TargetError):
    """A file of a hub repository could not be fetched."""


class MalformedFile(DegarbleError):
    """A file contradicts its own format.

    `place` is a byte offset, a JSON key or a tensor name, whatever leads a reader to the spot.
    """

    def __init__(self, file: str, place: str, expected: str, found: str, *, missing_bytes: int = 0) -> None:
        super().__init__(f"{file}: {place}: expected {expected}, found {found}")
        self.file = file
        self.place = place
        self.expected = expected
        self.found = found
        self.missing_bytes = missing_bytes
        """How many bytes the file is short of what it promises; 0 when length is not the fault."""


class CacheError(DegarbleError):
    """A contract of the KV cache is broken."""


class LayoutMismatch(CacheError):
    """A tensor is not what the declared layout says; the message writes out both formulas."""


class OutOfBlocks(CacheError):
    """Too few free blocks. Nothing was changed: the caller may preempt and try again."""


class BlockMisuse(CacheError):
    """A call or a state that the block manager's contract forbids."""


class BoundCrossed(CacheError):
    """Bytes were written past the requested end of an allocation (KVC609)."""


class GraphHoldsMemory(CacheError):
    """Memory that a captured graph can still touch was freed, reused or moved (KVC610)."""


class EvidenceMissing(DegarbleError):
    """A check's input is absent; the check is skipped with this reason."""


class EvidenceUnjudged(EvidenceMissing):
    """A check's input was given and cannot be judged, so the report may not say `ok`."""


class MissingExtra(EvidenceUnjudged):
    """An optional dependency that reads this input is not installed."""

    def __init__(self, error: ModuleNotFoundError) -> None:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        hint = f"pip install 'degarble[{extra}]'" if extra else "install it"
        super().__init__(f"needs the package {error.name!r}, which is not installed: {hint}")


EXTRAS = {
    "sentencepiece": "sentencepiece",
    "huggingface_hub": "hub",
    "yaml": "recipes",
    "torch": "engine",
    "transformers": "engine",
    "safetensors": "engine",
    "accelerate": "engine",
    "starlette": "serve",
    "uvicorn": "serve",
    "opentelemetry": "otel",
}
"""Package -> the extra that brings it."""
