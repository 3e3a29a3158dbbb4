"""Chat templates as stored: in tokenizer_config.json, in files of their own, or in the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from degarble.checkpoint.interface import Source
from degarble.checkpoint.json_file import JsonFile
from degarble.errors import TargetError

TEMPLATE_FILE = "chat_template.jinja"
FURTHER_FOLDER = "additional_chat_templates/"
MAX_TEMPLATE_BYTES = 1 << 20
"""The longest in use are of some 20 kB."""


class ChatTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """One template and where it stands."""

    file: str
    key: str | None
    """Dotted key in a JSON file or GGUF metadata; None where the template is a file of its own."""
    name: str
    """`default`, or another name such as `tool_use`."""
    text: str


def read_chat_templates(
    source: Source, json_files: Mapping[str, JsonFile], gguf_file: str, gguf_metadata: Mapping[str, Any]
) -> tuple[ChatTemplate, ...]:
    """Every template, the one that loaders prefer first: chat_template.jinja, chat_template.json, tokenizer_config.json."""
    return (
        *_of_files(source),
        *(t for file in ("chat_template.json", "tokenizer_config.json") for t in _of_json(file, json_files)),
        *_of_gguf(gguf_file, gguf_metadata),
    )


def _of_files(source: Source) -> Iterator[ChatTemplate]:
    for file, size in sorted(source.files().items(), key=lambda item: (item[0] != TEMPLATE_FILE, item[0])):
        is_further = file.startswith(FURTHER_FOLDER) and file.endswith(".jinja")
        if (file == TEMPLATE_FILE or is_further) and size <= MAX_TEMPLATE_BYTES:
            name = file.removeprefix(FURTHER_FOLDER).removesuffix(".jinja") if is_further else "default"
            try:
                text = source.read(file).decode("utf-8", "replace")
            except TargetError:
                continue
            yield ChatTemplate(file=file, key=None, name=name, text=text)


def _of_json(file: str, json_files: Mapping[str, JsonFile]) -> Iterator[ChatTemplate]:
    value = json_files[file].value if file in json_files else None
    stored = value.get("chat_template") if isinstance(value, dict) else None
    if isinstance(stored, str):
        yield ChatTemplate(file=file, key="chat_template", name="default", text=stored)
    for at, entry in enumerate(stored if isinstance(stored, list) else ()):
        if isinstance(entry, dict) and isinstance(entry.get("template"), str):
            name = entry.get("name")
            yield ChatTemplate(
                file=file,
                key=f"chat_template.{at}",
                name=name if isinstance(name, str) else str(at),
                text=entry["template"],
            )


def _of_gguf(file: str, metadata: Mapping[str, Any]) -> Iterator[ChatTemplate]:
    for key, value in metadata.items():
        if isinstance(value, str) and (key == "tokenizer.chat_template" or key.startswith("tokenizer.chat_template.")):
            name = key.removeprefix("tokenizer.chat_template").removeprefix(".")
            yield ChatTemplate(file=file, key=key, name=name or "default", text=value)
