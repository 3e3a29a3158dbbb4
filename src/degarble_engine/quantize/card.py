"""`README.md` and `quantization.json` beside the weights: the hub's conventions for a quantised model, and how it was made.

Neither holds a path or a time: the same job gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from degarble.checkpoint.interface import Source
from degarble.version import __version__
from degarble_engine.quantize.layer_file import MatrixRecord
from degarble_engine.quantize.recipe import HUB_ID, Recipe

CARD, PROVENANCE = "README.md", "quantization.json"
KEPT = ("license", "license_name", "license_link", "pipeline_tag", "library_name")
"""Keys of the source's front matter that hold for the result as well, where they stand on one line."""
MAX_CARD_BYTES = 1 << 20


def provenance(
    job: Mapping[str, Any], records: Sequence[MatrixRecord], plain: Sequence[str], plan: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Everything that decides the bytes, and the error of every matrix."""
    return {
        "made_by": f"degarble {__version__}",
        **job,
        "plan": plan,
        "left_plain": list(plain),
        "matrices": [
            {
                "module": one.module,
                "bits": round(one.bits, 4),
                "error": float(f"{one.error:.6g}"),
                "plain_error": float(f"{one.plain_error:.6g}"),
                "tokens": one.tokens,
                "notes": list(one.notes),
                "values_sha256": one.digest,
            }
            for one in records
        ],
    }


def card(recipe: Recipe, source: Source, base_model: str | None, bits: float) -> str:
    """The model card."""
    front = [*_kept_lines(source)]
    if base_model is not None:
        front += [f"base_model: {base_model}", "base_model_relation: quantized"]
    front += ["tags:", *(f"- {tag}" for tag in (recipe.export, recipe.scheme.lower(), recipe.method, "degarble"))]
    origin = f"[{base_model}](https://huggingface.co/{base_model})" if base_model else "the model it was made from"
    return "\n".join(
        [
            "---",
            *front,
            "---",
            "",
            f"# {(base_model or 'A model').rpartition('/')[2]}, {recipe.scheme}",
            "",
            f"{origin}, its linears quantised by `degarble quantize` ({__version__}): scheme {recipe.scheme}, method "
            f"`{recipe.method}`, {bits:.2f} bits a weight of the quantised linears. Every matrix was read back and is bit for",
            f"bit what the method chose; `{PROVENANCE}` has the recipe, the digest of the calibration text and the error of",
            "every matrix. `degarble check` finds no fault that the original lacks.",
            "",
        ]
    )


def base_model_of(recipe: Recipe, config: Mapping[str, Any]) -> str | None:
    """The hub id that was given, or that the config remembers."""
    if recipe.base_model is not None:
        return recipe.base_model
    remembered = config.get("_name_or_path")
    return remembered if isinstance(remembered, str) and HUB_ID.match(remembered) else None


def _kept_lines(source: Source) -> list[str]:
    if not 0 < source.files().get(CARD, 0) <= MAX_CARD_BYTES:
        return []
    lines = source.read(CARD).decode("utf-8", "replace").splitlines()
    if not lines or lines[0].rstrip() != "---" or "---" not in (line.rstrip() for line in lines[1:]):
        return []
    end = next(number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---")
    pattern = re.compile(rf"({'|'.join(KEPT)}):[ ]*[\w./:-]+[ ]*\Z")
    return [line.rstrip() for line in lines[1:end] if pattern.match(line)]
