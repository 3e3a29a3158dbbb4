"""What besides token ids decides the content of a KV block: two requests share blocks only if all of it is equal.

Every part is written with its name and length, so that an adapter called x and a salt called x differ, and no two
sets of parts give the same bytes. Images count for the blocks they overlap: a text prefix before them is shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpan:
    """One image (or audio clip) in the prompt: its placeholder tokens and a digest of its content."""

    start: int
    length: int
    digest: str
    """Of the whole content; a digest that is cut short collides (LMCache/LMCache#4086)."""


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """Everything that must be equal; the defaults are a plain request to a plain model."""

    model: str = ""
    """Name and revision."""
    dtype: str = ""
    """Of the cache, with its quantisation."""
    adapter: str = ""
    adapter_version: str = ""
    """A reloaded adapter of the same name has other weights (vllm-project/vllm#30931)."""
    salt: str = ""
    images: tuple[ImageSpan, ...] = ()

    @cached_property
    def root(self) -> bytes:
        """What the first block's key hangs on."""
        parts = ("model", "dtype", "adapter", "adapter_version", "salt")
        return b"".join(_tagged(name, getattr(self, name)) for name in parts)

    def extra(self, start: int, end: int) -> bytes:
        """What images add to the key of a block that holds positions [start, end)."""
        if not self.images:
            return b""
        return b"".join(
            _tagged("image", f"{image.start - start}:{image.length}:{image.digest}")
            for image in self.images
            if image.start < end and image.start + image.length > start
        )

    def tags(self) -> dict[str, object]:
        """The parts that are set, by the names of the trace schema."""
        adapter = f"{self.adapter}@{self.adapter_version}" if self.adapter_version else self.adapter
        images = [f"{image.start}:{image.length}:{image.digest}" for image in self.images]
        named = {"model": self.model, "dtype": self.dtype, "lora": adapter, "salt": self.salt, "mm": images}
        return {name: value for name, value in named.items() if value}


def _tagged(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return f"{name}:{len(data)}:".encode() + data


PLAIN = Namespace()
