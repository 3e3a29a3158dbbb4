"""Text as HTML: everything is escaped here, and nowhere else."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"`([^`]+)`")


def esc(text: object) -> str:
    """Text that is safe between tags and in a quoted attribute."""
    return html.escape(str(text), quote=True)


def code(text: object) -> str:
    """A name as it stands in a file; isolated, so that right-to-left letters in it turn nothing around."""
    return f"<code>{esc(text)}</code>"


def lines(text: str) -> str:
    """A message whose line ends are kept."""
    return "<br>".join(map(esc, text.split("\n")))


def prose(text: str) -> str:
    """Sentences of a rule's page, whose backticks mean code."""
    return "".join(code(part) if number % 2 else esc(part) for number, part in enumerate(_CODE.split(text)))


def details(summary: str, body: str) -> str:
    """A part that opens on demand, by key or touch."""
    return f"<details><summary>{esc(summary)}</summary>{body}</details>"


def bullets(items: Iterable[str]) -> str:
    """A list of parts that are HTML already."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are HTML already and whose first column names the row; it scrolls on a narrow screen."""
    top = "".join(f'<th scope="col">{esc(title)}</th>' for title in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{esc(caption)}"><table>'
        f"<caption>{esc(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
