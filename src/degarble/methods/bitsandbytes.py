"""bitsandbytes: `load_in_4bit` or `load_in_8bit`; block size and shape are not in the config.

    {"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4",
     "bnb_4bit_use_double_quant": true, "bnb_4bit_quant_storage": "uint8", "llm_int8_skip_modules": null}

The output head stays plain without being listed, and so do tied embeddings. Source: transformers `BitsAndBytesConfig`,
`get_keys_to_not_convert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.config_object import ConfigObject
from degarble.methods.interface import Declaration, Method


class BitsandbytesMethod(Method):
    """Config of bitsandbytes."""

    names: ClassVar[tuple[str, ...]] = ("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit")

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare. Both flags set: 4 bits, as transformers refuses and old versions preferred."""
        config = ConfigObject(raw, file=file, key=key)
        storage = config.text("bnb_4bit_quant_storage")
        four, eight = _flag(config, "load_in_4bit"), _flag(config, "load_in_8bit")
        default: Scheme | None = None
        if four:
            default = _four_bits(config)
        elif eight:
            default = Scheme(
                method="bitsandbytes",
                type="int",
                num_bits=8,
                strategy="channel",
                symmetric=True,
                activations="dynamic",
            )
        return Declaration(
            method="bitsandbytes",
            file=file,
            key=key,
            raw=raw,
            default=default,
            skips=config.skips("llm_int8_skip_modules"),
            implicit_plain=("lm_head", "embed_tokens"),
            ill_typed=tuple(config.ill_typed),
            notes={"storage": storage, "both_widths": four and eight},
        )


def _flag(config: ConfigObject, name: str) -> bool:
    """The flag, or its private twin that newer versions write beside it."""
    return bool(config.boolean(name) or config.boolean(f"_{name}"))


def _four_bits(config: ConfigObject) -> Scheme:
    """No strategy: the block size, 64 by default, is written beside each weight only."""
    kind = (config.text("bnb_4bit_quant_type") or "fp4").lower()
    nested = config.boolean("bnb_4bit_use_double_quant")
    label = kind if kind in ("nf4", "fp4") else None
    return Scheme(
        method="bitsandbytes",
        format=f"{label}-nested" if label and nested else label,
        type="codebook",
        num_bits=4,
    )
