"""Tags in the front matter of a model card (`README.md`), edited as text.

The front matter is YAML between two lines of `---`. Reading and writing it with a YAML library would lose comments, order
and quoting of everything in it, so only the lines of the `tags` key are touched, in the two forms that cards use:

    tags:            tags: [a, b]
    - a
    - b

Any other form (an anchor, a flow list over several lines) is refused rather than guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from degarble.errors import MalformedFile

NAME = "README.md"
_FENCE = re.compile(r"---[ \t]*\Z")
_TAGS = re.compile(r"tags[ \t]*:(?P<value>.*)\Z")
_ITEM = re.compile(r"(?P<indent>[ \t]*)-[ \t]+(?P<tag>[^#]*?)[ \t]*(?:[ \t]#.*)?\Z")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")


def with_tags(card: str, tags: Sequence[str], drop: re.Pattern[str]) -> str:
    """The card with these tags added, after tags that match `drop` were removed. Raises MalformedFile.

    `tags` are plain words. Nothing changes if the card has just these already.
    """
    assert all(_PLAIN.match(tag) for tag in tags)
    newline = "\r\n" if "\r\n" in card else "\n"
    mark = "\ufeff" * card.startswith("\ufeff")
    lines = card.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if not _FENCE.match(lines[0]):
        head = ["---", "tags:", *(f"- {tag}" for tag in tags), "---"]
        body = lines if lines != [""] else []
        return mark + newline.join([*head, *body, *([""] if not body else [])])
    end = next((number for number, line in enumerate(lines[1:], 1) if _FENCE.match(line)), None)
    if end is None:
        raise MalformedFile(NAME, "front matter", "a second line of ---", "none")
    return mark + newline.join([lines[0], *_edited(lines[1:end], tags, drop), *lines[end:]])


def _edited(lines: list[str], tags: Sequence[str], drop: re.Pattern[str]) -> list[str]:
    """The front matter's lines; all that does not belong to `tags` stays as it is."""
    at = [number for number, line in enumerate(lines) if _TAGS.match(line)]
    if len(at) > 1:
        raise MalformedFile(NAME, "tags", "one key of that name", f"{len(at)}")
    if not at:
        return [*lines, "tags:", *(f"- {tag}" for tag in tags)]
    start = at[0]
    match = _TAGS.match(lines[start])
    assert match is not None
    value = re.sub(r"(\A|[ \t])#.*\Z", "", match["value"]).strip()
    if value.startswith("["):
        return [*lines[:start], f"tags: [{', '.join(_merged(_flow(value), tags, drop))}]", *lines[start + 1 :]]
    if value not in ("", "null", "~"):
        raise MalformedFile(NAME, "tags", "a list", value[:80])
    stop = start + 1
    while stop < len(lines) and (_ITEM.match(lines[stop]) or not lines[stop].strip() or _is_comment(lines[stop])):
        stop += 1
    if stop < len(lines) and lines[stop][:1] in (" ", "\t"):
        raise MalformedFile(NAME, "tags", "a list with one word a line", lines[stop].strip()[:80])
    return [*lines[:start], "tags:", *_block(lines[start + 1 : stop], tags, drop), *lines[stop:]]


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _flow(value: str) -> list[str]:
    """Items of `[a, b]` as they are written. Commas within quotes do not part."""
    if not value.endswith("]") or re.search(r"[\[\]{}&*!]", value[1:-1]):
        raise MalformedFile(NAME, "tags", "a list on one line", value[:80])
    items = re.findall(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,'"])+""", value[1:-1])
    return [item.strip() for item in items if item.strip()]


def _merged(items: Sequence[str], tags: Sequence[str], drop: re.Pattern[str]) -> list[str]:
    """Items that stay, in their order, then the tags that are missing."""
    kept = [item for item in items if _bare(item) in tags or not drop.fullmatch(_bare(item))]
    return kept + [tag for tag in tags if tag not in map(_bare, kept)]


def _block(lines: Sequence[str], tags: Sequence[str], drop: re.Pattern[str]) -> list[str]:
    """Lines of a block list; comments and blank lines stay where they are."""
    kept, indent, present = [], "", set()
    last = 0
    for line in lines:
        item = _ITEM.match(line)
        tag = _bare(item["tag"]) if item and not _is_comment(line) else None
        if tag is not None and tag not in tags and drop.fullmatch(tag):
            continue
        kept.append(line)
        if item is not None and tag is not None:
            indent, last = item["indent"], len(kept)
            present.add(tag)
    added = [f"{indent}- {tag}" for tag in tags if tag not in present]
    return [*kept[:last], *added, *kept[last:]]


def _bare(item: str) -> str:
    """A tag without its quotes."""
    text = item.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
