"""Cleaning the string fields of a request, before anything else reads it.

"Token" means two things in a server: the model's, and the credential in a header. This is for the first. Credentials
are not text to be cleaned: they are left alone by naming the fields that are text.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from degarble.errors import UsageError
from degarble.tokenizer.sanitize import Sanitized, TokenSanitizer

TEXT_FIELDS = frozenset({"content", "text", "prompt", "input", "system", "instructions"})
"""Fields of the usual chat and completion APIs that reach a model as text."""
MAX_DEPTH = 64


def sanitize_fields(
    request: Any, sanitizer: TokenSanitizer, fields: Collection[str] = TEXT_FIELDS
) -> tuple[Any, dict[str, Sanitized]]:
    """A copy of a JSON value with these string fields clean, and path -> what was changed, for those that changed.

    A list of strings under such a field is cleaned too. Raises SanitizeRejected, and UsageError for a request nested
    deeper than 64.
    """
    changed: dict[str, Sanitized] = {}

    def clean(value: Any, path: str, is_text: bool, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise UsageError(f"{path}: nested deeper than {MAX_DEPTH}")
        if isinstance(value, dict):
            return {key: clean(item, f"{path}.{key}", key in fields, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [clean(item, f"{path}[{at}]", is_text, depth + 1) for at, item in enumerate(value)]
        if not is_text or not isinstance(value, str):
            return value
        result = sanitizer.sanitize(value)
        if result.counts:
            changed[path.removeprefix(".")] = result
        return result.text

    return clean(request, "", False, 0), changed
